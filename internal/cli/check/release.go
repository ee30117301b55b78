package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Measured is a query of a release that was sent once, for the revision that serves users.
type Measured struct {
	// Metric is the name of the metric.
	Metric string
	// Outcome and Value are the answer, Text the explanation of another outcome than a value.
	Outcome release.Outcome
	Value   string
	Text    string
	// Limit is the condition of the metric, and Violated is true if the value does not meet it.
	Limit    string
	Violated bool
	// Query is the text that was sent; empty: none.
	Query string
	// Service is the Service to which it was sent through the API server; empty: another server received it.
	Service string
	// NotSent is the reason why it was not sent; empty: it was.
	NotSent string
	// Fix describes how to send it.
	Fix string
}

func (m Measured) result() Result {
	name, value := "metric "+m.Metric, "the current version has "+m.Value
	if m.Limit != "" {
		value += ", limit " + m.Limit
	}
	from := ""
	if m.Service != "" {
		from = " (from Service " + m.Service + ", through the API server)"
	}
	var out Result
	switch {
	case m.NotSent != "":
		return skipped(name, m.NotSent, m.Fix)
	case m.Outcome == release.Measured && m.Violated:
		out = warning(name, value+from+": a release that behaves like it fails", "correct the limit, the query or the application")
	case m.Outcome == release.Measured:
		out = passed(name, value+from)
	case m.Outcome == release.NoData:
		out = warning(name, "no data for the current version"+from+": either it has no traffic, or its metrics have other names or labels", "send requests to it, then repeat this check")
	default:
		out = failed(name, m.Text, "see docs/metrics.md")
	}
	out.Query = m.Query
	return out
}

// Webhook is a webhook of a Canary whose address was resolved.
type Webhook struct {
	Name, Host string
	// Problem is the reason why the host cannot be called; empty: none.
	Problem string
	// NotResolved is the reason why it was not resolved; empty: it was.
	NotResolved string
}

func (w Webhook) result() Result {
	name := "webhook " + w.Name
	if w.NotResolved != "" {
		return skipped(name, w.NotResolved, "")
	}
	if w.Problem != "" {
		return warning(name, w.Problem, "create the Service, or correct the url of the webhook")
	}
	return passed(name, w.Host+" exists")
}

// Disruption contains the PodDisruptionBudgets that select the pods of a target and of its primary.
type Disruption struct {
	// OfTarget are those that select pods of the target, OfPrimary those that select pods of the primary.
	OfTarget, OfPrimary []string
	// Unread is the reason why they are unknown; empty: they are known.
	Unread string
}

func (d Disruption) result(primary string) Result {
	name := "disruption-budget"
	switch {
	case d.Unread != "":
		return skipped(name, d.Unread, "")
	case len(d.OfPrimary) > 0:
		return passed(name, "the primary is protected by "+strings.Join(d.OfPrimary, ", "))
	case len(d.OfTarget) > 0:
		return warning(name, fmt.Sprintf("%s selects pods of the target, but none of %s, which serves users", strings.Join(d.OfTarget, ", "), primary),
			"create a PodDisruptionBudget that selects the pods of "+primary)
	default:
		return passed(name, "there is none")
	}
}

// Canary contains what was found about a Canary.
type Canary struct {
	Object   *flaggerv1.Canary
	Snapshot canary.Snapshot
	// Invalid are the errors in its spec.
	Invalid []string
	// Unread are sentences about what could not be read. Assumed are the parts that are therefore unknown.
	Unread  []string
	Assumed []release.Part
	// Other is the sign of another controller that acts on it; empty: none.
	Other      string
	Measured   []Measured
	Webhooks   []Webhook
	Disruption Disruption
	// Parents are the Gateways of its route, if that is one of the Gateway API.
	Parents []RouteParent
}

