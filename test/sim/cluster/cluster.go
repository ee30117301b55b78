// Package cluster simulates the parts of a Kubernetes cluster that act independently of Serin: the controllers of Deployments,
// DaemonSets, autoscalers, endpoints and garbage collection, their pods, and the gateways that send requests to the pods.
//
// All of them observe only the API server, with a delay as in a real cluster, and draw from their own random streams. Pods are
// records of this package; a pod that cannot start is also an object, because its reason can be read there. The package knows
// Deployments, pods, Services and routes. It must not know what a release is: no phases, steps or analyses, and no code of
// Serin.
package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// The classes of faults of a cluster.
const (
	PodCrashes     sim.FaultClass = "pod-crash"      // a ready pod crashes, and is restarted
	SlowStarts     sim.FaultClass = "slow-start"     // a pod needs minutes to be ready
	NodeLosses     sim.FaultClass = "node-loss"      // all pods of a node are lost, which Kubernetes detects later
	LateEndpoints  sim.FaultClass = "late-endpoints" // endpoints are published seconds after the pods are ready
	LateSelectors  sim.FaultClass = "late-selector"  // endpoints follow a changed selector of a Service seconds later
	LateGateways   sim.FaultClass = "late-gateway"   // a replica of a gateway observes changes seconds later
	SilentGateways sim.FaultClass = "silent-gateway" // no controller reports on routes of the Gateway API, nor applies them in some cases
	LoadChanges    sim.FaultClass = "load"           // the load that autoscalers measure changes
	NoRoom         sim.FaultClass = "no-room"        // no node has room for another pod: new ones remain pending until others are removed
)

// Classes returns the classes of faults for sim.Options.
func Classes() []sim.FaultClass {
	return []sim.FaultClass{PodCrashes, SlowStarts, NodeLosses, LateEndpoints, LateSelectors, LateGateways, SilentGateways, LoadChanges}
}

// The maximum delays of a cluster. The classes of faults add to them.
const (
	// EndpointsDelay is the maximum delay until the endpoints contain a change of a pod.
	EndpointsDelay = 2 * time.Second
	// GatewayDelay is the maximum delay until a gateway applies a change.
	GatewayDelay = 3 * time.Second
	// LossDetection is the maximum delay until Kubernetes detects that a node is lost.
	LossDetection = time.Minute
	// FaultDelay is what the classes of late endpoints, selectors and gateways add to these delays.
	FaultDelay = 20 * time.Second
)

// Options are the options of a cluster.
type Options struct {
	// PodBehaviour returns how the pods of a template behave; nil: they become ready within seconds and remain so. It is called
	// once for each ReplicaSet.
	PodBehaviour func(template map[string]any) PodBehaviour
	// Scaled are the kinds, in addition to Deployments, that autoscalers scale.
	Scaled []schema.GroupKind
	// Version returns the version of a template; nil: its label version.
	Version func(template map[string]any) string
	// JobOutcome returns the outcome of a Job; nil: it succeeds immediately.
	JobOutcome func(job *store.Version) JobOutcome
}

// PodBehaviour describes how the pods of one version behave.
type PodBehaviour struct {
	// Start draws how long a pod needs to become ready; nil: seconds.
	Start func() time.Duration
	// NeverReady pods do not become ready, because their image does not exist.
	NeverReady bool
	// Crash is the time after which a ready pod crashes; zero: it does not. It is restarted and then remains ready, unless it
	// Flaps.
	Crash time.Duration
	Flaps bool
}

var (
	deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	replicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	podKind        = schema.GroupKind{Kind: "Pod"}
	serviceKind    = schema.GroupKind{Kind: "Service"}
	sliceKind      = schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}
	jobKind        = schema.GroupKind{Group: "batch", Kind: "Job"}
	scalerKind     = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
)

// deploymentController is the actor that creates ReplicaSets and writes their status.
const deploymentController = "deployment-controller"

