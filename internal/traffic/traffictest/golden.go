package traffictest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Golden runs the files of a folder against a renderer. The commands:
//
//	canary              sets the Canary to the YAML that follows (name, namespace and UID are set); removes all objects
//	canary change       the same, but retains all objects
//	rollout             sets a Rollout's spec.strategy.canary to the YAML that follows (name, namespace and UID are set; without
//	                    other names the Services are cart-canary and cart-stable); removes all objects
//	pods HASH           sets the annotations of the pods of a revision to the YAML that follows; with the hash template: those of
//	                    the Rollout's template
//	existing            adds the object in the YAML that follows, or replaces the one of that kind and name
//	render canary=N     renders, prints the changed objects, and stores them. For a Canary: mirror, mirror=PERCENT; cookies
//	                    and matches are in the Canary. For a Rollout: total=N, other=(name:N), header=(names of steps),
//	                    mirror=(names of steps), canary-hash=H, stable-hash=H, drained
//	read                prints the route that the objects describe
//	validate            prints the errors that validation finds
//	restore             restores, prints the changed objects, and stores them
//
// Run the test with -rewrite to record the output, then review the diff as a change in behavior.
func Golden(t *testing.T, rd traffic.Renderer, provider, dir string) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		g := &golden{router: traffic.Router{Name: provider, Renderer: rd}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := g.run(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

type golden struct {
	router traffic.Router
	target traffic.Target
	stored objects
}

func (g *golden) run(t *testing.T, d *datadriven.TestData) (string, error) {
	rd := g.router.Renderer
	switch d.Cmd {
	case "canary":
		return "ok\n", g.setCanary(d)
	case "rollout":
		return "ok\n", g.setRollout(d)
	case "pods":
		return "ok\n", g.setPods(d)
	case "existing":
		return "ok\n", g.addExisting(d.Input)
	case "render":
		route, err := g.route(d)
		if err != nil {
			return "", err
		}
		existing := find(rd, g.target, route, g.stored)
		rendered, err := rd.Render(g.target, route, existing)
		return g.store(existing, rendered, err)
	case "read":
		seen, err := rd.Read(g.target, g.all())
		return observed(g.target, seen), err
	case "validate":
		faults := validate(rd, g.target, g.all())
		if len(faults) == 0 {
			return "valid\n", nil
		}
		var b strings.Builder
		for _, fault := range faults {
			b.WriteString(fault.Error() + "\n")
		}
		return b.String(), nil
	case "restore":
		existing := g.all()
		restored, err := rd.Restore(g.target, existing)
		return g.store(existing, restored, err)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return "", nil
	}
}

func observed(t traffic.Target, seen traffic.Observed) string {
	if !seen.Found {
		return "not found\n"
	}
	var b strings.Builder
	if t.Canary != nil {
		b.WriteString(seen.Route.String())
		if seen.Matched && seen.Route.Canary > 0 {
			b.WriteString(" of matching requests")
		}
	} else {
		b.WriteString("canary=" + strconv.Itoa(seen.Route.Canary))
	}
	for _, d := range seen.Route.Others {
		fmt.Fprintf(&b, " %s=%d", d.Service, d.Weight)
	}
	b.WriteString("\nconfirmed: " + string(seen.Confirmed) + "\n")
	if seen.Reason != "" {
		b.WriteString(seen.Reason + "\n")
	}
	if seen.Unreported != nil {
		fmt.Fprintf(&b, "no report on %s for %s\n", seen.Unreported.Route, seen.Unreported.Parent)
	}
	return b.String()
}

func (g *golden) all() traffic.Objects {
	return find(g.router.Renderer, g.target, release.Route{}, g.stored)
}

func (g *golden) setCanary(d *datadriven.TestData) error {
	c := &flaggerv1.Canary{}
	if err := yaml.UnmarshalStrict([]byte(d.Input), c); err != nil {
		return err
	}
	c.Name, c.Namespace, c.UID = "cart", "web", "0d3a5fd7-uid"
	if c.Spec.TargetRef.Name == "" {
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	}
	g.target = traffic.NewCanaryTarget(c, g.router.Name, "app")
	if !d.HasArg("change") {
		g.stored = objects{}
	}
	return nil
}

func (g *golden) setRollout(d *datadriven.TestData) error {
	canary := &argov1.CanaryStrategy{}
	if err := yaml.UnmarshalStrict([]byte(d.Input), canary); err != nil {
		return err
	}
	if canary.CanaryService == "" && canary.StableService == "" && canary.PingPong == nil && !d.HasArg("without-services") {
		canary.CanaryService, canary.StableService = "cart-canary", "cart-stable"
	}
	ro := rollout()
	ro.Spec.Strategy.Canary = canary
	if d.HasArg("stable-ping") {
		ro.Status.Canary.StablePingPong = argov1.Ping
	}
	if names := traffic.RouterNames(canary.TrafficRouting); len(names) == 0 || names[0] != g.router.Name {
		return fmt.Errorf("the Rollout has routers %v, want %s", names, g.router.Name)
	}
	g.stored = objects{}
	g.target = g.router.Target(ro, "6d4f", "77c9")
	return nil
}

func (g *golden) setPods(d *datadriven.TestData) error {
	var annotations map[string]string
	if err := yaml.UnmarshalStrict([]byte(d.Input), &annotations); err != nil {
		return err
	}
	hash := d.CmdArgs[0].Key
	if hash == "template" {
		g.target.Rollout.Spec.Template.Annotations = annotations
		return nil
	}
	if g.target.PodAnnotations == nil {
		g.target.PodAnnotations = map[string]map[string]string{}
	}
	g.target.PodAnnotations[hash] = annotations
	return nil
}

func (g *golden) addExisting(input string) error {
	obj := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON([]byte(input))
	if err != nil {
		return err
	}
	if err := obj.UnmarshalJSON(text); err != nil {
		return err
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(g.namespaceOf(obj))
	}
	g.stored[keyOf(obj)] = obj
	return nil
}

// namespaceOf is the namespace of the release, unless the object of that kind and name is in another one or cluster-scoped.
func (g *golden) namespaceOf(obj *unstructured.Unstructured) string {
	namespaces := map[string]bool{}
	for _, x := range g.all() {
		if x.Ref.GVK.Kind == obj.GetKind() && x.Ref.Name == obj.GetName() {
			namespaces[x.Ref.Namespace] = true
		}
	}
	if len(namespaces) == 0 || namespaces[g.target.Namespace] {
		return g.target.Namespace
	}
	return slices.Min(slices.Collect(maps.Keys(namespaces)))
}

func (g *golden) route(d *datadriven.TestData) (release.Route, error) {
	var r release.Route
	if g.target.Canary != nil {
		r.Matches = traffic.Matches(g.target.Canary)
		r.Sticky = traffic.Sticky(g.target.Canary, g.target.Canary.Status)
	}
	g.target.CanaryHash, g.target.StableHash, g.target.Drained = "6d4f", "77c9", false
	for _, arg := range d.CmdArgs {
		var err error
		switch arg.Key {
		case "canary":
			r.Canary, err = strconv.Atoi(arg.Vals[0])
		case "total":
			r.Total, err = strconv.Atoi(arg.Vals[0])
		case "other":
			r.Others, err = destinations(arg.Vals)
		case "header", "mirror":
			err = g.addRoutes(&r, arg.Vals)
		case "canary-hash":
			g.target.CanaryHash = strings.Join(arg.Vals, "")
		case "stable-hash":
			g.target.StableHash = strings.Join(arg.Vals, "")
		case "drained":
			g.target.Drained = true
		default:
			err = fmt.Errorf("unknown argument %s", arg.Key)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func destinations(values []string) ([]release.Destination, error) {
	var out []release.Destination
	for _, value := range values {
		name, weight, _ := strings.Cut(value, ":")
		number, err := strconv.Atoi(weight)
		if err != nil {
			return nil, err
		}
		out = append(out, release.Destination{Service: name, Weight: number, Revision: "58b1"})
	}
	return out, nil
}

// addRoutes adds the managed routes of the named steps of a Rollout, or the mirror of a Canary.
func (g *golden) addRoutes(r *release.Route, values []string) (err error) {
	if g.target.Canary != nil {
		r.Mirror.Enabled = true
		if len(values) > 0 {
			r.Mirror.Percent, err = strconv.Atoi(values[0])
		}
		return err
	}
	for _, step := range g.target.Rollout.Spec.Strategy.Canary.Steps {
		if s := step.SetHeaderRoute; s != nil && slices.Contains(values, s.Name) && len(s.Match) > 0 {
			r.HeaderRoutes = append(r.HeaderRoutes, traffic.HeaderRoute(*s))
		}
		if s := step.SetMirrorRoute; s != nil && slices.Contains(values, s.Name) && len(s.Match) > 0 {
			r.MirrorRoutes = append(r.MirrorRoutes, traffic.MirrorRoute(*s))
		}
	}
	return nil
}

// store stores the desired objects and prints those that changed.
func (g *golden) store(existing traffic.Objects, desired []*unstructured.Unstructured, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, obj := range desired {
		was, err := shown(existing[i].Ref, existing[i].Object)
		if err != nil {
			return "", err
		}
		now, err := shown(existing[i].Ref, obj)
		if err != nil {
			return "", err
		}
		if was != now {
			b.WriteString(now)
		}
		if obj == nil {
			maps.DeleteFunc(g.stored, func(_ string, stored *unstructured.Unstructured) bool { return stored == existing[i].Object })
			continue
		}
		if existing[i].Object == nil {
			setOwner(g.target, obj)
		}
		g.stored[keyOf(obj)] = obj
	}
	if b.Len() == 0 {
		return "nothing changes\n", nil
	}
	return b.String(), nil
}

// shown is an object in the format of golden files, without fields that the renderer does not write.
func shown(ref traffic.Ref, obj *unstructured.Unstructured) (string, error) {
	if obj == nil {
		return fmt.Sprintf("# no %s\n", ref), nil
	}
	out := obj.DeepCopy()
	out.SetOwnerReferences(nil)
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"status"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		unstructured.RemoveNestedField(out.Object, path...)
	}
	if metadata, _ := out.Object["metadata"].(map[string]any); len(metadata) == 0 {
		delete(out.Object, "metadata")
	}
	text, err := yaml.Marshal(out.Object)
	return fmt.Sprintf("# %s %s/%s\n%s", obj.GetKind(), obj.GetAPIVersion(), obj.GetName(), text), err
}
