// Package traffictest is what every provider of traffic has to pass: the laws of the contract (Run), golden files of
// what is rendered (Golden), and routes that Flagger was seen to write (Recorded).
//
// It must not know any provider: what differs between them comes in as options.
package traffictest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Options are what a provider has of its own.
type Options struct {
	// Provider is the normalised name.
	Provider string
	// Canary makes a Canary of the common draw one that the provider accepts; nil leaves it as it is.
	Canary func(*rapid.T, *flaggerv1.Canary)
	// Route makes a route of the common draw one that the provider accepts; nil leaves it as it is.
	Route func(*rapid.T, *release.Route)
	// Given makes what the user has to make before a release, aligned with the references; nil where that is nothing.
	Given func(traffic.Target) []*unstructured.Unstructured
	// Admission stands for the API server with the definitions of the provider; nil where a provider has no objects.
	Admission *Admission
	// Copies is true where the spec of derived objects is a copy of the user's: it follows that, whatever others put into it.
	Copies bool
	// Whole are values that the Canary gives as they are, as kind and path: VirtualService spec.hosts.
	Whole []string
}

// Run holds a renderer to the contract.
func Run(t *testing.T, rd traffic.Renderer, o Options) {
	t.Run("what was rendered reads back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			route := o.route(t, rd, target, "route")
			seen, err := rd.Read(target, must(rd.Render(target, route, o.absent(rd, target)))(t))
			if err != nil {
				t.Fatalf("read back %s: %v", route, err)
			}
			if !seen.Found {
				t.Fatalf("read back %s: not found", route)
			}
			if !rd.Features(target).Weights {
				return
			}
			want := release.Route{Canary: route.Canary, Mirror: route.Mirror}
			if diff := cmp.Diff(want, seen.Route); diff != "" {
				t.Fatalf("read back %s (-want +got):\n%s", route, diff)
			}
		})
	})

	t.Run("the definitions of the provider admit what is rendered", func(t *testing.T) {
		if o.Admission == nil {
			return // a provider without objects
		}
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			route := o.route(t, rd, target, "route")
			for _, obj := range o.store(t, rd, target, route, o.absent(rd, target)) {
				if obj == nil {
					continue
				}
				if err := o.Admission.Validate(t.Context(), obj); err != nil {
					t.Fatalf("%s %s of %s is refused: %v", obj.GetKind(), obj.GetName(), route, err)
				}
			}
		})
	})

	t.Run("an absent route is not found", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			if len(rd.Refs(target)) == 0 {
				return
			}
			seen, err := rd.Read(target, o.absent(rd, target))
			if err != nil || seen.Found {
				t.Fatalf("read nothing: found %v, error %v", seen.Found, err)
			}
		})
	})

	t.Run("rendering twice changes nothing", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			first, second := o.route(t, rd, target, "first"), o.route(t, rd, target, "second")
			stored := o.store(t, rd, target, first, o.absent(rd, target))
			stored = o.store(t, rd, target, second, stored)
			again := must(rd.Render(target, second, stored))(t)
			if diff := difference(stored, again); diff != "" {
				t.Fatalf("%s again (-stored +rendered):\n%s", second, diff)
			}
		})
	})

	t.Run("the way to a route leaves no trace", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			first, second := o.route(t, rd, target, "first"), o.route(t, rd, target, "second")
			direct := o.store(t, rd, target, second, o.absent(rd, target))
			around := o.store(t, rd, target, second, o.store(t, rd, target, first, o.absent(rd, target)))
			if diff := difference(direct, around); diff != "" {
				t.Fatalf("%s by way of %s (-direct +around):\n%s", second, first, diff)
			}
		})
	})

	t.Run("the input is untouched", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			first, second := o.route(t, rd, target, "first"), o.route(t, rd, target, "second")
			existing := o.adoptable(t, rd, target, first)
			canary, before := target.Canary.DeepCopy(), copies(existing)
			must(rd.Render(target, second, existing))(t)
			if _, err := rd.Read(target, existing); err != nil {
				t.Fatalf("read: %v", err)
			}
			if _, err := rd.Restore(target, existing); err != nil && !errors.Is(err, traffic.ErrNoOriginal) {
				t.Fatalf("restore: %v", err)
			}
			if diff := cmp.Diff(before, existing) + cmp.Diff(canary, target.Canary); diff != "" {
				t.Fatalf("changed its input (-before +after):\n%s", diff)
			}
		})
	})

	t.Run("what is the user's is only read", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			given := o.absent(rd, target)
			rendered := o.store(t, rd, target, o.route(t, rd, target, "route"), given)
			restored, err := rd.Restore(target, rendered)
			if err != nil {
				t.Fatalf("restore: %v", err)
			}
			for i, ref := range rd.Refs(target) {
				if diff := cmp.Diff(given[i], rendered[i]) + cmp.Diff(given[i], restored[i]); diff != "" && !ref.Owned && !ref.Shared {
					t.Fatalf("changed %s (-given +got):\n%s", ref, diff)
				}
			}
		})
	})

	t.Run("fields of others survive at every depth", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			first, second := o.route(t, rd, target, "first"), o.route(t, rd, target, "second")
			refs, u := rd.Refs(target), o.unknowns(rd, target)
			existing := o.store(t, rd, target, first, o.absent(rd, target))
			marked := each(existing, u.add)
			again := must(rd.Render(target, first, marked))(t)
			for i, ref := range refs {
				if diff := cmp.Diff(marked[i], again[i]); diff != "" && (!o.Copies || !ref.Derived) {
					t.Fatalf("%s again: %s (-with fields of others +rendered):\n%s", first, ref, diff)
				}
			}
			marked = again // copies have what others wrote in the user's
			plain, rendered := must(rd.Render(target, second, existing))(t), must(rd.Render(target, second, marked))(t)
			for i, ref := range refs {
				if lost := u.lost(existing[i], plain[i], rendered[i]); lost != "" {
					t.Fatalf("%s after %s: %s: %s", second, first, ref, lost)
				}
			}
		})
	})

	t.Run("a copy follows the user's at every depth", func(t *testing.T) {
		if !o.Copies {
			return
		}
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			route, u := o.route(t, rd, target, "route"), o.unknowns(rd, target)
			existing := o.store(t, rd, target, route, o.absent(rd, target))
			copied := must(rd.Render(target, route, each(existing, u.add)))(t)
			since := copies(existing)
			for i, ref := range rd.Refs(target) {
				if !ref.Derived {
					continue
				}
				if _, without := u.inside(copied[i]); len(without) > 0 {
					t.Fatalf("%s has nothing of the user's fields in %v", ref, without)
				}
				since[i] = copied[i]
			}
			for i, obj := range must(rd.Render(target, route, since))(t) {
				if with, _ := u.inside(obj); len(with) > 0 {
					t.Fatalf("%s has fields in %v that the user removed", rd.Refs(target)[i], with)
				}
			}
		})
	})

	t.Run("whatever others wrote, nothing panics", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			existing := o.store(t, rd, target, o.route(t, rd, target, "first"), o.absent(rd, target))
			for _, obj := range existing {
				if obj != nil {
					garble(t, obj.Object)
				}
			}
			// An error is as good as an answer: what is wrong with an object is up to the provider.
			_, _ = rd.Render(target, o.route(t, rd, target, "second"), existing)
			_, _ = rd.Read(target, existing)
			_, _ = rd.Restore(target, existing)
		})
	})

	t.Run("an object of somebody else is refused", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			route := o.route(t, rd, target, "route")
			existing := o.store(t, rd, target, route, o.absent(rd, target))
			refs := rd.Refs(target)
			made := slices.DeleteFunc(slices.Clone(existing), func(obj *unstructured.Unstructured) bool {
				ref := refs[slices.Index(existing, obj)]
				return obj == nil || !ref.Owned && !ref.Shared
			})
			if len(made) == 0 {
				return
			}
			theirs := rapid.SampledFrom(made).Draw(t, "object")
			owners := strangers
			if refs[slices.Index(existing, theirs)].Derived {
				owners = append(slices.Clone(owners), stranger{name: "nobody"})
			}
			owner := rapid.SampledFrom(owners).Draw(t, "stranger")
			theirs.SetOwnerReferences(owner.references)
			theirs.SetAnnotations(owner.annotations)
			if got, err := rd.Render(target, route, existing); !errors.Is(err, traffic.ErrForeign) {
				t.Fatalf("%s controlled by %s: got %v, error %v, want ErrForeign", theirs.GetName(), owner.name, got, err)
			}
			before := copies(existing)
			restored, err := rd.Restore(target, existing)
			if err != nil {
				t.Fatalf("restore: %v", err)
			}
			for i := range existing {
				if existing[i] == theirs && !cmp.Equal(restored[i], before[i]) {
					t.Fatalf("restore changed what belongs to %s:\n%s", owner.name, cmp.Diff(before[i], restored[i]))
				}
			}
		})
	})

	t.Run("restore gives the user's own back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			users := o.adoptable(t, rd, target, o.route(t, rd, target, "before"))
			stored := users
			for i := range rapid.IntRange(1, 3).Draw(t, "changes") {
				stored = o.store(t, rd, target, o.route(t, rd, target, fmt.Sprint("route ", i)), stored)
			}
			restored, err := rd.Restore(target, stored)
			if err != nil {
				t.Fatalf("restore: %v", err)
			}
			for i, ref := range rd.Refs(target) {
				if diff := cmp.Diff(users[i], restored[i]); diff != "" && !ref.Derived {
					t.Fatalf("restored %s (-user's +got):\n%s", ref, diff)
				}
			}
		})
	})

	t.Run("restore leaves what was made for the release", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			stored := o.store(t, rd, target, o.route(t, rd, target, "route"), o.absent(rd, target))
			restored, err := rd.Restore(target, stored)
			if err != nil {
				t.Fatalf("restore: %v", err)
			}
			for i, ref := range rd.Refs(target) {
				switch {
				case ref.Shared:
					stored[i] = o.absent(rd, target)[i] // the user's
				case stored[i] != nil && ref.Namespace == "":
					stored[i] = nil // nothing collects what has no owner
				}
			}
			if diff := difference(stored, restored); diff != "" {
				t.Fatalf("restored (-stored +got):\n%s", diff)
			}
		})
	})

	t.Run("what is not declared is refused", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			declared := rd.Features(target)
			for _, x := range demands {
				if x.declared(declared) {
					continue
				}
				demanding := target
				demanding.Canary = target.Canary.DeepCopy()
				route := release.Route{}
				x.demand(demanding.Canary, &route)
				if got, err := rd.Render(demanding, route, o.absent(rd, demanding)); !errors.Is(err, traffic.ErrUnsupported) {
					t.Fatalf("%s: got %v, error %v, want ErrUnsupported", x.name, got, err)
				}
			}
		})
	})

	t.Run("weights beyond the total are refused", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			target := o.target(t)
			for _, weight := range []int{-1, 101} {
				if _, err := rd.Render(target, release.Route{Canary: weight}, o.absent(rd, target)); err == nil {
					t.Fatalf("accepted a weight of %d", weight)
				}
			}
		})
	})
}