// Section returns the checks of a Canary.
func (c Canary) Section() Section {
	s := c.Snapshot
	out := Section{Name: "canary " + c.Object.Name + "." + c.Object.Namespace}
	add := func(results ...Result) { out.Results = append(out.Results, results...) }
	for _, unread := range c.Unread {
		add(skipped("readable", strings.TrimSuffix(unread, "."), ""))
	}
	add(c.spec()...)
	add(passedUnless("other-controller", c.Other, "see serin migrate", "no other controller acts on it"))
	add(passedUnless("exclusive", s.TargetConflict, "", "no other release has its target"))
	primary := s.Plan.Target + "-primary"
	if !slices.Contains(c.Assumed, release.WorkloadPart) {
		add(passedUnless("target", s.Workload.Problem, ifMissing(s.Workload.Problem, "create it, or correct spec.targetRef"), s.Plan.Kind+" "+s.Plan.Target+" can be released"))
		if s.Plan.Kind != "Service" {
			add(c.port())
		}
		if c.Object.Spec.AutoscalerRef != nil {
			add(passedUnless("autoscaler", s.Workload.ScalerProblem, ifMissing(s.Workload.ScalerProblem, "create it, or correct spec.autoscalerRef"), c.Object.Spec.AutoscalerRef.Kind+" "+c.Object.Spec.AutoscalerRef.Name+" exists"))
		}
		add(c.primary(primary))
	}
	if !slices.Contains(c.Assumed, release.RoutePart) && s.Plan.HasRouter {
		add(c.route())
	}
	for _, parent := range c.Parents {
		add(parent.result())
	}
	add(passedUnlessAny("references", s.MissingReferences, "create it, or correct the reference in spec.analysis.metrics", "all objects that the metrics name exist")...)
	add(passedUnlessAny("alert-providers", s.MissingAlertProviders, "", "all alert providers exist")...)
	for _, m := range c.Measured {
		add(m.result())
	}
	for _, w := range c.Webhooks {
		add(w.result())
	}
	if s.Plan.Kind != "Service" {
		add(c.Disruption.result(primary))
	}
	if c.Object.Spec.RevertOnDeletion {
		add(passed("deletion", "revertOnDeletion: deleting the Canary returns all traffic to the target first"))
	} else {
		add(warning("deletion", "deleting the Canary deletes the primary, which serves users", "set spec.revertOnDeletion, or use serin eject, see docs/leaving.md"))
	}
	return out
}

// lintNamesTheField is the fix of a spec.
const lintNamesTheField = "serin lint names the field and the fix"

// spec checks the spec for errors, and for settings with which Serin releases although the user should correct them.
func (c Canary) spec() []Result {
	if warnings := c.Snapshot.Plan.SettingWarnings(); len(c.Invalid) == 0 && len(warnings) > 0 {
		results := make([]Result, len(warnings))
		for i, message := range warnings {
			results[i] = warning("spec", message, lintNamesTheField)
		}
		return results
	}
	return passedUnlessAny("spec", c.Invalid, lintNamesTheField, "valid")
}

// ifMissing returns the fix for an object that does not exist; empty if the problem is another one, which has a fix of its own.
func ifMissing(problem, fix string) string {
	if strings.HasSuffix(problem, "not found") {
		return fix
	}
	return ""
}

func (c Canary) port() Result {
	if c.Snapshot.Workload.PortWarning != "" {
		return warning("port", c.Snapshot.Workload.PortWarning, "")
	}
	return passed("port", fmt.Sprintf("spec.service.port %d leads to a port of the pods", c.Object.Spec.Service.Port))
}

// primary is the check of the workload that serves users.
func (c Canary) primary(name string) Result {
	p := c.Snapshot.Workload.Primary
	switch phase := c.Snapshot.Status.Phase; {
	case c.Snapshot.Plan.Kind == "Service":
		return skipped("primary", "a Canary of a Service has no primary with pods", "")
	case phase == "" || phase == flaggerv1.CanaryPhaseInitializing:
		return skipped("primary", "the Canary is not initialized yet", whyCommand(c.Object))
	case !p.Found:
		return failed("primary", name+" does not exist", whyCommand(c.Object))
	case p.Replicas > 0 && p.Available == 0:
		return failed("primary", name+" has no available pods: "+p.Message, whyCommand(c.Object))
	case p.Endpoints.Unknown == "" && p.Replicas > 0 && p.Endpoints.Ready == 0:
		return failed("primary", "the Service of "+name+" has no endpoints", "check the selector of the Service, and the readiness of the pods")
	default:
		return passed("primary", fmt.Sprintf("%s has %s", name, countOf(int(p.Available), "available pod")))
	}
}

