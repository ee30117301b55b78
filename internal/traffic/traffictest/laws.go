// Package traffictest is the test suite that every provider of traffic must pass: the laws of the contract (Run), golden
// files of rendered objects (Golden), and recorded routes of Flagger (Recorded).
//
// It must not know any provider: the differences between them are options.
package traffictest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Options are the specifics of a provider.
type Options struct {
	// Provider is the name under which the renderer is registered.
	Provider string
	// Canary changes a drawn Canary into one that the provider accepts; nil leaves it unchanged.
	Canary func(*rapid.T, *flaggerv1.Canary)
	// Rollout configures the router and its objects in trafficRouting, which has only managedRoutes. With it, the renderer
	// is tested with Rollouts; without it, with Canaries.
	Rollout func(*rapid.T, *argov1.Rollout)
	// PodAnnotations are those of the revisions 6d4f and 77c9 of a Rollout, by hash.
	PodAnnotations map[string]map[string]string
	// Route changes a drawn route into one that the provider accepts; nil leaves it unchanged.
	Route func(*rapid.T, *release.Route)
	// Neighbor returns another Rollout whose route is in the same objects, which Given creates with the destinations of both; nil if
	// Rollouts cannot share objects.
	Neighbor func(traffic.Target) traffic.Target
	// Given creates what the user must create before a release, with all requests on the stable side; nil if that is nothing.
	Given func(traffic.Target) []*unstructured.Unstructured
	// Admission simulates an API server with the definitions of the provider; nil if it has no objects.
	Admission *Admission
	// ExactOnly is true for a router that does not support patterns of headers.
	ExactOnly bool
	// Copies is true if the spec of created objects is a copy of the user's, in which other tools cannot set fields.
	Copies bool
	// Remains returns the texts with which objects name an object of one side that remains after its Canary; nil: none does.
	Remains func(traffic.Target) []string
	// Exempt are values that the release writes as a whole, as kind and path: VirtualService spec.hosts.
	Exempt []string
}

// Run tests a renderer against the contract. Features that it does not declare are not skipped: it must refuse them.
func Run(t *testing.T, rd traffic.Renderer, o Options) {
	for _, law := range laws {
		t.Run(law.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { law.verify(rt, newFixture(rt, rd, o)) })
		})
	}
}

var laws = []struct {
	name   string
	verify func(*rapid.T, *fixture)
}{
	{"a rendered route reads back", readsBack},
	{"managed routes read back by their names", managedRoutesReadBack},
	{"an absent route is not found", absentIsNotFound},
	{"the definitions of the provider admit rendered objects", isAdmitted},
	{"rendering twice changes nothing", renderingTwice},
	{"the previous route has no influence", leavesNoTrace},
	{"the input is not modified", inputUnmodified},
	{"the user's objects are never created or deleted, and those that are only read are unchanged", usersObjectsRemain},
	{"an absent object of the user is refused, and found by validation", absentUsersObjectRefused},
	{"unknown fields survive at every depth", unknownFieldsSurvive},
	{"a copy follows the user's object at every depth", copyFollows},
	{"no content of existing objects causes a panic", garbageDoesNotPanic},
	{"an object with another owner is refused", otherOwnerRefused},
	{"restore returns the user's objects, and leaves created ones", restoreReturnsOriginals},
	{"restoring twice changes nothing", restoringTwice},
	{"a route that was handed over remains, without the two sides", handedOverRemains},
	{"two Rollouts that share objects do not undo each other's changes", neighborsSettle},
	{"features that are not declared are refused", undeclaredRefused},
	{"weights above the total are refused", invalidWeightsRefused},
}

func readsBack(t *rapid.T, f *fixture) {
	route := f.route(t, "route")
	seen, err := f.Read(f.target, f.find(route, f.apply(t, route, f.given(t))))
	if err != nil || !seen.Found {
		t.Fatalf("read back %s: found %v, error %v", route, seen.Found, err)
	}
	if !f.Features(f.target).Weights {
		return
	}
	want := release.Route{Canary: route.Canary, Mirror: route.Mirror}
	for _, d := range route.Others {
		want.Others = append(want.Others, release.Destination{Service: d.Service, Weight: d.Weight})
	}
	anyOrder := cmpopts.SortSlices(func(a, b release.Destination) bool { return a.Service < b.Service })
	if diff := cmp.Diff(want, seen.Route, anyOrder); diff != "" {
		t.Fatalf("read back %s (-want +got):\n%s", route, diff)
	}
	if matched := len(route.Matches) > 0; route.Canary > 0 && seen.Matched != matched {
		t.Fatalf("read back %s: matched %v, want %v", route, seen.Matched, matched)
	}
}

