package actors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// Release is what the users of a release know of it. The releases of the APIs embed it.
type Release struct {
	Versions

	Key types.NamespacedName
	// Provider is the traffic provider.
	Provider string
}

// NewRelease returns a release whose first version is good.
func NewRelease(name, provider string) Release {
	return Release{Versions: NewVersions(), Key: types.NamespacedName{Namespace: Namespace, Name: name}, Provider: provider}
}

// Image returns the image of a version.
func (r *Release) Image(version string) string {
	return "registry.example/" + r.Key.Name + ":" + version
}

// Common returns what releases of all APIs have in common.
func (r *Release) Common() *Release { return r }

// AnyRelease is a release of any API.
type AnyRelease interface{ Common() *Release }

// Terms express in the terms of one API what the kinds of releases of all APIs do. R is a release of the API.
type Terms[R AnyRelease] struct {
	// Describe describes a release for the trace. Objects returns the objects that users create for it, in order. Route returns
	// the release as seen by clients.
	Describe func(R) string
	Objects  func(R) []client.Object
	Route    func(R) cluster.Route
	// DescribeWrite describes the content of a write for the trace.
	DescribeWrite func(*store.Event) string

	// Repair is what users do once faults have ended.
	Repair func()
	// Unsettled describes the objects that have neither ended nor wait for a user who will not act.
	Unsettled func() []string
	// LongestRun returns the maximum duration of one run of a release.
	LongestRun func() time.Duration
	// ReportLeftovers reports the state that a process retains of objects that are gone.
	ReportLeftovers func(*sim.Instance)
	// Finish checks the final state against the invariants.
	Finish func()
	// FinalKinds are the kinds of the API whose objects belong to the final state. Normalize returns an object of the final
	// state without parts that depend on time, and CompleteFinal the final state with further lines, or with such parts masked.
	FinalKinds    []schema.GroupKind
	Normalize     func(schema.GroupKind, *store.Version) map[string]any
	CompleteFinal func(final string) string
}

// Frame is the part of a kind of release that is the same for every API: it creates the releases, and implements sim.Kind except
// for Populate and Controller. The kinds of the APIs embed it.
type Frame[R AnyRelease] struct {
	Terms[R]

	World      *sim.World
	Cluster    *cluster.Cluster
	Gateway    *cluster.Gateway
	Releases   []R
	User       client.Client
	UserClient UserClient
	Script     *Script
	Services   *Services
	// Scripted means that a story replaces the drawn releases and actions.
	Scripted bool
	// Stopped is set once users and tools have stopped acting.
	Stopped bool
}

// NewFrame returns the frame of a run, which has no cluster yet.
func NewFrame[R AnyRelease](w *sim.World, scripted bool) Frame[R] {
	return Frame[R]{
		World: w, User: w.Server.Client("user"), UserClient: UserClient{World: w}, Script: NewScript(w), Services: NewServices(w), Scripted: scripted,
	}
}

// Begin adds the gateway and the trace to the world, and lets users observe its events.
func (f *Frame[R]) Begin(observe func(event any)) {
	f.Gateway = cluster.NewGateway(f.World, f.Cluster, f.routes)
	if f.Scripted {
		f.Gateway.EnableReports()
	}
	TraceWrites(f.World, f.DescribeWrite)
	f.World.Subscribe(observe)
}

// routes returns the releases as seen by clients.
func (f *Frame[R]) routes() []cluster.Route {
	routes := make([]cluster.Route, 0, len(f.Releases))
	for _, r := range f.Releases {
		routes = append(routes, f.Route(r))
	}
	return routes
}

// PodBehaviour returns how the pods of a template behave.
func (f *Frame[R]) PodBehaviour(template map[string]any) cluster.PodBehaviour {
	containers, _, _ := unstructured.NestedFieldNoCopy(template, "spec", "containers")
	for _, container := range Items(containers) {
		image, _ := container["image"].(string)
		if _, v := f.VersionOfImage(image); v != nil {
			return v.Pods
		}
	}
	return Healthy
}