// route is the check of the route object.
func (c Canary) route() Result {
	r := c.Snapshot.Route
	switch {
	case r.Problem != "":
		return failed("route", r.Problem, "")
	case !r.Found:
		return skipped("route", "the route does not exist yet", "")
	case r.Unreported.Message != "":
		return failed("route", r.Unreported.Message, "")
	case r.Confirmation == canary.Unconfirmed:
		return failed("route", r.Reason, "")
	case r.Confirmation == canary.Confirmed:
		return passed("route", "the router has accepted it")
	default:
		return passed("route", "it exists; its router reports no status")
	}
}

// Rollout contains what was found about a Rollout.
type Rollout struct {
	Object   *argov1.Rollout
	Snapshot rollout.Snapshot
	// Routers are the traffic routers in the spec.
	Routers []string
	Unread  []string
	Assumed []release.Part
	// Other is the sign of another controller that acts on it; empty: none.
	Other    string
	Measured []Measured
	// TemplateProblems are sentences about analysis templates that cannot be used.
	TemplateProblems []string
	Autoscalers      Autoscalers
	Budgets          RevisionBudgets
	// Parents are the Gateways of its routes of the Gateway API.
	Parents []RouteParent
}

// Section returns the checks of a Rollout.
func (r Rollout) Section() Section {
	s := r.Snapshot
	out := Section{Name: "rollout " + r.Object.Name + "." + r.Object.Namespace}
	add := func(results ...Result) { out.Results = append(out.Results, results...) }
	for _, unread := range r.Unread {
		add(skipped("readable", strings.TrimSuffix(unread, "."), ""))
	}
	add(passedUnless("spec", s.ValidationError, "serin lint names the field and the fix", "valid"))
	add(passedUnless("other-controller", r.Other, "see serin migrate", "no other controller acts on it"))
	if len(s.UnreadableFields) > 0 {
		add(warning("stored-fields", "ignored because they cannot be read: "+strings.Join(s.UnreadableFields, ", "), "correct or remove them"))
	}
	if !slices.Contains(r.Assumed, release.WorkloadPart) {
		add(r.stable())
		add(r.services()...)
	}
	add(r.Autoscalers.results(r.Object)...)
	if !slices.Contains(r.Assumed, release.RoutePart) && len(r.Routers) > 0 && s.ValidationError == "" {
		add(r.route())
	}
	for _, parent := range r.Parents {
		add(parent.result())
	}
	add(passedUnlessAny("analysis-templates", r.TemplateProblems, "", "all templates of its analyses exist")...)
	for _, m := range r.Measured {
		add(m.result())
	}
	add(r.Budgets.result())
	return out
}

// whyCommand is the command that explains the state of a release.
func whyCommand(release metav1.Object) string {
	return "serin why " + release.GetName() + " -n " + release.GetNamespace()
}

// stable is the check of the revision that serves users.
func (r Rollout) stable() Result {
	s := r.Snapshot
	why := whyCommand(r.Object)
	if s.Status.StableRS == "" {
		return skipped("stable", "no revision has been promoted yet", why)
	}
	i := slices.IndexFunc(s.ReplicaSets, func(rs rollout.ReplicaSet) bool { return rs.Hash == s.Status.StableRS })
	switch {
	case i < 0:
		return failed("stable", "the ReplicaSet of the stable revision "+s.Status.StableRS+" does not exist", why)
	case s.ReplicaSets[i].SpecReplicas > 0 && s.ReplicaSets[i].Available == 0:
		return failed("stable", fmt.Sprintf("the stable revision has no available pods of %d", s.ReplicaSets[i].SpecReplicas), why)
	default:
		return passed("stable", fmt.Sprintf("the stable revision has %s", countOf(int(s.ReplicaSets[i].Available), "available pod")))
	}
}

func (r Rollout) route() Result {
	confirmed := r.Snapshot.Route.Confirmed
	routers := strings.Join(r.Routers, ", ")
	switch {
	case confirmed != nil && !*confirmed:
		return failed("route", routers+": "+r.Snapshot.Route.UnconfirmedReason, "")
	case confirmed != nil:
		return passed("route", routers+": the weights are applied")
	default:
		return passed("route", routers+": its objects exist")
	}
}

// Timeout limits one query or request of a check.
const Timeout = 10 * time.Second