func managedRoutesReadBack(t *rapid.T, f *fixture) {
	route := f.route(t, "route")
	seen, err := f.Read(f.target, f.find(route, f.apply(t, route, f.apply(t, f.route(t, "before"), f.given(t)))))
	if err != nil {
		t.Fatalf("read back %s: %v", route, err)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for _, header := range route.HeaderRoutes {
		want[header.Name] = len(header.Match) > 0
	}
	for _, mirror := range route.MirrorRoutes {
		want[mirror.Name] = len(mirror.Match) > 0
	}
	maps.DeleteFunc(want, func(_ string, active bool) bool { return !active })
	for _, name := range seen.ManagedRoutes {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("managed routes of %v, %v (-want +got):\n%s", route.HeaderRoutes, route.MirrorRoutes, diff)
	}
}

func absentIsNotFound(t *rapid.T, f *fixture) {
	stored := objects{}
	if f.target.Canary != nil { // the user's objects are not a route yet
		stored = f.given(t)
	}
	existing := f.find(release.Route{}, stored)
	if len(existing) == 0 {
		return
	}
	seen, err := f.Read(f.target, existing)
	if err != nil || seen.Found {
		t.Fatalf("read nothing: found %v, error %v", seen.Found, err)
	}
}

func isAdmitted(t *rapid.T, f *fixture) {
	route := f.route(t, "route")
	for _, obj := range f.apply(t, route, f.given(t)) {
		if err := f.options.Admission.Validate(t.Context(), obj); err != nil {
			t.Fatalf("%s %s of %s is refused: %v", obj.GetKind(), obj.GetName(), route, err)
		}
	}
}

func renderingTwice(t *rapid.T, f *fixture) {
	second := f.route(t, "second")
	stored := f.apply(t, second, f.apply(t, f.route(t, "first"), f.given(t)))
	existing := f.find(second, stored)
	for i, obj := range f.render(t, second, existing) { // not completed: fields that an API server would default are written again
		if diff := cmp.Diff(existing[i].Object, obj); diff != "" {
			t.Fatalf("%s again: %s (-stored +rendered):\n%s", second, existing[i].Ref, diff)
		}
	}
}

func leavesNoTrace(t *rapid.T, f *fixture) {
	f.target.Drained = true
	first, second := f.route(t, "first"), f.route(t, "second")
	direct := f.apply(t, second, f.given(t))
	after := f.apply(t, second, f.apply(t, first, f.given(t)))
	if diff := cmp.Diff(direct, after); diff != "" {
		t.Fatalf("%s after %s (-direct +after):\n%s", second, first, diff)
	}
}

func inputUnmodified(t *rapid.T, f *fixture) {
	route, stored := f.route(t, "second"), f.before(t)
	if rapid.Bool().Draw(t, "applied before") {
		stored = f.apply(t, f.route(t, "first"), stored)
	}
	before, canary, rollout := stored.copy(), f.target.Canary.DeepCopy(), f.target.Rollout.DeepCopy()
	existing := f.find(route, stored)
	f.render(t, route, existing)
	if _, err := f.Read(f.target, existing); err != nil {
		t.Fatalf("read: %v", err)
	}
	f.validate(existing)
	f.restore(t, existing)
	if diff := cmp.Diff(before, stored) + cmp.Diff(canary, f.target.Canary) + cmp.Diff(rollout, f.target.Rollout); diff != "" {
		t.Fatalf("modified its input (-before +after):\n%s", diff)
	}
}

func usersObjectsRemain(t *rapid.T, f *fixture) {
	route := f.route(t, "route")
	existing := f.find(route, f.given(t))
	rendered, restored := f.render(t, route, existing), f.restore(t, existing)
	for i, x := range existing {
		switch {
		case x.Ref.Owned, x.Object == nil:
		case rendered[i] == nil || restored[i] == nil:
			t.Fatalf("deleted %s", x.Ref)
		case !x.Ref.Shared && (!cmp.Equal(rendered[i], x.Object) || !cmp.Equal(restored[i], x.Object)):
			t.Fatalf("changed %s, which is only read", x.Ref)
		}
	}
}

func absentUsersObjectRefused(t *rapid.T, f *fixture) {
	route, given := f.route(t, "route"), f.given(t)
	if faults := f.validate(f.find(route, given)); len(faults) > 0 {
		t.Fatalf("the user's objects are invalid: %v", faults)
	}
	var needed []string
	for _, x := range f.find(route, given) {
		target := x.Ref.Shared && f.target.Canary != nil // the workload reports its absence
		if x.Object != nil && !x.Ref.Owned && !target {
			needed = append(needed, keyOf(x.Object))
		}
	}
	if len(needed) == 0 {
		return // the provider creates everything that it needs
	}
	absent := rapid.SampledFrom(needed).Draw(t, "absent")
	delete(given, absent)
	existing := f.find(route, given)
	if got, err := f.Render(f.target, route, existing); !errors.Is(err, traffic.ErrInvalid) {
		t.Fatalf("without %s: got %v, error %v, want ErrInvalid", absent, got, err)
	}
	_, validates := f.Renderer.(traffic.Validator)
	selected := slices.ContainsFunc(existing, func(x traffic.Lookup) bool { return x.Ref.Selector != "" }) // the absence of one of several is not noticed
	if validates && !selected && len(f.validate(existing)) == 0 {
		t.Fatalf("without %s: valid", absent)
	}
}

func unknownFieldsSurvive(t *rapid.T, f *fixture) {
	f.target.Drained = false // a deleted object takes its fields with it
	first, second, u := f.route(t, "first"), f.route(t, "second"), f.unknowns()
	stored := f.apply(t, first, f.before(t))
	marked := objects{}
	for key, obj := range stored {
		marked[key] = u.add(obj)
	}
	compare := func(how string, route release.Route, change func(traffic.Objects) []*unstructured.Unstructured) {
		existing, with := f.find(route, stored), f.find(route, marked)
		plain, rendered := change(existing), change(with)
		for i, x := range existing {
			if lost := u.lost(x.Object, plain[i], rendered[i]); lost != "" {
				t.Fatalf("%s after %s: %s: %s", how, first, x.Ref, lost)
			}
		}
	}
	compare(second.String(), second, func(existing traffic.Objects) []*unstructured.Unstructured { return f.render(t, second, existing) })
	compare("the same", first, func(existing traffic.Objects) []*unstructured.Unstructured { return f.render(t, first, existing) })
	compare("restored", second, func(existing traffic.Objects) []*unstructured.Unstructured { return f.restore(t, existing) })
}

func copyFollows(t *rapid.T, f *fixture) {
	if !f.options.Copies {
		return
	}
	u, route := f.unknowns(), f.route(t, "route")
	stored := f.apply(t, route, f.given(t))
	existing, marked := f.find(route, stored), f.find(route, stored)
	for i, x := range marked {
		marked[i].Object = u.add(x.Object)
	}
	copied := f.render(t, route, marked)
	since := slices.Clone(existing)
	for i, x := range existing {
		if !x.Ref.Derived || x.Object == nil {
			continue
		}
		if _, without := u.inside(copied[i]); len(without) > 0 {
			t.Fatalf("%s lacks the user's fields in %v", x.Ref, without)
		}
		since[i].Object = copied[i]
	}
	for i, obj := range f.render(t, route, since) {
		if obj == nil {
			continue
		}
		if with, _ := u.inside(obj); len(with) > 0 {
			t.Fatalf("%s has fields in %v that the user removed", existing[i].Ref, with)
		}
	}
}

func garbageDoesNotPanic(t *rapid.T, f *fixture) {
	route := f.route(t, "second")
	stored := f.apply(t, f.route(t, "first"), f.given(t))
	for _, key := range slices.Sorted(maps.Keys(stored)) {
		garble(t, stored[key].Object)
	}
	existing := f.find(route, stored)
	// Both an error and a result are valid: providers may accept invalid objects.
	_, _ = f.Render(f.target, route, existing)
	_, _ = f.Read(f.target, existing)
	f.validate(existing)
	_, _ = f.Restore(f.target, existing)
}

func otherOwnerRefused(t *rapid.T, f *fixture) {
	f.target.Drained = false
	route := f.route(t, "route")
	existing := f.find(route, f.apply(t, route, f.given(t)))
	var candidates []traffic.Lookup
	for _, x := range existing {
		if x.Object != nil && (x.Ref.Owned || x.Ref.Shared && f.target.Canary != nil) {
			candidates = append(candidates, x)
		}
	}
	if len(candidates) == 0 {
		return
	}
	theirs := rapid.SampledFrom(candidates).Draw(t, "object")
	other := rapid.SampledFrom(otherOwners(f.target, theirs.Ref)).Draw(t, "other owner")
	theirs.Object.SetOwnerReferences(other.references)
	if f.target.Canary != nil {
		theirs.Object.SetAnnotations(other.annotations)
	}
	before := theirs.Object.DeepCopy()
	if got, err := f.Render(f.target, route, existing); !errors.Is(err, traffic.ErrNotOwned) {
		t.Fatalf("%s controlled by %s: got %v, error %v, want ErrNotOwned", theirs.Ref, other.name, got, err)
	}
	for i, obj := range f.restore(t, existing) {
		if existing[i].Object == theirs.Object && !cmp.Equal(obj, before) {
			t.Fatalf("restore changed an object of %s:\n%s", other.name, cmp.Diff(before, obj))
		}
	}
}

func restoreReturnsOriginals(t *rapid.T, f *fixture) {
	before := f.before(t)
	stored := before
	for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
		stored = f.apply(t, f.route(t, fmt.Sprint("route ", i)), stored)
	}
	end := release.Route{}
	if f.target.Rollout != nil { // its weights remain
		stored = f.apply(t, end, stored)
	}
	existing := f.find(end, stored)
	for i, obj := range f.restore(t, existing) {
		x := existing[i]
		want := x.Object
		if x.Object != nil && x.Ref.Namespace == "" {
			want = nil // garbage collection does not delete an object without an owner
		}
		if users, ok := before[keyOfRef(x.Ref)]; ok {
			want = users
		}
		if diff := cmp.Diff(want, obj); diff != "" {
			t.Fatalf("restored %s (-want +got):\n%s", x.Ref, diff)
		}
	}
}

