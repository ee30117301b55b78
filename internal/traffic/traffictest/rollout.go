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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// RolloutOptions are what a router of Rollouts has of its own.
type RolloutOptions struct {
	// Routers has the renderer, under the name that Rollout uses.
	Routers traffic.RolloutRenderers
	// Rollout names the router and its objects in trafficRouting, which is empty but for managedRoutes.
	Rollout func(*rapid.T, *argov1.Rollout)
	// Given makes the objects of the user, with all requests on the stable side.
	Given func(traffic.RolloutTarget) []*unstructured.Unstructured
	// ExactOnly is true of a router that knows no patterns of headers.
	ExactOnly bool
	// Admission stands for the API server with the definitions of the router.
	Admission *Admission
	// Copies is true where the spec of derived objects is a copy of the user's: it follows that, whatever others put into it.
	Copies bool
	// Whole are values that the release writes whole, as kind and path.
	Whole []string
}

// RunRollout holds a router of Rollouts to the contract.
func RunRollout(t *testing.T, o RolloutOptions) {
	law := func(name string, holds func(t *rapid.T, s *rolloutStory)) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { holds(rt, o.story(rt)) })
		})
	}

	law("weights read back as written", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "route")
		stored := s.apply(t, route, s.given())
		seen, err := s.router.Renderer.Read(s.target, s.find(route, stored))
		if err != nil || !seen.Found {
			t.Fatalf("read back %s: found %v, error %v", route, seen.Found, err)
		}
		want := release.Route{Canary: route.Canary}
		for _, d := range route.Others {
			want.Others = append(want.Others, release.Destination{Service: d.Service, Weight: d.Weight})
		}
		anyOrder := cmpopts.SortSlices(func(a, b release.Destination) bool { return a.Service < b.Service })
		if diff := cmp.Diff(want, seen.Route, anyOrder); diff != "" {
			t.Fatalf("read back %s (-want +got):\n%s", route, diff)
		}
	})

	law("managed routes read back by their names", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "route")
		seen, err := s.router.Renderer.Read(s.target, s.find(route, s.apply(t, route, s.apply(t, s.route(t, "before"), s.given()))))
		if err != nil {
			t.Fatalf("read back %s: %v", route, err)
		}
		want := map[string]bool{}
		for _, header := range route.HeaderRoutes {
			want[header.Name] = len(header.Match) > 0
		}
		for _, mirror := range route.MirrorRoutes {
			want[mirror.Name] = len(mirror.Match) > 0
		}
		maps.DeleteFunc(want, func(_ string, is bool) bool { return !is })
		got := map[string]bool{}
		for _, name := range seen.Managed {
			got[name] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("managed routes of %v, %v (-want +got):\n%s", route.HeaderRoutes, route.MirrorRoutes, diff)
		}
	})

	law("the definitions of the router admit what is rendered", func(t *rapid.T, s *rolloutStory) {
		for _, obj := range s.apply(t, s.route(t, "route"), s.given()) {
			if err := o.Admission.Validate(t.Context(), obj); err != nil {
				t.Fatalf("%s %s is refused: %v", obj.GetKind(), obj.GetName(), err)
			}
		}
	})

	law("rendering twice changes nothing", func(t *rapid.T, s *rolloutStory) {
		stored := s.apply(t, s.route(t, "first"), s.given())
		second := s.route(t, "second")
		stored = s.apply(t, second, stored)
		existing := s.find(second, stored)
		for i, obj := range s.render(t, second, existing) { // as it is: what an API server would fill in again is written again
			if diff := cmp.Diff(existing[i].Object, obj); diff != "" {
				t.Fatalf("%s again: %s (-stored +rendered):\n%s", second, existing[i].Ref, diff)
			}
		}
	})

	law("the way to a route leaves no trace", func(t *rapid.T, s *rolloutStory) {
		s.target.Drained = true
		first, second := s.route(t, "first"), s.route(t, "second")
		direct := s.apply(t, second, s.given())
		around := s.apply(t, second, s.apply(t, first, s.given()))
		if diff := cmp.Diff(direct, around); diff != "" {
			t.Fatalf("%s by way of %s (-direct +around):\n%s", second, first, diff)
		}
	})

	law("what is given is never changed", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "second")
		stored := s.apply(t, s.route(t, "first"), s.given())
		before, rollout := copyOf(stored), s.target.Rollout.DeepCopy()
		existing := s.find(route, stored)
		_, err := s.router.Renderer.Render(s.target, route, existing)
		_, again := s.router.Renderer.Read(s.target, existing)
		if err != nil || again != nil {
			t.Fatalf("render: %v, read: %v", err, again)
		}
		s.router.Renderer.Validate(s.target, existing)
		s.router.Renderer.Restore(s.target, existing)
		if diff := cmp.Diff(before, stored) + cmp.Diff(rollout, s.target.Rollout); diff != "" {
			t.Fatalf("changed its input (-before +after):\n%s", diff)
		}
	})

	law("the user's objects are never made or deleted, and what is only read stays", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "route")
		existing := s.find(route, s.given())
		rendered := s.render(t, route, existing)
		restored := s.router.Renderer.Restore(s.target, existing)
		for i, x := range existing {
			switch {
			case x.Ref.Owned, x.Object == nil:
			case rendered[i] == nil || restored[i] == nil:
				t.Fatalf("deleted %s", x.Ref)
			case !x.Ref.Shared && (!cmp.Equal(rendered[i], x.Object) || !cmp.Equal(restored[i], x.Object)):
				t.Fatalf("changed %s, which is only read", x.Ref)
			}
		}
	})

	law("an absent object of the user is refused, and found by validation", func(t *rapid.T, s *rolloutStory) {
		route, given := s.route(t, "route"), s.given()
		if faults := s.router.Renderer.Validate(s.target, s.find(route, given)); len(faults) > 0 {
			t.Fatalf("what the user made is found invalid: %v", faults)
		}
		var needed []string
		for _, x := range s.find(route, given) {
			if x.Object != nil && (x.Ref.Shared || x.Ref.GVK.Kind == traffic.IngressKind.Kind) {
				needed = append(needed, keyOf(x.Object))
			}
		}
		if len(needed) == 0 {
			return // all that the router needs it makes
		}
		gone := rapid.SampledFrom(needed).Draw(t, "gone")
		delete(given, gone)
		existing := s.find(route, given)
		if got, err := s.router.Renderer.Render(s.target, route, existing); !errors.Is(err, traffic.ErrInvalid) {
			t.Fatalf("without %s: got %v, error %v, want ErrInvalid", gone, got, err)
		}
		if selected := slices.ContainsFunc(existing, func(x traffic.Found) bool { return x.Ref.Selector != "" }); selected {
			return // nobody can tell that one of several is missing
		}
		if faults := s.router.Renderer.Validate(s.target, existing); len(faults) == 0 {
			t.Fatalf("without %s: found valid", gone)
		}
	})

	law("fields of others survive at every depth", func(t *rapid.T, s *rolloutStory) {
		first, second := s.route(t, "first"), s.route(t, "second")
		s.target.Drained = false // what may go takes its fields along
		u := s.unknowns()
		stored := s.apply(t, first, s.given())
		marked := objects{}
		for key, obj := range stored {
			marked[key] = u.add(obj)
		}
		compare := func(how string, change func(traffic.Objects) []*unstructured.Unstructured, route release.Route) {
			existing, with := s.find(route, stored), s.find(route, marked)
			plain, rendered := change(existing), change(with)
			for i, x := range existing {
				if lost := u.lost(x.Object, plain[i], rendered[i]); lost != "" {
					t.Fatalf("%s after %s: %s: %s", how, first, x.Ref, lost)
				}
			}
		}
		compare(second.String(), func(existing traffic.Objects) []*unstructured.Unstructured { return s.render(t, second, existing) }, second)
		compare("the same", func(existing traffic.Objects) []*unstructured.Unstructured { return s.render(t, first, existing) }, first)
		compare("restored", func(existing traffic.Objects) []*unstructured.Unstructured {
			return s.router.Renderer.Restore(s.target, existing)
		}, second)
	})

	law("a copy follows the user's at every depth", func(t *rapid.T, s *rolloutStory) {
		if !o.Copies {
			return
		}
		u, route := s.unknowns(), s.route(t, "route")
		stored := s.apply(t, route, s.given())
		existing, marked := s.find(route, stored), s.find(route, stored)
		for i, x := range marked {
			marked[i].Object = u.add(x.Object)
		}
		copied := s.render(t, route, marked)
		since := slices.Clone(existing)
		for i, x := range existing {
			if !x.Ref.Derived || x.Object == nil {
				continue
			}
			if _, without := u.inside(copied[i]); len(without) > 0 {
				t.Fatalf("%s has nothing of the user's fields in %v", x.Ref, without)
			}
			since[i].Object = copied[i]
		}
		for i, obj := range s.render(t, route, since) {
			if obj == nil {
				continue
			}
			if with, _ := u.inside(obj); len(with) > 0 {
				t.Fatalf("%s has fields in %v that the user removed", existing[i].Ref, with)
			}
		}
	})

	law("whatever others wrote, nothing panics", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "second")
		stored := s.apply(t, s.route(t, "first"), s.given())
		for _, key := range slices.Sorted(maps.Keys(stored)) {
			garble(t, stored[key].Object)
		}
		existing := s.find(route, stored)
		// An error is as good as an answer: what is wrong with an object is up to the router.
		_, _ = s.router.Renderer.Render(s.target, route, existing)
		_, _ = s.router.Renderer.Read(s.target, existing)
		s.router.Renderer.Validate(s.target, existing)
		s.router.Renderer.Restore(s.target, existing)
	})

	law("an object of somebody else is refused", func(t *rapid.T, s *rolloutStory) {
		s.target.Drained = false
		route := s.route(t, "route")
		existing := s.find(route, s.apply(t, route, s.given()))
		var made []traffic.Found
		for _, x := range existing {
			if x.Ref.Owned && x.Object != nil {
				made = append(made, x)
			}
		}
		if len(made) == 0 {
			return
		}
		theirs := rapid.SampledFrom(made).Draw(t, "object").Object
		theirs.SetOwnerReferences(rapid.SampledFrom(rolloutStrangers).Draw(t, "stranger"))
		before := theirs.DeepCopy()
		if got, err := s.router.Renderer.Render(s.target, route, existing); !errors.Is(err, traffic.ErrForeign) {
			t.Fatalf("%s of somebody else: got %v, error %v, want ErrForeign", theirs.GetName(), got, err)
		}
		restored := s.router.Renderer.Restore(s.target, existing)
		for i, x := range existing {
			if x.Object == theirs && !cmp.Equal(restored[i], before) {
				t.Fatalf("restore changed what belongs to somebody else:\n%s", cmp.Diff(before, restored[i]))
			}
		}
	})

	law("restore gives the user's own back, and leaves what was made", func(t *rapid.T, s *rolloutStory) {
		stored := s.given()
		for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
			stored = s.apply(t, s.route(t, fmt.Sprint("route ", i)), stored)
		}
		end := release.Route{Total: s.total(t)}
		if end.Total != release.Total {
			return // the user's own weights add up to something else
		}
		stored = s.apply(t, end, stored)
		existing := s.find(end, stored)
		given := s.given()
		for i, obj := range s.router.Renderer.Restore(s.target, existing) {
			if obj == nil && existing[i].Object == nil {
				continue
			}
			want := given[keyOf(obj)]
			if existing[i].Ref.Owned {
				want = existing[i].Object
			}
			if diff := cmp.Diff(want, obj); diff != "" {
				t.Fatalf("restored %s (-user's +got):\n%s", existing[i].Ref, diff)
			}
		}
	})

	law("restoring twice changes nothing", func(t *rapid.T, s *rolloutStory) {
		route := s.route(t, "route")
		once := s.keep(t, s.find(route, s.apply(t, route, s.given())), s.router.Renderer.Restore)
		twice := s.keep(t, s.find(route, once), s.router.Renderer.Restore)
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Fatalf("restored again (-once +twice):\n%s", diff)
		}
	})

	law("what is not declared is refused", func(t *rapid.T, s *rolloutStory) {
		declared := s.router.Renderer.Features(s.target)
		for _, x := range rolloutDemands {
			if x.declared(declared) {
				continue
			}
			if got, err := s.router.Renderer.Render(s.target, x.route, s.find(x.route, s.given())); !errors.Is(err, traffic.ErrUnsupported) {
				t.Fatalf("%s: got %v, error %v, want ErrUnsupported", x.name, got, err)
			}
		}
	})

	law("weights beyond the total are refused", func(t *rapid.T, s *rolloutStory) {
		for _, weight := range []int{-1, 101} {
			route := release.Route{Canary: weight}
			if _, err := s.router.Renderer.Render(s.target, route, s.find(route, s.given())); err == nil {
				t.Fatalf("accepted a weight of %d", weight)
			}
		}
	})
}

