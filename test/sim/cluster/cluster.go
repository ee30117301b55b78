// Package cluster is the part of a Kubernetes cluster that acts on its own in the simulator: the controllers of
// Deployments, DaemonSets, autoscalers, endpoints and garbage, the pods that they make, and the gateways that send requests there.
//
// All of them see the API server only, late as the real ones do, and each draws from streams of its own. Pods are records
// of this package; one in trouble is also an object, because its reason can be read there. The package knows Deployments,
// pods, Services and routes. It must not know what a release is: no phases, steps, analyses, and nothing of Serin's code.
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

// The classes of faults that a cluster makes.
const (
	PodCrashes    sim.FaultClass = "pod-crash"      // a pod dies that was ready, and is started again
	SlowStarts    sim.FaultClass = "slow-start"     // a pod needs minutes to be ready
	NodeLosses    sim.FaultClass = "node-loss"      // all pods of a node are gone, and Kubernetes does not know it yet
	LateEndpoints sim.FaultClass = "late-endpoints" // endpoints are published seconds after the pods are ready
	LateGateways  sim.FaultClass = "late-gateway"   // a replica of a gateway follows seconds behind
	LoadChanges   sim.FaultClass = "load"           // the load that autoscalers follow changes
	NoRoom        sim.FaultClass = "no-room"        // no node has room for another pod: new ones stay pending until others go
)

// Classes are all of them, for sim.Options.
func Classes() []sim.FaultClass {
	return []sim.FaultClass{PodCrashes, SlowStarts, NodeLosses, LateEndpoints, LateGateways, LoadChanges}
}

// The longest delays of a cluster. What is late by a class of faults comes on top.
const (
	// Published is when a change of a pod is in the endpoints.
	Published = 2 * time.Second
	// Followed is when a gateway acts on what was written.
	Followed = 3 * time.Second
	// Late is what the classes of lateness add to each of the two.
	Late = 20 * time.Second
)

// Options of a cluster.
type Options struct {
	// Behaviour says how the pods of a template fare; nil: they are ready within seconds and stay so. It is asked once
	// for each ReplicaSet.
	Behaviour func(template map[string]any) Pods
	// Scaled are the kinds, beside Deployments, that autoscalers scale.
	Scaled []schema.GroupKind
	// Version names what a template runs; nil: its label version.
	Version func(template map[string]any) string
	// Work says what becomes of a Job; nil: it is done at once.
	Work func(job *store.Version) Work
}

// Pods is how the pods of one version fare.
type Pods struct {
	// Start draws how long a pod needs to be ready; nil: seconds.
	Start func() time.Duration
	// Never is true for pods that do not become ready: their image is not there.
	Never bool
	// Crash is when after becoming ready a pod dies; zero: it does not. It is started again, and stays, unless it Flaps.
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

// deploymentController is the name under which ReplicaSets are made and reported.
const deploymentController = "deployment-controller"

// Cluster is the controllers of one run.
type Cluster struct {
	world *sim.World
	o     Options

	deployments byKey[*deployment]
	daemonSets  byKey[*daemonSet]
	services    byKey[*service]
	scalers     byKey[*scaler]
	sets        []*replicaSet // in the order in which they were made
	pods        map[string]*pod
	died        map[types.NamespacedName]time.Time
	alive       map[types.UID]bool // objects
	watchers    []func(namespace string)

	made       int // pods
	pending    int // what is planned and will happen for sure
	losses     int
	loads      int
	collecting bool
	quiet      bool

	full  bool // no node has room, but for so many pods
	room  int
	queue []*pod // those that wait for room, the oldest first
	fills int

	workloads, endpoints, scaling client.Client
	garbage                       *sim.Stream
}

// New makes the controllers. It has to come before the objects that they act upon.
func New(w *sim.World, o Options) *Cluster {
	c := &Cluster{
		world: w, o: o, pods: map[string]*pod{}, died: map[types.NamespacedName]time.Time{}, alive: map[types.UID]bool{},
		workloads: w.Server.Client(deploymentController), endpoints: w.Server.Client("endpointslice-controller"),
		scaling: w.Server.Client("hpa"), garbage: w.Draws.Stream("cluster/garbage"),
	}
	w.Subscribe(c.see)
	c.loseNodes()
	c.fillUp()
	return c
}

// Quiesce ends spontaneous changes of pods and load. From here on everything that can become ready does, and remains so:
// pods that wait are started, and those that are lost are replaced.
func (c *Cluster) Quiesce() {
	c.quiet = true
	c.Empty()
	for _, set := range slices.Clone(c.sets) {
		for _, p := range slices.Clone(set.pods) {
			p.mend()
		}
	}
}

// Settled is true when nothing of the cluster is under way: what is written from then on is an answer to someone else.
func (c *Cluster) Settled() bool { return c.Unsettled() == "" }

// Unsettled says what is under way; empty when nothing is.
func (c *Cluster) Unsettled() string {
	switch {
	case c.pending > 0:
		return strconv.Itoa(c.pending) + " things of the cluster are planned"
	case c.collecting:
		return "garbage is being collected"
	}
	for _, d := range c.deployments.ordered {
		if d.due() {
			return "the deadline of Deployment " + d.key.Name + " runs"
		}
	}
	for _, set := range c.sets {
		for _, p := range set.pods {
			if !p.settled() {
				return "pod " + p.name + " is not ready yet, or ends"
			}
		}
	}
	return ""
}

// Ready counts the pods of a Deployment that are ready.
func (c *Cluster) Ready(namespace, name string) int32 {
	return c.count(namespace, name, func(p *pod) bool { return p.ready })
}

// Replicas counts the pods of a Deployment, without those that are terminating.
func (c *Cluster) Replicas(namespace, name string) int32 {
	return c.count(namespace, name, func(*pod) bool { return true })
}

func (c *Cluster) count(namespace, name string, counts func(*pod) bool) int32 {
	v := c.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: name})
	if v == nil {
		return 0
	}
	var n int32
	for _, set := range c.setsOf(v.UID()) {
		for _, p := range set.pods {
			if !p.leaving && counts(p) {
				n++
			}
		}
	}
	return n
}

