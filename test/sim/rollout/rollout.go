// Package rollout adds Rollouts to the simulator: their stories, the users and services around them, the production controllers
// of Rollouts, AnalysisRuns and Experiments, and the invariants that must hold.
//
// The oracle of an invariant must not be the code that it checks. It recomputes the permitted behavior from observations
// (writes, measurements, traffic), and never consults package internal/rollout.
package rollout

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
)

var (
	rolloutKind         = argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind).GroupKind()
	runKind             = argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind).GroupKind()
	experimentKind      = argov1.SchemeGroupVersion.WithKind(argov1.ExperimentKind).GroupKind()
	templateKind        = argov1.SchemeGroupVersion.WithKind(argov1.AnalysisTemplateKind).GroupKind()
	clusterTemplateKind = argov1.SchemeGroupVersion.WithKind(argov1.ClusterAnalysisTemplateKind).GroupKind()
)

// networkKinds are the kinds of users' objects that route requests to pods.
var networkKinds = []schema.GroupKind{actors.ServiceKind, actors.VirtualServiceKind, actors.DestinationRuleKind, actors.HTTPRouteKind}

// routeKinds are the kinds of the objects that contain weights.
var routeKinds = []schema.GroupKind{actors.VirtualServiceKind, actors.HTTPRouteKind}

// Rollouts is the kind of release in the simulator. Each run has its own instance, with three controllers.
type Rollouts struct {
	world      *sim.World
	cluster    *cluster.Cluster
	gateway    *cluster.Gateway
	routers    traffic.Registry
	releases   []*Release
	services   *externalServices
	user       client.Client
	userClient actors.UserClient
	users      *users
	oracle     *oracle.Oracle
	processes  map[*sim.Instance]*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
	// stopped is set once users and tools have stopped acting.
	stopped bool
}

// New returns the drawn releases of one run.
func New() []sim.Kind { return (&Rollouts{}).kinds() }

// FixedStories returns the scripted releases that a run can execute.
func FixedStories() []actors.Story {
	var fixed []actors.Story
	for _, story := range Stories() {
		fixed = append(fixed, actors.Story{Name: story.Name, New: func() []sim.Kind { return (&Rollouts{story: &story}).kinds() }})
	}
	return fixed
}

// kinds returns one kind for each controller.
func (k *Rollouts) kinds() []sim.Kind {
	k.processes = map[*sim.Instance]*process{}
	return []sim.Kind{k, &controllerKind{Rollouts: k, controller: (*process).analysisRunController}, &controllerKind{Rollouts: k, controller: (*process).experimentController}}
}

// Populate implements sim.Kind.
func (k *Rollouts) Populate(w *sim.World) {
	k.world, k.user = w, w.Server.Client("user")
	k.routers = (&operator.Flags{}).Routers()
	k.userClient, k.services = actors.UserClient{World: w}, newExternalServices(k)
	k.users = &users{Rollouts: k, Script: actors.NewScript(w)}
	k.cluster = cluster.New(w, cluster.Options{PodBehaviour: k.podBehaviour, JobOutcome: k.jobOutcome, Scaled: []schema.GroupKind{rolloutKind}})
	l := newLedger(w, k.cluster)
	k.oracle = oracle.New(w, l, l.invariants())
	k.gateway = cluster.NewGateway(w, k.cluster, k.routes)
	actors.TraceWrites(w, k.describeWrite)
	w.Subscribe(k.users.observe)
	if k.story != nil {
		r := k.story.release()
		k.createRelease(r)
		actors.StartStory(k.users.Script, k.users, r, k.story.Acts, func() (status argov1.RolloutStatus, exists bool) {
			stored := k.storedRollout(r.Key)
			if stored != nil {
				status = stored.Status
			}
			return status, stored != nil
		})
		return
	}
	s := w.Draws.Stream("releases")
	n := sim.Pick(s, 1, 1, 1, 1, 1, 2, 2)
	for i, name := range []string{"cart", "till"}[:n] {
		if r := drawRelease(w.Draws.Stream("release/"+name), name); w.Faults.Admit(fmt.Sprintf("release#%d", i+1)) {
			k.addOptionalFeatures(r)
			k.createRelease(r)
		}
	}
	k.users.schedule()
	k.scheduleTools()
}

// podBehaviour returns how the pods of a template behave.
func (k *Rollouts) podBehaviour(template map[string]any) cluster.PodBehaviour {
	containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	for _, container := range actors.Items(containers) {
		image, _ := container["image"].(string)
		if _, v := k.versionOfImage(image); v != nil {
			return v.Pods
		}
	}
	return actors.Healthy
}

// versionOfImage returns the version of an image, or nil.
func (k *Rollouts) versionOfImage(image string) (*Release, *actors.Version) {
	for _, r := range k.releases {
		if name, found := strings.CutPrefix(image, r.image("")); found {
			return r, r.Known[name]
		}
	}
	return nil, nil
}

// createRelease creates all objects of a release as a user.
func (k *Rollouts) createRelease(r *Release) {
	k.releases = append(k.releases, r)
	k.world.Trace("%s: %s, %s", r.Key.Name, r.describePlan(), r.Current())
	for _, object := range r.userObjects() {
		k.userClient.Create(object)
	}
	k.userClient.Create(r.newRollout())
}

// routes returns the releases as seen by clients.
func (k *Rollouts) routes() []cluster.Route {
	routes := make([]cluster.Route, 0, len(k.releases))
	for _, r := range k.releases {
		route := cluster.Route{Release: r.Key, Namespace: actors.Namespace, Provider: r.Router, Apex: r.apex(), Primary: r.apex() + "-stable", Canary: r.apex() + "-canary"}
		if services := r.pingPong(); services != nil {
			route.Primary, route.Canary = services.PongService, services.PingService
		}
		if r.Spec.Strategy.BlueGreen != nil {
			route.Primary, route.Canary = "", r.apex()+"-preview"
		}
		routes = append(routes, route)
	}
	return routes
}

// storedRollout returns a Rollout as stored by the API server, or nil. It must not be modified.
func (k *Rollouts) storedRollout(key types.NamespacedName) *argov1.Rollout {
	return actors.Typed[*argov1.Rollout](k.world, k.world.Server.Peek(rolloutKind, key))
}

// versionOf returns the version whose pods have a hash, including pods of an Experiment, or nil.
func (k *Rollouts) versionOf(hash string) (*Release, *actors.Version) {
	for _, v := range k.world.Server.All(actors.ReplicaSetKind) {
		if set := actors.Typed[*appsv1.ReplicaSet](k.world, v); set != nil && hash != "" && set.Labels[argov1.PodTemplateHashLabel] == hash {
			return k.versionOfImage(set.Spec.Template.Spec.Containers[0].Image)
		}
	}
	return nil, nil
}

// controllerOf returns the controller of an object, as kind and name, or empty strings.
func controllerOf(meta metav1.Object) (kind, name string) {
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		return owner.Kind, owner.Name
	}
	return "", ""
}