func restoringTwice(t *rapid.T, f *fixture) {
	route := f.route(t, "route")
	stored := f.apply(t, route, f.before(t))
	existing := f.find(route, stored)
	once := f.save(t, existing, f.restore(t, existing))
	existing = f.find(route, once)
	if diff := cmp.Diff(once, f.save(t, existing, f.restore(t, existing))); diff != "" {
		t.Fatalf("restored again (-once +twice):\n%s", diff)
	}
}

// neighborsSettle: each of the two Rollouts is applied whenever the other one changed an object. Without a fixed point, this never
// ends.
func neighborsSettle(t *rapid.T, f *fixture) {
	if f.options.Neighbor == nil {
		return
	}
	other := &fixture{Renderer: f.Renderer, options: f.options, target: f.options.Neighbor(f.target)}
	draw := func(of *fixture, label string) release.Route {
		route := of.route(t, label)
		route.HeaderRoutes, route.MirrorRoutes = nil, nil // only one of them may use managed routes
		for i := range route.Others {
			route.Others[i].Service = label + "-" + route.Others[i].Service
		}
		return route
	}
	own, others := draw(f, "own"), draw(other, "other")
	stored := other.apply(t, others, f.apply(t, own, f.given(t)))
	if diff := cmp.Diff(stored, f.apply(t, own, stored)); diff != "" {
		t.Fatalf("%s again, after %s of the other (-stored +rendered):\n%s", own, others, diff)
	}
	if rapid.Bool().Draw(t, "ends") {
		own = release.Route{Total: own.Total}
		stored = f.apply(t, own, stored)
	} else {
		existing := f.find(own, stored)
		stored = f.save(t, existing, f.restore(t, existing))
	}
	if diff := cmp.Diff(stored, other.apply(t, others, stored)); diff != "" {
		t.Fatalf("%s of the other again, after the end (-stored +rendered):\n%s", others, diff)
	}
}