// target draws a Canary for the provider.
func (o Options) target(t *rapid.T) traffic.Target {
	c := canaries(t)
	c.Spec.Provider = o.Provider
	if o.Canary != nil {
		o.Canary(t, c)
	}
	return traffic.TargetOf(c, o.Provider, rapid.SampledFrom([]string{"", "app"}).Draw(t, "selector label"))
}

// route draws what the renderer declares to be able to make, in a form that the provider accepts.
func (o Options) route(t *rapid.T, rd traffic.Renderer, target traffic.Target, label string) release.Route {
	r := routes(t, rd, target, label)
	if o.Route != nil {
		o.Route(t, &r)
	}
	return r
}

// store renders over what exists, and stands for the applier and the API server.
func (o Options) store(t *rapid.T, rd traffic.Renderer, target traffic.Target, route release.Route, existing []*unstructured.Unstructured) []*unstructured.Unstructured {
	rendered := must(rd.Render(target, route, existing))(t)
	out := copies(rendered)
	for i, obj := range out {
		if obj == nil {
			continue
		}
		if existing[i] == nil {
			attribute(target.Canary, obj)
		}
		if o.Admission == nil {
			continue
		}
		if err := o.Admission.Complete(obj); err != nil {
			t.Fatalf("%s %s of %s: %v", obj.GetKind(), obj.GetName(), route, err)
		}
	}
	return out
}

