package traffictest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Golden plays the files of a folder against a renderer. The commands:
//
//	canary              sets the Canary to the YAML that follows (name, namespace and UID are given); nothing exists
//	canary change       the same, and what exists stays
//	existing            adds the YAML that follows to what exists, in place of an object of that kind and name
//	render canary=N     renders (mirror, mirror=PERCENT; cookies and matches come from the Canary), prints what is
//	                    other than before, and stores it
//	read                prints what is read
//	restore             prints what is other after restoring, and stores it
//
// Run the test with -rewrite to write what comes out, then read the difference as a change of behaviour.
func Golden(t *testing.T, rd traffic.Renderer, provider, dir string) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		g := &golden{renderer: rd, provider: provider}
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
	renderer traffic.Renderer
	provider string
	target   traffic.Target
	existing []*unstructured.Unstructured
}

func (g *golden) run(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "canary":
		return "ok\n", g.canary(d)
	case "existing":
		return "ok\n", g.exists(t, d.Input)
	case "render":
		route, err := g.route(d)
		if err != nil {
			return "", err
		}
		rendered, err := g.renderer.Render(g.target, route, g.existing)
		return g.news(rendered, err)
	case "read":
		seen, err := g.renderer.Read(g.target, g.existing)
		if err != nil {
			return "", err
		}
		if !seen.Found {
			return "not found\n", nil
		}
		out := seen.Route.String() + "\nconfirmed: " + string(seen.Confirmed) + "\n"
		if seen.Reason != "" {
			out += seen.Reason + "\n"
		}
		return out, nil
	case "restore":
		return g.news(g.renderer.Restore(g.target, g.existing))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return "", nil
	}
}

func (g *golden) canary(d *datadriven.TestData) error {
	c := &flaggerv1.Canary{}
	if err := yaml.UnmarshalStrict([]byte(d.Input), c); err != nil {
		return err
	}
	c.Name, c.Namespace, c.UID = "cart", "web", "0d3a5fd7-uid"
	if c.Spec.TargetRef.Name == "" {
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}
	}
	g.target = traffic.TargetOf(c, g.provider, "app")
	if !d.HasArg("change") {
		g.existing = make([]*unstructured.Unstructured, len(g.renderer.Refs(g.target)))
	}
	return nil
}

func (g *golden) exists(t *testing.T, input string) error {
	obj := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON([]byte(input))
	if err != nil {
		return err
	}
	if err := obj.UnmarshalJSON(text); err != nil {
		return err
	}
	for i, ref := range g.renderer.Refs(g.target) {
		if ref.GVK.Kind == obj.GetKind() && ref.Name == obj.GetName() {
			g.existing[i] = obj
			return nil
		}
	}
	t.Fatalf("%s %s is none of the objects", obj.GetKind(), obj.GetName())
	return nil
}

func (g *golden) route(d *datadriven.TestData) (release.Route, error) {
	r := release.Route{
		Matches: traffic.Matches(g.target.Canary),
		Sticky:  traffic.Sticky(g.target.Canary, g.target.Canary.Status),
	}
	for _, arg := range d.CmdArgs {
		number := 0
		if len(arg.Vals) > 0 {
			var err error
			if number, err = strconv.Atoi(arg.Vals[0]); err != nil {
				return r, err
			}
		}
		switch arg.Key {
		case "canary":
			r.Canary = number
		case "mirror":
			r.Mirror = release.Mirror{On: true, Percent: number}
		default:
			return r, fmt.Errorf("unknown argument %s", arg.Key)
		}
	}
	return r, nil
}

// news stores the objects and prints those that changed.
func (g *golden) news(objs []*unstructured.Unstructured, err error) (string, error) {
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i, obj := range objs {
		before, after, err := g.text(i, g.existing[i], obj)
		if err != nil {
			return "", err
		}
		if before != after {
			b.WriteString(after)
		}
		if obj != nil && g.existing[i] == nil {
			attribute(g.target.Canary, obj)
		}
		g.existing[i] = obj
	}
	if b.Len() == 0 {
		return "nothing changes\n", nil
	}
	return b.String(), nil
}

func (g *golden) text(i int, before, after *unstructured.Unstructured) (string, string, error) {
	ref := g.renderer.Refs(g.target)[i]
	was, err := shown(ref, before)
	if err != nil {
		return "", "", err
	}
	is, err := shown(ref, after)
	return was, is, err
}

// shown is an object as golden files have it: what does not come from the renderer is left out.
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
