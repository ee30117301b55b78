package traffictest

import (
	"errors"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// fixture is one release of a law, and a renderer for it.
type fixture struct {
	traffic.Renderer
	options Options
	target  traffic.Target
}

func newFixture(t *rapid.T, rd traffic.Renderer, o Options) *fixture {
	f := &fixture{Renderer: rd, options: o}
	if o.Rollout == nil {
		c := canaries(t)
		c.Spec.Provider = o.Provider
		if o.Canary != nil {
			o.Canary(t, c)
		}
		f.target = traffic.NewCanaryTarget(c, o.Provider, rapid.SampledFrom([]string{"", "app"}).Draw(t, "selector label"))
		return f
	}
	ro := rollout()
	o.Rollout(t, ro)
	router := traffic.Router{Name: o.Provider, Renderer: rd}
	stable := rapid.SampledFrom([]string{"77c9", "6d4f"}).Draw(t, "stable hash")
	f.target = router.Target(ro, rapid.SampledFrom([]string{"6d4f", ""}).Draw(t, "canary hash"), stable)
	f.target.PodAnnotations = o.PodAnnotations
	f.target.Drained = rapid.Bool().Draw(t, "drained")
	return f
}

// objects are those of a cluster, by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

func keyOf(obj *unstructured.Unstructured) string {
	return obj.GetKind() + " " + obj.GetNamespace() + "/" + obj.GetName()
}

func keyOfRef(ref traffic.Ref) string { return ref.GVK.Kind + " " + ref.Namespace + "/" + ref.Name }

func (o objects) copy() objects {
	out := objects{}
	for key, obj := range o {
		out[key] = obj.DeepCopy()
	}
	return out
}

// given are the objects that exist before a release.
func (f *fixture) given(t *rapid.T) objects {
	out := objects{}
	if f.options.Given == nil {
		return out
	}
	for _, obj := range f.options.Given(f.target) {
		f.complete(t, obj)
		out[keyOf(obj)] = obj
	}
	return out
}

// before are the objects that exist before a release, among them possibly some that a Canary adopts.
func (f *fixture) before(t *rapid.T) objects {
	out := f.given(t)
	if f.target.Canary == nil || !rapid.Bool().Draw(t, "adopts") {
		return out
	}
	// The user's objects are like those of another release.
	route := f.route(t, "before")
	for _, x := range f.find(route, f.apply(t, route, out)) {
		if x.Object == nil || !x.Ref.Owned || x.Ref.Derived {
			continue
		}
		x.Object.SetOwnerReferences(nil)
		x.Object.SetAnnotations(rapid.SampledFrom([]map[string]string{
			nil, {"note": "mine"}, {"kustomize.toolkit.fluxcd.io/reconcile": "enabled"},
		}).Draw(t, "annotations"))
		x.Object.SetLabels(rapid.SampledFrom([]map[string]string{nil, {"mine": "yes", "tier": "old"}}).Draw(t, "labels"))
		spec, _ := x.Object.Object["spec"].(map[string]any)
		for _, key := range rapid.SampledFrom([][]string{nil, {"hosts", "hostnames"}, {"trafficPolicy"}}).Draw(t, "without") {
			delete(spec, key)
		}
		out[keyOf(x.Object)] = x.Object
	}
	return out
}

// find reads objects like the applier.
func (f *fixture) find(r release.Route, stored objects) traffic.Objects {
	return find(f.Renderer, f.target, r, stored)
}

func find(rd traffic.Renderer, t traffic.Target, r release.Route, stored objects) traffic.Objects {
	return Find(rd, t, r, slices.Collect(maps.Values(stored)))
}

// Find returns those of the objects that belong to a route, as an applier finds them.
func Find(rd traffic.Renderer, t traffic.Target, r release.Route, among []*unstructured.Unstructured) traffic.Objects {
	out, err := traffic.FindObjects(rd, t, r, func(ref traffic.Ref) (traffic.Objects, error) {
		selector, err := labels.Parse(ref.Selector)
		if err != nil {
			return nil, err
		}
		var existing traffic.Objects
		for _, obj := range among {
			sameKind := obj.GetKind() == ref.GVK.Kind && obj.GetNamespace() == ref.Namespace
			if sameKind && (ref.Name == obj.GetName() || ref.Name == "" && selector.Matches(labels.Set(obj.GetLabels()))) {
				one := ref
				one.Name = obj.GetName()
				existing = append(existing, traffic.Lookup{Ref: one, Object: obj})
			}
		}
		if ref.Name != "" && len(existing) == 0 {
			existing = traffic.Objects{{Ref: ref}}
		}
		slices.SortFunc(existing, func(a, b traffic.Lookup) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
		return existing, nil
	})
	if err != nil {
		panic(err)
	}
	return out
}

func (f *fixture) render(t *rapid.T, r release.Route, existing traffic.Objects) []*unstructured.Unstructured {
	rendered, err := f.Render(f.target, r, existing)
	if err != nil {
		t.Fatalf("render %s: %v", r, err)
	}
	return rendered
}

func (f *fixture) restore(t *rapid.T, existing traffic.Objects) []*unstructured.Unstructured {
	restored, err := f.Restore(f.target, existing)
	if err != nil && !errors.Is(err, traffic.ErrNoOriginal) {
		t.Fatalf("restore: %v", err)
	}
	return restored
}

func (f *fixture) validate(existing traffic.Objects) field.ErrorList {
	return validate(f.Renderer, f.target, existing)
}

func validate(rd traffic.Renderer, t traffic.Target, existing traffic.Objects) field.ErrorList {
	if validator, ok := rd.(traffic.Validator); ok {
		return validator.Validate(t, existing)
	}
	return nil
}

// apply renders the stored objects, and stores the result like the applier and the API server.
func (f *fixture) apply(t *rapid.T, r release.Route, stored objects) objects {
	existing := f.find(r, stored)
	out := f.save(t, existing, f.render(t, r, existing))
	for key, obj := range stored {
		if !slices.ContainsFunc(existing, func(x traffic.Lookup) bool { return x.Object == obj }) {
			out[key] = obj.DeepCopy() // it does not belong to the route
		}
	}
	return out
}

// save stores the desired objects.
func (f *fixture) save(t *rapid.T, existing traffic.Objects, desired []*unstructured.Unstructured) objects {
	out := objects{}
	for i, obj := range desired {
		if obj == nil {
			continue
		}
		obj = obj.DeepCopy()
		if existing[i].Object == nil {
			setOwner(f.target, obj)
		}
		f.complete(t, obj)
		out[keyOf(obj)] = obj
	}
	return out
}

func (f *fixture) complete(t *rapid.T, obj *unstructured.Unstructured) {
	if f.options.Admission == nil {
		return
	}
	if err := f.options.Admission.Complete(obj); err != nil {
		t.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
}

// setOwner marks a new object as created for the release, as the applier does.
func setOwner(t traffic.Target, obj *unstructured.Unstructured) {
	if obj.GetNamespace() != "" {
		obj.SetOwnerReferences([]metav1.OwnerReference{t.OwnerReference()})
		return
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[traffic.CanaryAnnotation] = t.Canary.Namespace + "/" + t.Canary.Name
	obj.SetAnnotations(annotations)
}

// unknowns are the unknown fields for the objects of the release.
func (f *fixture) unknowns() unknowns {
	u := unknowns{admission: f.options.Admission, exempt: f.options.Exempt, sides: []string{f.target.StableService, f.target.CanaryService}}
	if f.options.Copies {
		u.follows = func(obj *unstructured.Unstructured) bool { return f.target.Owns(obj) }
	}
	return u
}

// otherOwner is another owner of an object that a release needs.
type otherOwner struct {
	name        string
	references  []metav1.OwnerReference
	annotations map[string]string
}

func otherOwners(t traffic.Target, ref traffic.Ref) []otherOwner {
	kind := t.OwnerReference()
	controlledBy := func(apiVersion, kind, name, uid string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(true)}}
	}
	out := []otherOwner{
		{name: "another release", references: controlledBy(kind.APIVersion, kind.Kind, "basket", "other")},
		{name: "an earlier release of the same name", references: controlledBy(kind.APIVersion, kind.Kind, "cart", "earlier")},
		{name: "another controller", references: controlledBy("example.com/v1", "Mesh", "cart", "mesh")},
	}
	if t.Canary == nil {
		return out
	}
	if ref.Derived {
		out = append(out, otherOwner{name: "no controller"})
	}
	return append(out,
		otherOwner{name: "a Canary without owner references", annotations: map[string]string{traffic.CanaryAnnotation: "web/basket"}},
		otherOwner{name: "a Canary that adopted it", annotations: map[string]string{traffic.OriginalAnnotation: `{"canary":"web/basket"}`}})
}

// demands are routes that require exactly one feature; those of a Canary with the analysis.
var demands = []struct {
	name     string
	declared func(traffic.Features) bool
	analysis *flaggerv1.CanaryAnalysis
	route    release.Route
}{
	{"weights", func(f traffic.Features) bool { return f.Weights }, nil, release.Route{Canary: 20}},
	{"matches", func(f traffic.Features) bool { return f.Matches }, nil, release.Route{
		Matches: []release.Match{{Headers: map[string]release.StringMatch{"x-user": {Exact: "insider"}}}},
	}},
	{"query parameters", func(f traffic.Features) bool { return f.QueryParams }, nil, release.Route{
		Matches: []release.Match{{QueryParams: map[string]release.StringMatch{"user": {Exact: "insider"}}}},
	}},
	{"source labels", func(f traffic.Features) bool { return f.SourceLabels }, nil, release.Route{
		Matches: []release.Match{{SourceLabels: map[string]string{"zone": "a"}}},
	}},
	{
		"mirror in blue/green", func(f traffic.Features) bool { return f.Mirror },
		&flaggerv1.CanaryAnalysis{Iterations: 3, Mirror: true},
		release.Route{Mirror: release.Mirror{Enabled: true}},
	},
	{
		"mirror before weights", func(f traffic.Features) bool { return f.WeightedMirror },
		&flaggerv1.CanaryAnalysis{StepWeight: 20, Mirror: true},
		release.Route{Mirror: release.Mirror{Enabled: true}},
	},
	{
		"mirror a share", func(f traffic.Features) bool { return f.MirrorPercent },
		&flaggerv1.CanaryAnalysis{Iterations: 3, Mirror: true, MirrorWeight: 30},
		release.Route{Mirror: release.Mirror{Enabled: true, Percent: 30}},
	},
	{"session affinity", func(f traffic.Features) bool { return f.Sticky }, nil, release.Route{
		Sticky: &release.Sticky{Canary: release.Cookie{Name: "ship", Value: "abc", MaxAge: 60}},
	}},
	{"session affinity of the primary", func(f traffic.Features) bool { return f.PrimarySticky }, nil, release.Route{
		Sticky: &release.Sticky{Primary: release.Cookie{Name: "anchor", Value: "abc", MaxAge: 60}},
	}},
	{"experiments", func(f traffic.Features) bool { return f.Others }, nil, release.Route{
		Others: []release.Destination{{Service: "cart-exp", Weight: 5}},
	}},
	{"max weight", func(f traffic.Features) bool { return f.MaxWeight }, nil, release.Route{Total: 1000}},
	{"header routes", func(f traffic.Features) bool { return f.HeaderRoutes }, nil, release.Route{
		HeaderRoutes: []release.HeaderRoute{{Name: "testers"}},
	}},
	{"mirror routes", func(f traffic.Features) bool { return f.MirrorRoutes }, nil, release.Route{
		MirrorRoutes: []release.MirrorRoute{{Name: "shadow"}},
	}},
	{
		"A/B and mirror together", func(traffic.Features) bool { return false },
		&flaggerv1.CanaryAnalysis{Iterations: 3},
		release.Route{
			Mirror:  release.Mirror{Enabled: true},
			Matches: []release.Match{{Headers: map[string]release.StringMatch{"x-user": {Exact: "insider"}}}},
		},
	},
}

// NewObject returns an object of a user with that name and spec.
func NewObject(ref traffic.Ref, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(ref.GVK)
	obj.SetNamespace(ref.Namespace)
	obj.SetName(ref.Name)
	return obj
}
