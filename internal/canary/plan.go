package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Strategy is how a release exposes the new revision. It is derived from the analysis; the spec has no field for it.
type Strategy string

// The strategies; these are the values of the metrics label deployment_strategy.
const (
	Weighted  Strategy = "canary"
	ABTesting Strategy = "ab-testing"
	BlueGreen Strategy = "blue-green"
)

// ProviderKubernetes is the provider without a mesh: only the Services route traffic.
const ProviderKubernetes = "kubernetes"

// Plan is the spec of a Canary, defaulted and normalised. The state machine reads plans, never specs.
type Plan struct {
	Name, Namespace string
	// Kind and Target are kind and name of the target.
	Kind, Target string
	// Knative is true for a Knative Service.
	Knative bool
	// Apex is the Service that clients call.
	Apex     string
	Provider string
	// HasRouter is false where no router splits traffic (provider kubernetes).
	HasRouter bool
	// RouteBeforePods is true if objects of the mesh must exist before the pods of the primary are created.
	RouteBeforePods bool
	Strategy        Strategy

	// StepWeight or StepWeights are the weights of a weighted release, MaxWeight is the weight from which it is promoted, all 1 to
	// 100.
	StepWeight  int
	StepWeights []int
	MaxWeight   int
	// PromotionStep is the weight by which traffic returns to the primary in each step, 1 to 100; zero: at once.
	PromotionStep int
	Mirror        bool
	Iterations    int

	// Interval is how long one weight or iteration is observed; IntervalRaised is true if the minimum interval made it longer.
	Interval       time.Duration
	IntervalRaised bool
	Threshold      int
	Deadline       time.Duration
	Drain          time.Duration

	SkipAnalysis, Suspended, RevertOnDeletion bool
	// NoAnalysis is true if the spec has no analysis, so that every revision is promoted without one.
	NoAnalysis bool
	// Cookie and PrimaryCookie are the names of the session cookies; empty: none.
	Cookie, PrimaryCookie string
	Hooks                 []Hook
	Checks                []Check

	// ValidationErrors are messages about settings with which this plan can never work.
	ValidationErrors []string
	// Warnings are messages about settings that are adjusted or ignored. They are reported once per revision.
	Warnings []string
	// Problems are the validation errors and warnings with their fields, for tools that check manifests.
	Problems []Problem
}

// Problem is a setting with which a plan cannot work, or that is adjusted or ignored.
type Problem struct {
	// Field is the path of the setting, such as spec.analysis.metrics[0].interval.
	Field   string
	Message string
	// Warning is true if the plan works nevertheless.
	Warning bool
	// Duration is true if the setting is not a duration.
	Duration bool
}

// Hook is one webhook of a plan.
type Hook struct {
	flaggerv1.CanaryWebhook

	// Ordinal is the number of earlier entries with the same type, name and URL. The hooks of a load tester share its URL, and only
	// their metadata differs.
	Ordinal int
	// Namesakes is the number of earlier entries with the same type and name.
	Namesakes int
}

// Check is one measurement that is evaluated in each window.
type Check struct {
	// Index of the entry in spec.analysis.metrics, from 0.
	Index  int
	Source Source
	Metric flaggerv1.CanaryMetric
	// Interval is the range of the query, in the notation of the query language, for example 1m.
	Interval string
	// Canonical is the name of the builtin metric, if Source is Builtin.
	Canonical string
}

// Source of a measurement.
type Source string

// The sources.
const (
	Builtin  Source = "builtin"
	Inline   Source = "inline"
	Template Source = "template"
)

// The builtin metrics.
const (
	SuccessRate = "request-success-rate" // percent of requests, 0 to 100
	Duration    = "request-duration"     // milliseconds
)

// maxCount limits counters in plans and statuses: no release can have more checks or iterations.
const maxCount = 1 << 30

// Limits of the lists that every decision evaluates: it occupies a worker, and its time grows with the square of their lengths.
const (
	maxHooks   = 100
	maxMetrics = 500
)

// qualifiedName is the name of the Canary in Flagger's texts; targetName and primaryName are those of the workloads.
func (p *Plan) qualifiedName() string { return p.Name + "." + p.Namespace }

func (p *Plan) targetName() string { return p.Target + "." + p.Namespace }

func (p *Plan) primaryName() string { return p.Target + "-primary." + p.Namespace }

// target is the target as kind/name.
func (p *Plan) target() string { return p.Kind + "/" + p.Target }

// serviceName is the name of the Service of one of the two workloads.
func (p *Plan) serviceName(role string) string { return p.Apex + "-" + role + "." + p.Namespace }

// hasReplicaCount reports whether the workload has a replica count. A DaemonSet has one pod on each of its nodes.
func (p *Plan) hasReplicaCount() bool { return p.Kind != "DaemonSet" }

// canScaleTarget reports whether the target has pods that Serin may scale. Services have none.
func (p *Plan) canScaleTarget() bool { return p.Kind != "Service" }

// mirrorsTraffic reports whether blue/green mirrors requests to the canary in that iteration.
func (p *Plan) mirrorsTraffic(iteration int) bool {
	return p.Mirror && p.Strategy == BlueGreen && iteration >= 1 && iteration <= p.Iterations
}

// hooksOfType returns the webhooks of one type, in the order of the spec.
func (p *Plan) hooksOfType(hookType flaggerv1.HookType) []Hook {
	var out []Hook
	for _, hook := range p.Hooks {
		if hook.Type == hookType {
			out = append(out, hook)
		}
	}
	return out
}

// longestRange is the longest range of the queries of all checks.
func (p *Plan) longestRange() time.Duration {
	var longest time.Duration
	for _, check := range p.Checks {
		if d, err := time.ParseDuration(check.Interval); err == nil && d > longest {
			longest = d
		}
	}
	return longest
}