// rolloutDemands are routes that need one feature more than nothing.
var rolloutDemands = []struct {
	name     string
	declared func(traffic.Features) bool
	route    release.Route
}{
	{"experiments", func(f traffic.Features) bool { return f.Others }, release.Route{Others: []release.Destination{{Service: "cart-exp", Weight: 5}}}},
	{"max weight", func(f traffic.Features) bool { return f.MaxWeight }, release.Route{Total: 1000}},
	{"header routes", func(f traffic.Features) bool { return f.HeaderRoutes }, release.Route{HeaderRoutes: []release.HeaderRoute{{Name: "testers"}}}},
	{"mirror routes", func(f traffic.Features) bool { return f.MirrorRoutes }, release.Route{MirrorRoutes: []release.MirrorRoute{{Name: "shadow"}}}},
}

// rolloutStrangers are those who may have an object that a Rollout needs.
var rolloutStrangers = [][]metav1.OwnerReference{
	{{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "basket", UID: "other", Controller: new(true)}},
	{{APIVersion: "argoproj.io/v1alpha1", Kind: "Rollout", Name: "cart", UID: "earlier", Controller: new(true)}},
	{{APIVersion: "example.com/v1", Kind: "Mesh", Name: "cart", UID: "mesh", Controller: new(true)}},
}