// adoptable are objects of the names that the release needs and that a user made, where a release would take them over.
// What they look like is taken from another release, for want of a user.
func (o Options) adoptable(t *rapid.T, rd traffic.Renderer, target traffic.Target, route release.Route) []*unstructured.Unstructured {
	given := o.absent(rd, target)
	out := o.store(t, rd, target, route, given)
	for i, ref := range rd.Refs(target) {
		if ref.Derived || ref.Shared {
			out[i] = given[i]
		}
		obj := out[i]
		if obj == nil || !ref.Owned {
			continue
		}
		obj.SetOwnerReferences(nil)
		obj.SetAnnotations(rapid.SampledFrom([]map[string]string{
			nil, {"note": "mine"}, {"kustomize.toolkit.fluxcd.io/reconcile": "enabled"},
		}).Draw(t, "annotations"))
		obj.SetLabels(rapid.SampledFrom([]map[string]string{nil, {"mine": "yes", "tier": "old"}}).Draw(t, "labels"))
		spec, _ := obj.Object["spec"].(map[string]any)
		for _, key := range rapid.SampledFrom([][]string{nil, {"hosts", "hostnames"}, {"trafficPolicy"}}).Draw(t, "without") {
			delete(spec, key)
		}
	}
	return out
}

// unknowns are the fields of others in the objects of a release.
func (o Options) unknowns(rd traffic.Renderer, target traffic.Target) unknowns {
	u := unknowns{admission: o.Admission, whole: o.Whole, sides: []string{target.Primary, target.CanaryService}}
	if o.Copies {
		u.follows = func(obj *unstructured.Unstructured) bool {
			return slices.ContainsFunc(rd.Refs(target), func(ref traffic.Ref) bool {
				return ref.Derived && ref.GVK.Kind == obj.GetKind() && ref.Name == obj.GetName()
			})
		}
	}
	return u
}