// handedOverRemains: the objects of a route that are deleted with the Canary are restored to a route to the apex after they were
// handed over, or they exist only for requests to the canary.
func handedOverRemains(t *rapid.T, f *fixture) {
	if f.target.Canary == nil {
		return
	}
	idle := release.Route{}
	stored := f.apply(t, idle, f.apply(t, f.route(t, "route"), f.given(t)))
	existing := f.find(idle, stored)
	if rapid.Bool().Draw(t, "orphaned") { // an earlier Canary was deleted without its dependents
		for _, x := range existing {
			if x.Object != nil && x.Ref.Owned && x.Ref.Name == f.target.Apex && x.Object.GetAnnotations()["kustomize.toolkit.fluxcd.io/reconcile"] != "" {
				x.Object.SetOwnerReferences(nil)
			}
		}
	}
	handed, err := traffic.HandOver(f.Renderer, f.target, existing)
	if err != nil {
		t.Fatalf("hand over: %v", err)
	}
	for i, x := range existing {
		if x.Object != nil && !cmp.Equal(x.Object.Object["spec"], handed[i].Object["spec"]) {
			t.Fatalf("handing over changed the routing of %s:\n%s", x.Ref, cmp.Diff(x.Object, handed[i]))
		}
	}
	adopted := f.save(t, existing, handed)
	existing = f.find(idle, adopted)
	again, err := traffic.HandOver(f.Renderer, f.target, existing)
	if err != nil {
		t.Fatalf("hand over again: %v", err)
	}
	if diff := cmp.Diff(existing.Unchanged(), again); diff != "" {
		t.Fatalf("handed over again (-once +twice):\n%s", diff)
	}
	for i, obj := range f.render(t, idle, existing) {
		if diff := cmp.Diff(existing[i].Object, obj); diff != "" && obj != nil && !f.target.Owns(obj) {
			t.Fatalf("a reconciliation changed %s, which was handed over (-before +after):\n%s", existing[i].Ref, diff)
		}
	}
	for i, obj := range f.restore(t, existing) {
		x := existing[i]
		if obj == nil || !x.Ref.Owned || f.target.Owns(obj) {
			continue // deleted with the Canary
		}
		text := fmt.Sprint(obj.Object)
		if f.options.Remains != nil {
			for _, name := range f.options.Remains(f.target) {
				text = strings.ReplaceAll(text, name, "")
			}
		}
		for _, side := range []string{f.target.StableService, f.target.CanaryService, "serin.dev/", "flux"} {
			if strings.Contains(text, side) {
				t.Fatalf("%s contains %s after it was handed over and restored:\n%s", x.Ref, side, text)
			}
		}
		if err := f.options.Admission.Validate(t.Context(), obj); err != nil {
			t.Fatalf("%s is refused after it was handed over and restored: %v", x.Ref, err)
		}
	}
}

func undeclaredRefused(t *rapid.T, f *fixture) {
	declared := f.Features(f.target)
	for _, x := range demands {
		if x.declared(declared) {
			continue
		}
		target := f.target
		if target.Canary != nil && x.analysis != nil {
			target.Canary = target.Canary.DeepCopy()
			target.Canary.Spec.Analysis = x.analysis
		}
		if got, err := f.Render(target, x.route, f.find(x.route, f.given(t))); !errors.Is(err, traffic.ErrUnsupported) {
			t.Fatalf("%s: got %v, error %v, want ErrUnsupported", x.name, got, err)
		}
	}
}

func invalidWeightsRefused(t *rapid.T, f *fixture) {
	for _, weight := range []int{-1, 101} {
		route := release.Route{Canary: weight}
		if _, err := f.Render(f.target, route, f.find(route, f.given(t))); err == nil {
			t.Fatalf("accepted a weight of %d", weight)
		}
	}
}