// rolloutStory is one Rollout of a law.
type rolloutStory struct {
	options RolloutOptions
	router  traffic.RolloutRouter
	target  traffic.RolloutTarget
}

func (o RolloutOptions) story(t *rapid.T) *rolloutStory {
	ro := &argov1.Rollout{}
	ro.Name, ro.Namespace, ro.UID = "cart", "web", "0d3a5fd7-uid"
	ro.Spec.Strategy.Canary = &argov1.CanaryStrategy{
		CanaryService: "cart-canary", StableService: "cart-stable",
		TrafficRouting: &argov1.RolloutTrafficRouting{ManagedRoutes: []argov1.ManagedRoute{{Name: "testers"}, {Name: "shadow"}, {Name: "beta"}}},
	}
	o.Rollout(t, ro)
	routers, err := o.Routers.Of(ro.Spec.Strategy.Canary.TrafficRouting)
	if err != nil || len(routers) != 1 {
		t.Fatalf("routers of the Rollout: %v, error %v, want one", routers, err)
	}
	s := &rolloutStory{options: o, router: routers[0]}
	stable := rapid.SampledFrom([]string{"77c9", "6d4f"}).Draw(t, "stable hash")
	s.target = s.router.Target(ro, rapid.SampledFrom([]string{"6d4f", ""}).Draw(t, "canary hash"), stable)
	s.target.Drained = rapid.Bool().Draw(t, "drained")
	return s
}

