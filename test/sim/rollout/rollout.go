// Package rollout plugs Rollouts into the simulator: their stories, the users and services around them, the real
// controllers of Rollouts, AnalysisRuns and Experiments, and what must hold.
//
// The oracle of an invariant must not be the code that it checks: what may hold is recounted here from what was seen from
// outside (writes, measurements, traffic), never asked of package internal/rollout.
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

// networkKinds are those of all objects of users that lead requests to pods.
var networkKinds = []schema.GroupKind{actors.ServiceKind, actors.VirtualServiceKind, actors.DestinationRuleKind, actors.HTTPRouteKind}

// routeKinds are the kinds of the objects that have the weights.
var routeKinds = []schema.GroupKind{actors.VirtualServiceKind, actors.HTTPRouteKind}

// namespace of everything that users make.

// Rollouts is the kind of release in the simulator. One is made for one run; its three parts are three controllers.
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
	lives      map[*sim.Instance]*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
	// over is true once users and tools have stopped acting.
	over bool
}

// New makes the drawn releases of one run.
func New() []sim.Kind { return (&Rollouts{}).parts() }

// FixedStories are the scripted releases that a run can execute.
func FixedStories() []actors.Story {
	var fixed []actors.Story
	for _, story := range Stories() {
		fixed = append(fixed, actors.Story{Name: story.Name, New: func() []sim.Kind { return (&Rollouts{story: &story}).parts() }})
	}
	return fixed
}

// parts are the kinds of objects of which each has a controller of its own.
func (k *Rollouts) parts() []sim.Kind {
	k.lives = map[*sim.Instance]*process{}
	return []sim.Kind{k, &part{Rollouts: k, controller: (*process).runs}, &part{Rollouts: k, controller: (*process).experiments}}
}

// Populate implements sim.Kind.
func (k *Rollouts) Populate(w *sim.World) {
	k.world, k.user = w, w.Server.Client("user")
	k.routers = (&operator.Flags{}).Routers()
	k.userClient, k.services = actors.UserClient{World: w}, newExternalServices(k)
	k.users = &users{Rollouts: k, Script: actors.NewScript(w)}
	k.cluster = cluster.New(w, cluster.Options{Behaviour: k.behaviour, Work: k.work, Scaled: []schema.GroupKind{rolloutKind}})
	l := newLedger(w, k.cluster)
	k.oracle = oracle.New(w, l, l.invariants())
	k.gateway = cluster.NewGateway(w, k.cluster, k.routes)
	actors.TraceWrites(w, k.content)
	w.Subscribe(k.users.observe)
	if k.story != nil {
		r := k.story.release()
		k.begin(r)
		actors.StartStory(k.users.Script, k.users, r, k.story.Acts, func() (status argov1.RolloutStatus, exists bool) {
			stored := k.stored(r.Key)
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
		if r := drawRelease(w.Draws.Stream("release/"+name), name); w.Faults.TakesPlace(fmt.Sprintf("release#%d", i+1)) {
			k.extend(r)
			k.begin(r)
		}
	}
	k.users.schedule()
	k.tools()
}

// behaviour says how the pods of a template run.
func (k *Rollouts) behaviour(template map[string]any) cluster.Pods {
	containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	for _, container := range actors.Items(containers) {
		image, _ := container["image"].(string)
		if _, v := k.running(image); v != nil {
			return v.Pods
		}
	}
	return actors.Healthy
}

// running is the version that an image is of; nil: of none.
func (k *Rollouts) running(image string) (*Release, *actors.Version) {
	for _, r := range k.releases {
		if name, of := strings.CutPrefix(image, r.image("")); of {
			return r, r.Known[name]
		}
	}
	return nil, nil
}

// begin lets users make everything that a release consists of.
func (k *Rollouts) begin(r *Release) {
	k.releases = append(k.releases, r)
	k.world.Trace("%s: %s, %s", r.Key.Name, r.plan(), r.Current())
	for _, object := range r.all() {
		k.userClient.Create(object)
	}
	k.userClient.Create(r.rollout())
}

// routes are the releases as clients see them.
func (k *Rollouts) routes() []cluster.Route {
	routes := make([]cluster.Route, 0, len(k.releases))
	for _, r := range k.releases {
		route := cluster.Route{Release: r.Key, Namespace: actors.Namespace, Provider: r.Router, Apex: r.apex(), Primary: r.apex() + "-stable", Canary: r.apex() + "-canary"}
		if turns := r.pingPong(); turns != nil {
			route.Primary, route.Canary = turns.PongService, turns.PingService
		}
		if r.Spec.Strategy.BlueGreen != nil {
			route.Primary, route.Canary = "", r.apex()+"-preview"
		}
		routes = append(routes, route)
	}
	return routes
}

// stored is a Rollout as the API server has it; nil when there is none. It must not be changed.
func (k *Rollouts) stored(key types.NamespacedName) *argov1.Rollout {
	return actors.Typed[*argov1.Rollout](k.world, k.world.Server.Peek(rolloutKind, key))
}

// versionOf is the version whose pods have that hash, also those of an Experiment; nil: none has.
func (k *Rollouts) versionOf(hash string) (*Release, *actors.Version) {
	for _, v := range k.world.Server.All(actors.ReplicaSetKind) {
		if set := actors.Typed[*appsv1.ReplicaSet](k.world, v); set != nil && hash != "" && set.Labels[argov1.PodTemplateHashLabel] == hash {
			return k.running(set.Spec.Template.Spec.Containers[0].Image)
		}
	}
	return nil, nil
}

// owner is the controller of an object, as kind and name; empty: it has none.
func owner(meta metav1.Object) (kind, name string) {
	if of := metav1.GetControllerOfNoCopy(meta); of != nil {
		return of.Kind, of.Name
	}
	return "", ""
}
