package explain

import (
	"fmt"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Canary is everything that was observed of one release by a Canary.
type Canary struct {
	Context

	// Object is the stored Canary.
	Object *flaggerv1.Canary
	// Snapshot has no answers: the commands send no queries.
	Snapshot canary.Snapshot
	// Assumed are the parts of the snapshot that could not be read and are derived from the status.
	Assumed []release.Part
}

// Key names the Canary.
func (seen *Canary) Key() Key { return Key{KindCanary, seen.Object.Namespace, seen.Object.Name} }

// Version is that of the object, and of the observation.
func (seen *Canary) Version() Version {
	return Version{seen.Object.ResourceVersion, seen.Snapshot.Now}
}

// WithContext is the same with other surroundings.
func (seen *Canary) WithContext(around Context) Observation {
	other := *seen
	other.Context = around
	return &other
}

// Describe describes the release at that time.
func (seen *Canary) Describe(now time.Time) Release {
	s := seen.Snapshot
	s.Now = now
	s.OtherController = canary.OtherController{Sign: seen.OtherController.Sign, Until: seen.OtherController.Until}
	v, plan := canary.View(s, seen.Assumed...), s.Plan
	r := describe(v, seen.Context, "New revision detected!")
	r.Kind, r.Name, r.Namespace, r.Target = KindCanary, plan.Name, plan.Namespace, plan.Kind+"/"+plan.Target
	r.Provider, r.Strategy = plan.Provider, string(plan.Strategy)
	r.Suspended, r.Deleting = plan.Suspended, s.Deleting
	r.Iterations, r.TotalIterations, r.FailedChecks, r.Threshold = v.Step, v.TotalSteps, s.Status.FailedChecks, plan.Threshold
	if own := s.Status.Serin; own != nil {
		r.Run = own.Run
	}
	for _, gate := range v.Gates {
		r.Gates = append(r.Gates, seen.gate(gate, &r))
	}
	return r
}

// gate formats a gate, with the receiver of its query and what the user can do.
func (seen *Canary) gate(view release.GateView, r *Release) Gate {
	g := newGate(view, r, seen.OtherController)
	switch q := view.Question.(type) {
	case canary.SourcesQuery:
		g.Asks = "the metrics providers of all checks"
	case canary.HookQuery:
		g.Asks = "webhook " + q.Hook.Name + " at " + outbound.Redact(q.Hook.URL)
		if g.opensByUser() {
			g.Do = approval(&q.Hook, r)
		}
	case canary.MetricQuery:
		g.Asks, g.Check = source(q.Check, seen.Object), true
	}
	return g
}

// source describes the source of a measurement.
func source(check canary.Check, object *flaggerv1.Canary) string {
	if check.Source == canary.Template {
		ref := *check.Metric.TemplateRef
		if ref.Namespace == "" {
			ref.Namespace = object.Namespace
		}
		return "MetricTemplate " + ref.Name + "." + ref.Namespace
	}
	if object.Spec.MetricsServer != "" {
		return "Prometheus at " + outbound.Redact(object.Spec.MetricsServer)
	}
	return "the Prometheus of the controller"
}

// approval describes how the user makes a webhook approve; empty for one that requests rollbacks.
func approval(hook *flaggerv1.CanaryWebhook, r *Release) string {
	if hook.Type == flaggerv1.RollbackHook {
		return ""
	}
	url := outbound.Redact(hook.URL)
	base, isGate := strings.CutSuffix(url, "/gate/check") // of the load tester, whose gates users open and close
	switch {
	case isGate:
		return fmt.Sprintf(`curl -d '{"name":%q,"namespace":%q}' %s/gate/open`, r.Name, r.Namespace, base)
	case strings.HasSuffix(url, "/gate/halt"):
		return fmt.Sprintf("%s always refuses: change the URL of webhook %s in spec.analysis.webhooks", url, hook.Name)
	default:
		return fmt.Sprintf("let %s respond with status 2xx", url)
	}
}
