package canary

import (
	"fmt"
	"strings"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

// relate adds to the history what processes of Serin write, in the words in which people think of a release.
func (k *Canaries) relate(happening any) {
	h, ok := happening.(sim.Wrote)
	if !ok || !kinds.Serin(h.Actor) {
		return
	}
	k.world.Say("  %s → %s %s %s%s", h.Actor, h.Verb, strings.ToLower(h.Kind.Kind), h.Key.Name, k.content(h.Event))
}

// content is what a write is about.
func (k *Canaries) content(e *store.Event) string {
	if e.Type == store.Deleted {
		return ""
	}
	spec, status := within(e.New.Content(), "spec"), within(e.New.Content(), "status")
	switch e.Kind {
	case canaryKind:
		if e.Subresource == "" {
			return fmt.Sprintf(" finalizers=%v", e.New.Meta().Finalizers)
		}
		serin := within(status, "serin")
		return fmt.Sprintf(" %v weight=%v iterations=%v failed=%v run=%.6s intent=%v", status["phase"], status["canaryWeight"], status["iterations"],
			status["failedChecks"], fmt.Sprint(serin["run"]), serin["intent"])
	case deploymentKind:
		return fmt.Sprintf(" replicas=%v version=%s", spec["replicas"], labelsOf(within(spec, "template"))["version"])
	case daemonSetKind:
		return fmt.Sprintf(" version=%s nodes=%v", labelsOf(within(spec, "template"))["version"], within(spec, "template", "spec")["nodeSelector"])
	case serviceKind:
		return fmt.Sprintf(" selector=%v", spec["selector"])
	case virtualService, httpRoute:
		var weights []string
		for _, rule := range append(kinds.Items(spec["http"]), kinds.Items(spec["rules"])...) {
			for _, to := range append(kinds.Items(rule["route"]), kinds.Items(rule["backendRefs"])...) {
				weights = append(weights, fmt.Sprint(to["weight"]))
			}
		}
		return " weights=" + strings.Join(weights, "/")
	default:
		return ""
	}
}
