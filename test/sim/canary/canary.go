// Package canary adds Canaries to the simulator: their stories, the users and services around them, the production controller,
// and the invariants that must hold.
//
// The oracle of an invariant must not be the code that it checks. It recomputes the permitted behavior from observations
// (writes, queries, answers, traffic), and never consults package internal/canary.
package canary

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

var canaryKind = schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.CanaryKind}

// drainDelay is how long the canary keeps its pods after its traffic was removed.
const drainDelay = 5 * time.Second

// Canaries is the kind of release in the simulator. Each run has its own instance.
type Canaries struct {
	actors.Frame[*Release]

	routers  traffic.Registry
	settings canary.Settings
	services *externalServices
	users    *users
	ledger   *ledger
	// processes include some that have crashed.
	processes map[*sim.Instance]*process
	// story replaces the drawn releases, if it is not nil.
	story *Story
}

// API is the API of Canaries in the simulator.
var API = actors.NewAPI(store.Serin, slices.Concat(
	hookFaults, actors.MetricFaults, []sim.FaultClass{Strangers, ManyPods, Neighbours, actors.GitOps}, actors.ActionClasses(actions), cluster.Classes(),
), Stories, func(s *Story) string { return s.Name }, func(story *Story) []sim.Kind {
	return []sim.Kind{&Canaries{story: story, processes: map[*sim.Instance]*process{}}}
})

// Populate implements sim.Kind.
func (k *Canaries) Populate(w *sim.World) {
	l := newLedger(w, drainDelay)
	k.ledger = l
	checks := oracle.New(w, l, Invariants, l.checkers())
	k.Frame = actors.NewFrame[*Release](w, k.story != nil)
	k.routers, k.settings = (&operator.Flags{}).Routers(), settingsOf(actors.NoRouter)
	k.services = &externalServices{Canaries: k, gates: map[string]*gate{}}
	k.users = &users{Canaries: k, Script: k.Script}
	k.Terms = actors.Terms[*Release]{
		Describe: func(r *Release) string { return fmt.Sprintf("%s with %s", r.Strategy, r.Provider) },
		Objects: func(r *Release) []client.Object {
			var all []client.Object
			for _, object := range r.objects {
				all = append(all, object)
			}
			return append(all, r.newCanary())
		},
		Route: func(r *Release) cluster.Route {
			return cluster.Route{Release: r.Key, Namespace: actors.Namespace, Provider: r.Provider, Apex: r.Apex, Primary: r.Apex + "-primary", Canary: r.Apex + "-canary"}
		},
		DescribeWrite: describeWrite, Repair: k.users.repair, Unsettled: k.unsettledCanaries, LongestRun: k.longestRun,
		ReportLeftovers: k.reportLeftovers, Finish: checks.Finish,
		FinalKinds: []schema.GroupKind{canaryKind}, Normalize: normalizeFinal, CompleteFinal: k.maskCookies,
	}
	k.Cluster = cluster.New(w, cluster.Options{PodBehaviour: k.PodBehaviour})
	k.Begin(k.users.observe)
	if k.story != nil {
		r := k.story.release()
		k.Create(r)
		actors.StartStory(k.Script, k.users, r, k.story.Acts, func() (status flaggerv1.CanaryStatus, exists bool) {
			c := k.storedCanary(r.Key)
			if c != nil {
				status = c.Status
			}
			return status, c != nil
		})
		return
	}
	k.DrawReleases([]string{"cart", "till", "desk"}, []int{1, 1, 1, 1, 1, 2, 2, 3}, drawRelease, k.drawExtensions)
	k.createConflictingObjects()
	for _, r := range k.Releases {
		k.users.createInSameSecond(r)
	}
	k.ScheduleShipping(actors.ShippingPlan{MaxVersions: 3, MinInterval: 2 * time.Minute, MaxInterval: 12 * time.Minute}, 0.6, 0.4, k.users.ship)
	actors.ScheduleActions(w, k.users, actions, func() []*Release { return k.Releases })
	for _, r := range k.Releases {
		k.ScheduleGitOps(r, []time.Duration{0, time.Minute, 3 * time.Minute, 8 * time.Minute}, k.writeCopies, (*Release).isCopied)
	}
}

// Release is one Canary of a run with its true properties, which no component of the run knows.
type Release struct {
	actors.Release

	Strategy canary.Strategy
	Target   string // the name of the workload
	Kind     schema.GroupKind
	Apex     string // the name of the Service that clients call
	// Spec is the spec with which the Canary is created. Users may change the stored one.
	Spec flaggerv1.CanarySpec

	// promoted is the version that the primary received last.
	promoted string
	replicas int
	// creations is how often the Canary was created.
	creations int
	// config is the name of the ConfigMap and the Secret that the target references; empty: none.
	config string
	// objects are the objects that users create before the Canary.
	objects []*unstructured.Unstructured
	// invalid is set while the spec is invalid, createdInvalid if it was created so. validSpec is the repaired spec.
	invalid, createdInvalid bool
	validSpec               flaggerv1.CanarySpec
	// awaited is an edit of the spec that users make at a moment of the next release; nil: none.
	awaited *awaitedEdit
	// unrepaired is set once faults have ended if users do not restore what the release requires until it was observed without it.
	unrepaired bool
}
