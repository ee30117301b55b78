// Package rollout adds Rollouts to the simulator: their stories, the users and services around them, the production controllers
// of Rollouts, AnalysisRuns and Experiments, and the invariants that must hold.
//
// The oracle of an invariant must not be the code that it checks. It recomputes the permitted behavior from observations
// (writes, measurements, traffic), and never consults package internal/rollout.
package rollout

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
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
	"github.com/serin-dev/serin/test/sim/store"
)

var (
	rolloutKind         = argov1.SchemeGroupVersion.WithKind(argov1.RolloutKind).GroupKind()
	runKind             = argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind).GroupKind()
	experimentKind      = argov1.SchemeGroupVersion.WithKind(argov1.ExperimentKind).GroupKind()
	templateKind        = argov1.SchemeGroupVersion.WithKind(argov1.AnalysisTemplateKind).GroupKind()
	clusterTemplateKind = argov1.SchemeGroupVersion.WithKind(argov1.ClusterAnalysisTemplateKind).GroupKind()
)

// networkKinds are the kinds of users' objects that route requests to pods.
var networkKinds = slices.Concat([]schema.GroupKind{actors.ServiceKind}, cluster.WeightKinds, cluster.SubsetKinds)

// Rollouts is the kind of release in the simulator. Each run has its own instance, with three controllers.
type Rollouts struct {
	actors.Frame[*Release]

	routers   traffic.Registry
	services  *externalServices
	users     *users
	processes map[*sim.Instance]*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
}

// API is the API of Rollouts in the simulator.
var API = actors.NewAPI(store.Argo, slices.Concat(
	actors.MetricFaults, jobFaults, []sim.FaultClass{actors.GitOps, Scaler, UnreadableTemplates}, actors.ActionClasses(actions), cluster.Classes(), []sim.FaultClass{cluster.NoRoom},
), Stories, func(s *Story) string { return s.Name }, func(story *Story) []sim.Kind {
	k := &Rollouts{story: story, processes: map[*sim.Instance]*process{}}
	return []sim.Kind{
		k, actors.FurtherController(func(i *sim.Instance) sim.Controller { return k.process(i).analysisRunController() }),
		actors.FurtherController(func(i *sim.Instance) sim.Controller { return k.process(i).experimentController() }),
	}
})

// Populate implements sim.Kind.
func (k *Rollouts) Populate(w *sim.World) {
	k.Frame = actors.NewFrame[*Release](w, k.story != nil)
	k.routers = (&operator.Flags{}).Routers()
	k.services = &externalServices{Rollouts: k}
	k.users = &users{Rollouts: k, Script: k.Script}
	k.Cluster = cluster.New(w, cluster.Options{PodBehaviour: k.PodBehaviour, JobOutcome: k.jobOutcome, Scaled: []schema.GroupKind{rolloutKind}})
	l := newLedger(w, k.Cluster)
	checks := oracle.New(w, l, Invariants, l.checkers())
	k.Terms = actors.Terms[*Release]{
		Describe: (*Release).describePlan,
		Objects:  func(r *Release) []client.Object { return append(r.userObjects(), r.newRollout()) },
		Route:    (*Release).clientRoute, DescribeWrite: k.describeWrite,
		Repair: k.users.repair, Unsettled: k.unsettledObjects, LongestRun: k.longestRun, ReportLeftovers: k.reportLeftovers, Finish: checks.Finish,
		FinalKinds: []schema.GroupKind{rolloutKind, actors.ReplicaSetKind, runKind, experimentKind}, Normalize: k.normalizeFinal, CompleteFinal: k.addRunningJobs,
	}
	k.Begin(k.users.observe)
	if k.story != nil {
		r := k.story.release()
		k.Create(r)
		actors.StartStory(k.Script, k.users, r, k.story.Acts, func() (status argov1.RolloutStatus, exists bool) {
			stored := k.storedRollout(r.Key)
			if stored != nil {
				status = stored.Status
			}
			return status, stored != nil
		})
		return
	}
	k.DrawReleases([]string{"cart", "till"}, []int{1, 1, 1, 1, 1, 2, 2}, drawRelease, func(r *Release, _ int) { k.addOptionalFeatures(r) })
	k.ScheduleShipping(actors.ShippingPlan{MaxVersions: 4, MinInterval: time.Minute, MaxInterval: 10 * time.Minute}, 0.65, 0, k.users.ship)
	k.users.scheduleConflicts()
	k.scheduleUnreadableTemplates()
	actors.ScheduleActions(w, k.users, actions, func() []*Release { return k.Releases })
	for _, r := range k.Releases {
		k.drawAutoscaler(r)
		k.ScheduleGitOps(r, []time.Duration{30 * time.Second, time.Minute, 3 * time.Minute, 8 * time.Minute}, k.writeCopies, nil)
	}
}

// clientRoute returns a release as seen by clients.
func (r *Release) clientRoute() cluster.Route {
	route := cluster.Route{Release: r.Key, Namespace: actors.Namespace, Provider: r.Provider, Apex: r.apex(), Primary: r.apex() + "-stable", Canary: r.apex() + "-canary"}
	if services := r.pingPong(); services != nil {
		route.Primary, route.Canary = services.PongService, services.PingService
	}
	if r.Spec.Strategy.BlueGreen != nil {
		route.Primary, route.Canary = "", r.apex()+"-preview"
	}
	return route
}

// storedRollout returns a Rollout as stored by the API server, or nil. It must not be modified.
func (k *Rollouts) storedRollout(key types.NamespacedName) *argov1.Rollout {
	return actors.Typed[*argov1.Rollout](k.World, k.World.Server.Peek(rolloutKind, key))
}

// versionOf returns the version whose pods have a hash, including pods of an Experiment, or nil.
func (k *Rollouts) versionOf(hash string) (*Release, *actors.Version) {
	for _, v := range k.World.Server.All(actors.ReplicaSetKind) {
		if set := actors.Typed[*appsv1.ReplicaSet](k.World, v); set != nil && hash != "" && set.Labels[argov1.PodTemplateHashLabel] == hash {
			return k.VersionOfImage(set.Spec.Template.Spec.Containers[0].Image)
		}
	}
	return nil, nil
}