// Cluster contains the controllers of one run.
type Cluster struct {
	world   *sim.World
	options Options

	deployments registry[*deployment]
	daemonSets  registry[*daemonSet]
	services    registry[*service]
	scalers     registry[*autoscaler]
	sets        []*replicaSet // in the order of their creation
	pods        map[string]*pod
	died        map[types.NamespacedName]time.Time
	alive       map[types.UID]bool // existing objects
	watchers    []func(namespace string)

	podCount   int // pods that were created
	pending    int // scheduled actions that will certainly happen
	losses     int
	loads      int
	collecting bool
	quiesced   bool

	full        bool // the nodes have room for freeSlots more pods only
	freeSlots   int
	pendingPods []*pod // pods that wait for room, the oldest first
	fills       int

	workloads, endpoints, scaling client.Client
	garbage                       *sim.Stream
}

// New creates the controllers. It must be called before the objects that they manage are created.
func New(w *sim.World, o Options) *Cluster {
	c := &Cluster{
		world: w, options: o, pods: map[string]*pod{}, died: map[types.NamespacedName]time.Time{}, alive: map[types.UID]bool{},
		workloads: w.Server.Client(deploymentController), endpoints: w.Server.Client("endpointslice-controller"),
		scaling: w.Server.Client("hpa"), garbage: w.Draws.Stream("cluster/garbage"),
	}
	w.Subscribe(c.observe)
	c.scheduleNodeLosses()
	c.scheduleNoRoom()
	return c
}

// Quiesce ends spontaneous changes of pods and load. From then on, every pod that can become ready does so and remains ready:
// waiting pods are started, and lost pods are replaced.
func (c *Cluster) Quiesce() {
	c.quiesced = true
	c.RestoreRoom()
	for _, set := range slices.Clone(c.sets) {
		for _, p := range slices.Clone(set.pods) {
			p.recover()
		}
	}
}

// Settled reports whether no activity of the cluster is in progress, so that all later writes respond to other actors.
func (c *Cluster) Settled() bool { return c.UnsettledReason() == "" }

// UnsettledReason describes an activity in progress, or returns "".
func (c *Cluster) UnsettledReason() string {
	switch {
	case c.pending > 0:
		return strconv.Itoa(c.pending) + " actions of the cluster are scheduled"
	case c.collecting:
		return "garbage is being collected"
	}
	for _, d := range c.deployments.ordered {
		if d.deadlineIsRunning() {
			return "the progress deadline of Deployment " + d.key.Name + " is running"
		}
	}
	for _, set := range c.sets {
		for _, p := range set.pods {
			if !p.settled() {
				return "pod " + p.name + " is not ready yet, or is terminating"
			}
		}
	}
	return ""
}

// Ready counts the pods of a Deployment that are ready.
func (c *Cluster) Ready(namespace, name string) int32 {
	return c.countPods(namespace, name, func(p *pod) bool { return p.ready })
}

// Replicas counts the pods of a Deployment, without those that are terminating.
func (c *Cluster) Replicas(namespace, name string) int32 {
	return c.countPods(namespace, name, func(*pod) bool { return true })
}

func (c *Cluster) countPods(namespace, name string, counts func(*pod) bool) int32 {
	v := c.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: name})
	if v == nil {
		return 0
	}
	var n int32
	for _, set := range c.setsOf(v.UID()) {
		for _, p := range set.pods {
			if !p.terminating && counts(p) {
				n++
			}
		}
	}
	return n
}

// Version returns the version that the template of a Deployment runs, or "".
func (c *Cluster) Version(namespace, name string) string {
	v := c.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: name})
	if v == nil {
		return ""
	}
	return c.versionOf(object(v.Content(), "spec", "template"))
}

func (c *Cluster) versionOf(template map[string]any) string {
	if c.options.Version != nil {
		return c.options.Version(template)
	}
	return text(object(template, "metadata", "labels"), "version")
}

// ReadyEndpoints counts, by version, the ready pods that a Service selects.
func (c *Cluster) ReadyEndpoints(namespace, service string) map[string]int {
	return c.countSelected(namespace, service, func(p *pod) bool { return p.ready && p.answers && !p.terminating })
}

// Answering counts, by version, the pods that a Service selects and that answer, including terminating pods that still do.
func (c *Cluster) Answering(namespace, service string) map[string]int {
	return c.countSelected(namespace, service, func(p *pod) bool { return p.answers })
}

