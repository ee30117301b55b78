package traffictest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// GoldenRollout plays the files of a folder against a router of Rollouts. The commands:
//
//	rollout               sets spec.strategy.canary to the YAML that follows (name, namespace and UID are given; without
//	                      other names the Services are cart-canary and cart-stable); nothing exists
//	existing              adds the YAML that follows to what exists
//	render canary=N       renders, prints what is other than before, and stores it. More: total=N, other=(name=N),
//	                      header=(names of steps), mirror=(names of steps), canary-hash=H, stable-hash=H, drained
//	read                  prints what is read
//	validate              prints what of the existing objects does not fit
//	restore               prints what is other after restoring, and stores it
func GoldenRollout(t *testing.T, routers traffic.RolloutRenderers, dir string) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		g := &goldenRollout{routers: routers}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := g.run(t, d)
			if err != nil {
				return "error: " + err.Error() + "\n"
			}
			return out
		})
	})
}

type goldenRollout struct {
	routers traffic.RolloutRenderers
	router  traffic.RolloutRouter
	target  traffic.RolloutTarget
	stored  objects
}

func (g *goldenRollout) run(t *testing.T, d *datadriven.TestData) (string, error) {
	switch d.Cmd {
	case "rollout":
		return "ok\n", g.rollout(d)
	case "existing":
		return "ok\n", g.exists(d.Input)
	case "render":
		route, err := g.route(d)
		if err != nil {
			return "", err
		}
		existing := findObjects(g.router.Renderer, g.target, route, g.stored)
		rendered, err := g.router.Renderer.Render(g.target, g.router.Route(g.target, route), existing)
		if err != nil {
			return "", err
		}
		return g.news(existing, rendered)
	case "read":
		seen, err := g.router.Renderer.Read(g.target, g.all())
		if err != nil {
			return "", err
		}
		return told(seen), nil
	case "validate":
		faults := g.router.Renderer.Validate(g.target, g.all())
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
		return g.news(existing, g.router.Renderer.Restore(g.target, existing))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
		return "", nil
	}
}

func told(seen traffic.Observed) string {
	if !seen.Found {
		return "not found\n"
	}
	var b strings.Builder
	b.WriteString("canary=" + strconv.Itoa(seen.Route.Canary))
	for _, d := range seen.Route.Others {
		fmt.Fprintf(&b, " %s=%d", d.Service, d.Weight)
	}
	b.WriteString("\nconfirmed: " + string(seen.Confirmed) + "\n")
	if seen.Reason != "" {
		b.WriteString(seen.Reason + "\n")
	}
	return b.String()
}

func (g *goldenRollout) all() traffic.Objects {
	return findObjects(g.router.Renderer, g.target, release.Route{}, g.stored)
}

func (g *goldenRollout) rollout(d *datadriven.TestData) error {
	canary := &argov1.CanaryStrategy{}
	if err := yaml.UnmarshalStrict([]byte(d.Input), canary); err != nil {
		return err
	}
	if canary.CanaryService == "" && canary.StableService == "" && canary.PingPong == nil && !d.HasArg("without-services") {
		canary.CanaryService, canary.StableService = "cart-canary", "cart-stable"
	}
	ro := &argov1.Rollout{}
	ro.Name, ro.Namespace, ro.UID = "cart", "web", "0d3a5fd7-uid"
	ro.Spec.Strategy.Canary = canary
	if d.HasArg("stable-ping") {
		ro.Status.Canary.StablePingPong = argov1.Ping
	}
	routers, err := g.routers.Of(canary.TrafficRouting)
	if err != nil {
		return err
	}
	if len(routers) == 0 {
		return fmt.Errorf("no router")
	}
	g.router, g.stored = routers[0], objects{}
	g.target = g.router.Target(ro, "6d4f", "77c9")
	return nil
}

func (g *goldenRollout) exists(input string) error {
	obj := &unstructured.Unstructured{}
	text, err := yaml.YAMLToJSON([]byte(input))
	if err != nil {
		return err
	}
	if err := obj.UnmarshalJSON(text); err != nil {
		return err
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(g.target.Rollout.Namespace)
	}
	g.stored[keyOf(obj)] = obj
	return nil
}

func (g *goldenRollout) route(d *datadriven.TestData) (release.Route, error) {
	var r release.Route
	g.target.CanaryHash, g.target.StableHash, g.target.Drained = "6d4f", "77c9", false
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "canary", "total":
			number, err := strconv.Atoi(arg.Vals[0])
			if err != nil {
				return r, err
			}
			if arg.Key == "canary" {
				r.Canary = number
			} else {
				r.Total = number
			}
		case "other":
			for _, val := range arg.Vals {
				name, weight, _ := strings.Cut(val, ":")
				number, err := strconv.Atoi(weight)
				if err != nil {
					return r, err
				}
				r.Others = append(r.Others, release.Destination{Service: name, Weight: number, Revision: "58b1"})
			}
		case "header", "mirror":
			g.managed(&r, arg.Vals)
		case "canary-hash":
			g.target.CanaryHash = strings.Join(arg.Vals, "")
		case "stable-hash":
			g.target.StableHash = strings.Join(arg.Vals, "")
		case "drained":
			g.target.Drained = true
		default:
			return r, fmt.Errorf("unknown argument %s", arg.Key)
		}
	}
	return r, nil
}

// managed puts the routes of the named steps into force.
func (g *goldenRollout) managed(r *release.Route, names []string) {
	for _, step := range g.target.Rollout.Spec.Strategy.Canary.Steps {
		if s := step.SetHeaderRoute; s != nil && slices.Contains(names, s.Name) && len(s.Match) > 0 {
			r.HeaderRoutes = append(r.HeaderRoutes, traffic.HeaderRoute(*s))
		}
		if s := step.SetMirrorRoute; s != nil && slices.Contains(names, s.Name) && len(s.Match) > 0 {
			r.MirrorRoutes = append(r.MirrorRoutes, traffic.MirrorRoute(*s))
		}
	}
}

// news stores the objects and prints those that changed.
func (g *goldenRollout) news(existing traffic.Objects, rendered []*unstructured.Unstructured) (string, error) {
	var b strings.Builder
	for i, obj := range rendered {
		was, err := shown(existing[i].Ref, existing[i].Object)
		if err != nil {
			return "", err
		}
		is, err := shown(existing[i].Ref, obj)
		if err != nil {
			return "", err
		}
		if was != is {
			b.WriteString(is)
		}
		if obj == nil {
			maps.DeleteFunc(g.stored, func(_ string, stored *unstructured.Unstructured) bool { return stored == existing[i].Object })
			continue
		}
		if existing[i].Object == nil {
			obj.SetOwnerReferences([]metav1.OwnerReference{g.target.OwnerReference()})
		}
		g.stored[keyOf(obj)] = obj
	}
	if b.Len() == 0 {
		return "nothing changes\n", nil
	}
	return b.String(), nil
}