// unknowns are the fields of others in the objects of the Rollout.
func (s *rolloutStory) unknowns() unknowns {
	u := unknowns{admission: s.options.Admission, whole: s.options.Whole, sides: []string{s.target.StableService, s.target.CanaryService}}
	if s.options.Copies {
		u.follows = func(obj *unstructured.Unstructured) bool { return s.target.IsMade(obj) }
	}
	return u
}

func (s *rolloutStory) total(t *rapid.T) int {
	if s.router.Renderer.Features(s.target).MaxWeight {
		return rapid.SampledFrom([]int{100, 1000}).Draw(t, "total")
	}
	return release.Total
}

// route draws what the renderer declares to be able to make.
func (s *rolloutStory) route(t *rapid.T, label string) release.Route {
	f := s.router.Renderer.Features(s.target)
	total := s.total(t)
	return rapid.Custom(func(t *rapid.T) release.Route {
		r := release.Route{Total: total}
		left := total
		if f.Others {
			for _, name := range rapid.SampledFrom([][]string{nil, {"cart-exp"}, {"cart-exp", "another-exp"}}).Draw(t, "experiments") {
				d := release.Destination{Service: name, Weight: rapid.IntRange(1, 20).Draw(t, "weight of "+name), Revision: "58b1"}
				r.Others, left = append(r.Others, d), left-d.Weight
			}
		}
		r.Canary = rapid.OneOf(rapid.SampledFrom([]int{0, 1, left}), rapid.IntRange(0, left)).Draw(t, "weight")
		if f.HeaderRoutes {
			for _, name := range rapid.SampledFrom([][]string{nil, {"testers"}, {"beta"}, {"testers", "beta"}}).Draw(t, "header routes") {
				r.HeaderRoutes = append(r.HeaderRoutes, release.HeaderRoute{Name: name, Match: s.headers(t)})
			}
		}
		if f.MirrorRoutes && rapid.Bool().Draw(t, "mirrors") {
			r.MirrorRoutes = []release.MirrorRoute{{Name: "shadow", Percent: rapid.IntRange(1, 100).Draw(t, "percent"), Match: rapid.SampledFrom([][]release.Match{
				{{Method: &release.StringMatch{Exact: "GET"}, Path: &release.StringMatch{Prefix: "/cart"}}},
				{{Headers: map[string]release.StringMatch{"x-tester": {Regex: ".+"}}}, {Path: &release.StringMatch{Exact: "/"}}},
			}).Draw(t, "mirrored")}}
		}
		return r
	}).Draw(t, label)
}