func (c *Cluster) countSelected(namespace, service string, counts func(*pod) bool) map[string]int {
	found := map[string]int{}
	for p := range c.podsSelected(namespace, c.selectorOf(namespace, service)) {
		if counts(p) {
			found[p.set.version]++
		}
	}
	return found
}

// LastPodDeath returns when a pod of a Deployment last failed, or zero.
func (c *Cluster) LastPodDeath(namespace, name string) time.Time {
	return c.died[types.NamespacedName{Namespace: namespace, Name: name}]
}

// schedule schedules an action. Until it happens, the cluster has not settled.
func (c *Cluster) schedule(d time.Duration, run func()) {
	c.pending++
	c.world.After(d, func() {
		c.pending--
		run()
	})
}

// observe handles the events of the API server.
func (c *Cluster) observe(event any) {
	write, ok := event.(sim.ObjectWritten)
	if !ok {
		return
	}
	e := write.Event
	switch e.Kind {
	case deploymentKind:
		c.deploymentWritten(e)
	case daemonSetKind:
		c.daemonSetWritten(e)
	case replicaSetKind:
		c.replicaSetWritten(e)
	case podKind:
		c.podWritten(e)
	case serviceKind:
		c.serviceWritten(e)
	case scalerKind:
		c.scalerWritten(e)
	case jobKind:
		c.jobWritten(e)
	default:
		if slices.Contains(c.options.Scaled, e.Kind) && e.Type != store.Deleted {
			c.scaleTargetWritten(e)
		}
	}
	c.collectGarbageAfter(e)
}

// podsChanged notifies all components that depend on the pods of a ReplicaSet.
func (c *Cluster) podsChanged(set *replicaSet) {
	c.wakeOwner(set)
	set.scheduleReconcile()
	c.publishFor(set, (*service).schedulePublish)
	c.notifyWatchers(set.namespace)
}

// wakeOwner schedules a reconciliation of the controller that owns a ReplicaSet, or a revision of a DaemonSet.
func (c *Cluster) wakeOwner(set *replicaSet) {
	if d := c.ownerOf(set); d != nil {
		d.scheduleReconcile()
	}
	d := c.daemonSets.byKey[types.NamespacedName{Namespace: set.namespace, Name: set.deployment}]
	if d != nil && d.uid == set.owner {
		d.scheduleReconcile()
	}
}

// notifyWatchers notifies the components that depend on which pods actually answer.
func (c *Cluster) notifyWatchers(namespace string) {
	for _, watch := range c.watchers {
		watch(namespace)
	}
}

// checkWrite checks the result of a write. A write of a deleted object is unnecessary; every other rejection is a defect of the
// simulator.
func (c *Cluster) checkWrite(what string, err error) bool {
	if client.IgnoreNotFound(err) != nil {
		c.world.Violate("simulator", "the cluster could not write %s: %v", what, err)
	}
	return err == nil
}

// editable returns an object for a write based on a version. Its top level and metadata may be changed.
func editable(v *store.Version) *unstructured.Unstructured {
	content := shallow(v.Content())
	content["metadata"] = shallow(object(content, "metadata"))
	return &unstructured.Unstructured{Object: content}
}

// background is the context of all writes: they are never canceled.
func background() context.Context { return context.Background() }

// registry contains values by namespace and name, and in the order of their creation.
type registry[T any] struct {
	byKey   map[types.NamespacedName]T
	ordered []T
}

func (b *registry[T]) get(key types.NamespacedName, newValue func() T) T {
	if known, ok := b.byKey[key]; ok {
		return known
	}
	if b.byKey == nil {
		b.byKey = map[types.NamespacedName]T{}
	}
	one := newValue()
	b.byKey[key] = one
	b.ordered = append(b.ordered, one)
	return one
}

// stream returns the random stream of one object of the cluster.
func (c *Cluster) stream(kind string, key types.NamespacedName) *sim.Stream {
	return c.world.Draws.Stream(fmt.Sprintf("cluster/%s/%s", kind, key))
}