// absent is what exists before a release: nothing but what the user has to make.
func (o Options) absent(rd traffic.Renderer, target traffic.Target) []*unstructured.Unstructured {
	if o.Given != nil {
		return o.Given(target)
	}
	return make([]*unstructured.Unstructured, len(rd.Refs(target)))
}

func each(objs []*unstructured.Unstructured, change func(*unstructured.Unstructured) *unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		if obj != nil {
			out[i] = change(obj)
		}
	}
	return out
}

func copies(objs []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		if obj != nil {
			out[i] = obj.DeepCopy()
		}
	}
	return out
}

// difference of objects. Not to have any is the same in all forms of a list.
func difference(want, got []*unstructured.Unstructured) string {
	if len(want) == 0 && len(got) == 0 {
		return ""
	}
	return cmp.Diff(want, got)
}

// must takes the results of Render, in one expression.
func must(objs []*unstructured.Unstructured, err error) func(*rapid.T) []*unstructured.Unstructured {
	return func(t *rapid.T) []*unstructured.Unstructured {
		if err != nil {
			t.Fatalf("render: %v", err)
		}
		return objs
	}
}

// attribute says of a new object whose it is, as the applier does.
func attribute(c *flaggerv1.Canary, obj *unstructured.Unstructured) {
	if obj.GetNamespace() != "" {
		obj.SetOwnerReferences(controlledBy(c))
		return
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[traffic.CanaryAnnotation] = c.Namespace + "/" + c.Name
	obj.SetAnnotations(annotations)
}

func controlledBy(c *flaggerv1.Canary) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: flaggerv1.SchemeGroupVersion.String(), Kind: flaggerv1.CanaryKind, Name: c.Name, UID: c.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
}

type stranger struct {
	name        string
	references  []metav1.OwnerReference
	annotations map[string]string
}