// Version is what the template of a Deployment runs; empty when there is none.
func (c *Cluster) Version(namespace, name string) string {
	v := c.world.Server.Peek(deploymentKind, types.NamespacedName{Namespace: namespace, Name: name})
	if v == nil {
		return ""
	}
	return c.versionOf(object(v.Content(), "spec", "template"))
}

func (c *Cluster) versionOf(template map[string]any) string {
	if c.o.Version != nil {
		return c.o.Version(template)
	}
	return text(object(template, "metadata", "labels"), "version")
}

// ReadyEndpoints counts, by version, the ready pods that a Service selects.
func (c *Cluster) ReadyEndpoints(namespace, service string) map[string]int {
	return c.selected(namespace, service, func(p *pod) bool { return p.ready && p.answers && !p.leaving })
}

// Answering counts, by version, the pods that a Service selects and that answer, including those that are terminating and
// have not yet.
func (c *Cluster) Answering(namespace, service string) map[string]int {
	return c.selected(namespace, service, func(p *pod) bool { return p.answers })
}

func (c *Cluster) selected(namespace, service string, counts func(*pod) bool) map[string]int {
	found := map[string]int{}
	for p := range c.behind(namespace, c.selectorOf(namespace, service)) {
		if counts(p) {
			found[p.set.version]++
		}
	}
	return found
}

// LastPodDeath is when a pod of that Deployment last failed; zero: never.
func (c *Cluster) LastPodDeath(namespace, name string) time.Time {
	return c.died[types.NamespacedName{Namespace: namespace, Name: name}]
}

// plan lets something happen that is under way until then.
func (c *Cluster) plan(d time.Duration, run func()) {
	c.pending++
	c.world.After(d, func() {
		c.pending--
		run()
	})
}

// see follows the API server.
func (c *Cluster) see(event any) {
	wrote, ok := event.(sim.ObjectWritten)
	if !ok {
		return
	}
	e := wrote.Event
	switch e.Kind {
	case deploymentKind:
		c.deploymentWritten(e)
	case daemonSetKind:
		c.daemonSetWritten(e)
	case replicaSetKind:
		c.setWritten(e)
	case podKind:
		c.podWritten(e)
	case serviceKind:
		c.serviceWritten(e)
	case scalerKind:
		c.scalerWritten(e)
	case jobKind:
		c.jobWritten(e)
	default:
		if slices.Contains(c.o.Scaled, e.Kind) && e.Type != store.Deleted {
			c.scaleTargetWritten(e)
		}
	}
	c.collectAfter(e)
}

// podsChanged notifies all that follow the pods of a ReplicaSet.
func (c *Cluster) podsChanged(set *replicaSet) {
	c.wakeOwner(set)
	set.wake()
	c.publishFor(set, (*service).wake)
	c.lookedAt(set.namespace)
}

// wakeOwner lets the controller look that made the pods of a ReplicaSet, or of a revision of a DaemonSet.
func (c *Cluster) wakeOwner(set *replicaSet) {
	if d := c.ownerOf(set); d != nil {
		d.wake()
	}
	d := c.daemonSets.found[types.NamespacedName{Namespace: set.namespace, Name: set.deployment}]
	if d != nil && d.uid == set.owner {
		d.wake()
	}
}

// lookedAt lets those look who follow which pods answer in truth.
func (c *Cluster) lookedAt(namespace string) {
	for _, watch := range c.watchers {
		watch(namespace)
	}
}

// wrote is told how a write of ours ended. What is gone by now needs no write; everything else that is refused is a
// mistake of the simulation.
func (c *Cluster) wrote(what string, err error) bool {
	if client.IgnoreNotFound(err) != nil {
		c.world.Violate("simulator", "the cluster could not write %s: %v", what, err)
	}
	return err == nil
}

// written is an object for a write on the basis of a version: its top level and metadata may be changed.
func written(v *store.Version) *unstructured.Unstructured {
	content := shallow(v.Content())
	content["metadata"] = shallow(object(content, "metadata"))
	return &unstructured.Unstructured{Object: content}
}

// background is the context of all writes: they are never canceled.
func background() context.Context { return context.Background() }

// byKey are things by namespace and name, which can be gone through in the order in which they came.
type byKey[T any] struct {
	found   map[types.NamespacedName]T
	ordered []T
}

func (b *byKey[T]) get(key types.NamespacedName, made func() T) T {
	if known, ok := b.found[key]; ok {
		return known
	}
	if b.found == nil {
		b.found = map[types.NamespacedName]T{}
	}
	one := made()
	b.found[key] = one
	b.ordered = append(b.ordered, one)
	return one
}

// stream is the stream of one thing of the cluster.
func (c *Cluster) stream(kind string, key types.NamespacedName) *sim.Stream {
	return c.world.Draws.Stream(fmt.Sprintf("cluster/%s/%s", kind, key))
}