// VersionOfImage returns the version of an image and its release, or nil.
func (f *Frame[R]) VersionOfImage(image string) (R, *Version) {
	for _, r := range f.Releases {
		if name, found := strings.CutPrefix(image, r.Common().Image("")); found {
			return r, r.Common().Known[name]
		}
	}
	var none R
	return none, nil
}

// DrawReleases draws the releases of a run and creates them. A run has one of the given numbers of releases, with the first of
// the names. extend adds to a release what only some releases have.
func (f *Frame[R]) DrawReleases(names []string, numbers []int, draw func(*sim.Stream, string) R, extend func(r R, i int)) {
	n := sim.Pick(f.World.Draws.Stream("releases"), numbers...)
	for i, name := range names[:n] {
		if r := draw(f.World.Draws.Stream("release/"+name), name); f.World.Faults.Admit(fmt.Sprintf("release#%d", i+1)) {
			extend(r, i)
			f.Create(r)
		}
	}
}

// Create creates all objects of a release as a user.
func (f *Frame[R]) Create(r R) {
	f.Releases = append(f.Releases, r)
	f.World.Trace("%s: %s, %s", r.Common().Key.Name, f.Describe(r), r.Common().Current())
	for _, object := range f.Objects(r) {
		f.UserClient.Create(object)
	}
}

// ScheduleShipping schedules the versions that users ship. A version is good, and webhooks test it, with the given
// probabilities; see DrawVersion.
func (f *Frame[R]) ScheduleShipping(plan ShippingPlan, good, tested float64, ship func(R, *Version)) {
	for _, r := range f.Releases {
		known := r.Common()
		plan.World, plan.Name = f.World, known.Key.Name
		plan.Draw = func(s *sim.Stream) func() {
			v := DrawVersion(s, good, tested)
			return func() { ship(r, known.Add(v)) }
		}
		plan.Stopped = func() bool { return f.Stopped }
		plan.Schedule()
	}
}

// Quiesce implements sim.Kind.
func (f *Frame[R]) Quiesce(*sim.World) {
	f.Stopped = true
	f.Cluster.Quiesce()
	if !f.Scripted {
		f.Gateway.Report()
		f.Repair()
	}
}

// Settled implements sim.Kind.
func (f *Frame[R]) Settled(*sim.World) bool { return f.activity() == "" && len(f.Unsettled()) == 0 }

// UnsettledReason implements sim.Kind.
func (f *Frame[R]) UnsettledReason(*sim.World) string {
	why := f.Unsettled()
	if busy := f.activity(); busy != "" {
		why = slices.Insert(why, 0, busy)
	}
	return strings.Join(why, "; ")
}

// activity describes an activity that has not ended, or returns "" if there is none.
func (f *Frame[R]) activity() string {
	switch {
	case f.Script.Active():
		return "users have not finished"
	case f.Services.Pending.Any(f.World):
		return "a query has no answer yet"
	case !f.Cluster.Settled():
		return "the cluster has not settled: " + f.Cluster.UnsettledReason()
	case !f.World.IsQuiet():
		return "Serin is busy"
	default:
		return ""
	}
}

// SettleTimeout implements sim.Kind. It allows for the rest of one run, another run for changes made in the meantime, and one
// that users start to repair a release.
func (f *Frame[R]) SettleTimeout(*sim.World) time.Duration { return 3*f.LongestRun() + LongestBackoff }

// CheckEnd implements sim.Kind.
func (f *Frame[R]) CheckEnd(w *sim.World) {
	for _, i := range w.Instances() {
		if i.Alive() {
			f.ReportLeftovers(i)
		}
	}
	f.Finish()
}

// FinalState implements sim.Kind: it returns all objects without identities, versions and timestamps.
func (f *Frame[R]) FinalState(w *sim.World) string {
	return f.CompleteFinal(FinalState(w, slices.Concat(f.FinalKinds, commonKinds), f.Normalize))
}