// strangers are those who may have an object that a release needs.
var strangers = []stranger{
	{name: "another Canary", references: []metav1.OwnerReference{{
		APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "basket", UID: "other", Controller: new(true),
	}}},
	{name: "an earlier Canary", references: []metav1.OwnerReference{{
		APIVersion: "flagger.app/v1beta1", Kind: "Canary", Name: "cart", UID: "earlier", Controller: new(true),
	}}},
	{name: "another controller", references: []metav1.OwnerReference{{
		APIVersion: "example.com/v1", Kind: "Mesh", Name: "cart", UID: "mesh", Controller: new(true),
	}}},
	{name: "a Canary without owner references", annotations: map[string]string{traffic.CanaryAnnotation: "web/basket"}},
	{name: "a Canary that took it over", annotations: map[string]string{traffic.OriginalAnnotation: `{"canary":"web/basket"}`}},
}

// demand is a route that needs one feature more than nothing.
type demand struct {
	name     string
	declared func(traffic.Features) bool
	demand   func(*flaggerv1.Canary, *release.Route)
}

var demands = []demand{
	{"weights", func(f traffic.Features) bool { return f.Weights }, func(_ *flaggerv1.Canary, r *release.Route) { r.Canary = 20 }},
	{"matches", func(f traffic.Features) bool { return f.Matches }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Matches = []release.Match{{Headers: map[string]release.StringMatch{"x-user": {Exact: "insider"}}}}
	}},
	{"query parameters", func(f traffic.Features) bool { return f.QueryParams }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Matches = []release.Match{{QueryParams: map[string]release.StringMatch{"user": {Exact: "insider"}}}}
	}},
	{"source labels", func(f traffic.Features) bool { return f.SourceLabels }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Matches = []release.Match{{SourceLabels: map[string]string{"zone": "a"}}}
	}},
	{"mirror in blue/green", func(f traffic.Features) bool { return f.Mirror }, func(c *flaggerv1.Canary, r *release.Route) {
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Iterations: 3, Mirror: true}
		r.Mirror.On = true
	}},
	{"mirror before weights", func(f traffic.Features) bool { return f.WeightedMirror }, func(c *flaggerv1.Canary, r *release.Route) {
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{StepWeight: 20, Mirror: true}
		r.Mirror.On = true
	}},
	{"mirror a share", func(f traffic.Features) bool { return f.MirrorPercent }, func(c *flaggerv1.Canary, r *release.Route) {
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Iterations: 3, Mirror: true, MirrorWeight: 30}
		r.Mirror = release.Mirror{On: true, Percent: 30}
	}},
	{"session affinity", func(f traffic.Features) bool { return f.Sticky }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Sticky = &release.Sticky{Canary: release.Cookie{Name: "ship", Value: "abc", MaxAge: 60}}
	}},
	{"session affinity of the primary", func(f traffic.Features) bool { return f.PrimarySticky }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Sticky = &release.Sticky{Primary: release.Cookie{Name: "anchor", Value: "abc", MaxAge: 60}}
	}},
	{"experiments", func(f traffic.Features) bool { return f.Others }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.Others = []release.Destination{{Service: "cart-exp", Weight: 5}}
	}},
	{"max weight", func(f traffic.Features) bool { return f.MaxWeight }, func(_ *flaggerv1.Canary, r *release.Route) { r.Total = 1000 }},
	{"header routes", func(f traffic.Features) bool { return f.HeaderRoutes }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.HeaderRoutes = []release.HeaderRoute{{Name: "testers"}}
	}},
	{"mirror routes", func(f traffic.Features) bool { return f.MirrorRoutes }, func(_ *flaggerv1.Canary, r *release.Route) {
		r.MirrorRoutes = []release.MirrorRoute{{Name: "shadow"}}
	}},
	{"A/B and mirror together", func(traffic.Features) bool { return false }, func(c *flaggerv1.Canary, r *release.Route) {
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Iterations: 3}
		r.Mirror.On = true
		r.Matches = []release.Match{{Headers: map[string]release.StringMatch{"x-user": {Exact: "insider"}}}}
	}},
}