func (s *rolloutStory) headers(t *rapid.T) []release.Match {
	values := []release.StringMatch{{Exact: "1"}, {Exact: "yes"}}
	if !s.options.ExactOnly {
		values = append(values, release.StringMatch{Prefix: "in."}, release.StringMatch{Regex: "^[a-z]+$"})
	}
	var out []release.Match
	for _, name := range rapid.SampledFrom([][]string{{"x-tester"}, {"x-tester", "x-group"}, {"x-tester", "x-tester"}}).Draw(t, "names of headers") {
		out = append(out, release.Match{Headers: map[string]release.StringMatch{name: rapid.SampledFrom(values).Draw(t, "value of "+name)}})
	}
	return out
}

// objects are what a cluster has, by kind and name.
type objects map[string]*unstructured.Unstructured

func keyOf(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName()
}

func (s *rolloutStory) given() objects {
	out := objects{}
	for _, obj := range s.options.Given(s.target) {
		if err := s.options.Admission.Complete(obj); err != nil {
			panic(err)
		}
		out[keyOf(obj)] = obj
	}
	return out
}

func copyOf(in objects) objects {
	out := objects{}
	for key, obj := range in {
		out[key] = obj.DeepCopy()
	}
	return out
}

// find stands for the reading half of the applier.
func (s *rolloutStory) find(r release.Route, stored objects) traffic.Objects {
	return findObjects(s.router.Renderer, s.target, r, stored)
}

func findObjects(rd traffic.RolloutRenderer, t traffic.RolloutTarget, r release.Route, stored objects) traffic.Objects {
	return Found(rd, t, r, slices.Collect(maps.Values(stored)))
}

// Found are those of some objects that a route of a Rollout is about, as an applier finds them.
func Found(rd traffic.RolloutRenderer, t traffic.RolloutTarget, r release.Route, among []*unstructured.Unstructured) traffic.Objects {
	out, err := traffic.Gather(rd, t, r, func(ref traffic.Ref) (traffic.Objects, error) {
		selector, err := labels.Parse(ref.Selector)
		if err != nil {
			return nil, err
		}
		var found traffic.Objects
		for _, obj := range among {
			is := obj.GetKind() == ref.GVK.Kind && obj.GetNamespace() == ref.Namespace
			if is && (ref.Name == obj.GetName() || ref.Name == "" && selector.Matches(labels.Set(obj.GetLabels()))) {
				one := ref
				one.Name = obj.GetName()
				found = append(found, traffic.Found{Ref: one, Object: obj})
			}
		}
		if ref.Name != "" && len(found) == 0 {
			found = traffic.Objects{{Ref: ref}}
		}
		slices.SortFunc(found, func(a, b traffic.Found) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
		return found, nil
	})
	if err != nil {
		panic(err)
	}
	return out
}

func (s *rolloutStory) render(t *rapid.T, r release.Route, existing traffic.Objects) []*unstructured.Unstructured {
	rendered, err := s.router.Renderer.Render(s.target, r, existing)
	if err != nil {
		t.Fatalf("render %s: %v", r, err)
	}
	return rendered
}

// apply renders over what is stored, and stands for the writing half of the applier and the API server.
func (s *rolloutStory) apply(t *rapid.T, r release.Route, stored objects) objects {
	out := s.keep(t, s.find(r, stored), func(_ traffic.RolloutTarget, existing traffic.Objects) []*unstructured.Unstructured {
		return s.render(t, r, existing)
	})
	for key, obj := range stored {
		if _, found := out[key]; !found && s.unseen(r, stored, key) {
			out[key] = obj.DeepCopy()
		}
	}
	return out
}

// unseen are objects that the route has nothing to do with.
func (s *rolloutStory) unseen(r release.Route, stored objects, key string) bool {
	return !slices.ContainsFunc(s.find(r, stored), func(x traffic.Found) bool { return x.Object == stored[key] })
}

// keep stores what was made of existing objects.
func (s *rolloutStory) keep(t *rapid.T, existing traffic.Objects,
	render func(traffic.RolloutTarget, traffic.Objects) []*unstructured.Unstructured,
) objects {
	out := objects{}
	for i, desired := range render(s.target, existing) {
		if desired == nil {
			continue
		}
		obj := desired.DeepCopy()
		if existing[i].Object == nil {
			obj.SetOwnerReferences([]metav1.OwnerReference{s.target.OwnerReference()})
		}
		if err := s.options.Admission.Complete(obj); err != nil {
			t.Fatalf("%s: %v", existing[i].Ref, err)
		}
		out[keyOf(obj)] = obj
	}
	return out
}
