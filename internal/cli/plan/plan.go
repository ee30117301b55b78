// Package plan describes what a release would do, before it happens: its steps with weights, pods and earliest times, the queries
// and webhooks that it would call, and how long it would take.
//
// The state machines themselves play the release, in memory and in virtual time, so that this package repeats none of their rules.
// It must not know clients, clocks, files or how a plan is drawn: package cluster and the command supply its input, package view
// renders its result.
package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Document is the document of plan -o json and -o yaml. Fields are added to it, never renamed or removed.
type Document struct {
	// Plans are in the order of the manifests.
	Plans []Plan `json:"plans"`
}

// Plan is what one release would do if nothing failed.
type Plan struct {
	// Kind is Canary or Rollout.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Target    string `json:"target"`
	Provider  string `json:"provider,omitempty"`
	Strategy  string `json:"strategy"`
	// Replicas is the number of pods that serve users, ReplicasSource where it is from.
	Replicas       int32  `json:"replicas"`
	ReplicasSource string `json:"replicasSource"`
	// WindowSeconds is the length of an observation window of a Canary.
	WindowSeconds float64 `json:"windowSeconds,omitempty"`
	// FailedChecksLimit is the number of failed checks at which a Canary is rolled back.
	FailedChecksLimit int `json:"failedChecksLimit,omitempty"`
	// WaitsBefore are the gates before the first step.
	WaitsBefore []string `json:"waitsBefore,omitempty"`
	Steps       []Step   `json:"steps"`
	// Duration is how long the release takes.
	Duration Duration `json:"duration"`
	// Queries are the queries to metrics providers, Webhooks the webhooks that are called.
	Queries  []Query   `json:"queries,omitempty"`
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Plugins are the plugins that a Rollout uses, except for routers that are built in.
	Plugins []Plugin `json:"plugins,omitempty"`
	// Notes are sentences about what the plan assumes or does not know.
	Notes []string `json:"notes,omitempty"`
}

// Step is one visible change of a release.
type Step struct {
	// Number counts from 1.
	Number int `json:"number"`
	// Action is what the step does.
	Action string `json:"action"`
	// AfterSeconds is its earliest start, after the start of the release.
	AfterSeconds float64 `json:"afterSeconds"`
	// CanaryWeight is the share of the requests that the new revision receives, StableWeight that of the previous one, in percent.
	CanaryWeight int `json:"canaryWeight"`
	StableWeight int `json:"stableWeight"`
	// Mirrored is true while requests are copied to the new revision.
	Mirrored bool `json:"mirrored,omitempty"`
	// CanaryPods and StablePods are the pods of the new revision, and those that serve users otherwise.
	CanaryPods int32 `json:"canaryPods"`
	StablePods int32 `json:"stablePods"`
	// WaitsFor are the gates before the next step, as in docs/gates.md; for a Rollout only those that delay it in the plan.
	WaitsFor []string `json:"waitsFor,omitempty"`
}

// Duration is how long a release takes from its start to the end of the last step.
type Duration struct {
	// ShortestSeconds is without failures, delays and waiting for users.
	ShortestSeconds float64 `json:"shortestSeconds"`
	// LongestSeconds is when failures, deadlines of pods and errors of metrics providers just do not roll it back.
	LongestSeconds float64 `json:"longestSeconds"`
	// PodStarts is how often it waits for new pods, each time for at most PodDeadlineSeconds without progress; LongestSeconds
	// includes them.
	PodStarts          int     `json:"podStarts"`
	PodDeadlineSeconds float64 `json:"podDeadlineSeconds"`
	// Unbounded are the reasons why it may take longer, usually because only a user or a webhook continues it.
	Unbounded []string `json:"unbounded,omitempty"`
}

// Query is a query to a metrics provider.
type Query struct {
	Metric string `json:"metric"`
	// Provider is the service that is queried.
	Provider string `json:"provider"`
	// Query is its text, with its variables resolved as far as they are known.
	Query string `json:"query,omitempty"`
	// Limit is the condition that the value has to meet.
	Limit string `json:"limit,omitempty"`
	// Interval is how often it is queried, or for a Canary the time range of the query.
	Interval string `json:"interval,omitempty"`
	// Requests is the number of requests that its verdict needs; omitted if that does not follow from the query and the limit.
	Requests *RequestsNeeded `json:"requests,omitempty"`
	// Times is how often it is queried in the shortest release.
	Times int `json:"times"`
	// Analysis is the analysis of a Rollout that it belongs to.
	Analysis string `json:"analysis,omitempty"`
}

// Webhook is a webhook of a Canary.
type Webhook struct {
	Name string `json:"name"`
	// Type is when it is called, such as pre-rollout.
	Type string `json:"type"`
	// URL is the address without user, password and query.
	URL     string `json:"url"`
	Timeout string `json:"timeout"`
	Retries int    `json:"retries,omitempty"`
	// Times is how often it is called in the shortest release.
	Times int `json:"times"`
}

// Input is one release with everything that its plan depends on.
type Input struct {
	// Canary or Rollout is the release; the other one is nil.
	Canary  *flaggerv1.Canary
	Rollout *argov1.Rollout
	// Settings are those of the controller, for a Canary.
	Settings canary.Settings
	// Workload is the workload that the release names; nil: unknown.
	Workload *Workload
	// Routers check the route of the release; nil: it is not checked.
	Routers Routers
	// MetricTemplate returns a template by namespace and name; false: unknown.
	MetricTemplate func(namespace, name string) (flaggerv1.MetricTemplateSpec, bool)
	// AnalysisTemplate returns the template of an analysis.
	AnalysisTemplate func(name string, cluster bool) (argov1.AnalysisTemplateSpec, error)
	// Plugins are those of the controller.
	Plugins Plugins
	// Problems are messages about the release that only the cluster shows, such as references to objects that do not exist.
	Problems []string
}

// Routers check routes with the rules of a controller: traffic.Registry.
type Routers interface {
	// CheckRoute returns the reason why the route of a Canary cannot be created.
	CheckRoute(c *flaggerv1.Canary, provider string) error
	// CheckRouting returns the reason why the traffic routing of a Rollout cannot work.
	CheckRouting(*argov1.Rollout) error
}

// Controller is the controller of the releases in manifests, as far as it is known.
type Controller struct {
	// Settings returns the settings for a Canary.
	Settings func(*flaggerv1.Canary) canary.Settings
	Routers  Routers
	// Plugins are without their configuration.
	Plugins Plugins
}

// Workload is the workload that a release names.
type Workload struct {
	// Source names it for users, such as Deployment cart.
	Source string
	// Replicas is its number of pods; nil: it has none.
	Replicas *int32
	// Template and Selector are those of its pods.
	Template corev1.PodTemplateSpec
	Selector *metav1.LabelSelector
}

// InvalidError reports a spec that can never work.
type InvalidError struct {
	// Release is kind and name, Problems are the messages of the controller.
	Release  string
	Problems []string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s is invalid: %s", e.Release, strings.Join(e.Problems, "; "))
}

// New returns the plan of a release. The error is an InvalidError if its spec can never work.
func New(in Input) (Plan, error) {
	var p Plan
	var err error
	switch {
	case in.Canary != nil:
		p, err = newCanaryPlan(in)
	case in.Rollout != nil:
		p, err = newRolloutPlan(in)
	default:
		err = errors.New("the input has no release")
	}
	if err == nil && p.Duration.LongestSeconds >= maxSeconds {
		err = fmt.Errorf("the release of %s %s does not end within 292 years: reduce its intervals or pauses", p.Kind, objectName(p.Namespace, p.Name))
	}
	if err != nil {
		return Plan{}, err
	}
	return p, nil
}

// maxSeconds is the longest duration that can be represented; longer ones are limited to it.
var maxSeconds = seconds(math.MaxInt64)

// playedFrom is the virtual time at which every release starts. Whole seconds, as stored times have.
var playedFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// replicas returns the number of pods of the workload, or else of the spec, or else 1, and describes its source.
func (in *Input) replicas(spec *int32) (count int32, source string) {
	switch {
	case in.Workload != nil && in.Workload.Replicas != nil && *in.Workload.Replicas > 0:
		return *in.Workload.Replicas, in.Workload.Source
	case spec != nil:
		return *spec, "spec.replicas"
	default:
		return 1, "assumed"
	}
}

// recorder collects the steps of a release while it is played.
type recorder struct {
	start time.Time
	steps []Step
	// before are the gates before the first step.
	before []string
}

// add starts a step.
func (r *recorder) add(step Step, at time.Time) {
	step.Number, step.AfterSeconds = len(r.steps)+1, seconds(at.Sub(r.start))
	r.steps = append(r.steps, step)
}

// last returns the current step; nil before the first one.
func (r *recorder) last() *Step {
	if len(r.steps) == 0 {
		return nil
	}
	return &r.steps[len(r.steps)-1]
}

// waitFor adds a gate to the current step.
func (r *recorder) waitFor(gate string) {
	into := &r.before
	if step := r.last(); step != nil {
		into = &step.WaitsFor
	}
	if !slices.Contains(*into, gate) {
		*into = append(*into, gate)
	}
}

// seconds returns a duration in seconds. Gates that open after a time open a nanosecond later, which no plan shows.
func seconds(d time.Duration) float64 { return d.Truncate(time.Millisecond).Seconds() }

// tally counts calls by a key, in the order of the first ones.
type tally[K comparable] struct {
	keys  []K
	times map[K]int
}

func (t *tally[K]) add(key K, times int) {
	if t.times == nil {
		t.times = map[K]int{}
	}
	if _, known := t.times[key]; !known {
		t.keys = append(t.keys, key)
	}
	t.times[key] += times
}

// objectName returns namespace and name as users write them.
func objectName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return name + "." + namespace
}

// DelayingGates returns those of some gates that users plan with: those that time, an answer or a user opens. The others wait for
// the cluster in every step, such as for ready pods and for the router, although a user may have to help.
func (p *Plan) DelayingGates(gates []string) []string {
	kinds := canary.GateKinds()
	if p.Kind == argov1.RolloutKind {
		kinds = rollout.GateKinds()
	}
	var out []string
	for _, gate := range gates {
		kind := kinds.Of(gate)
		byCluster := kind.Name != "" && !slices.ContainsFunc(kind.Openers, func(o release.Opener) bool { return o != release.ByCluster })
		byRouter := gate == "route" || gate == rollout.GateRouteConfirmed
		// The answer of a rollout webhook is evaluated by another gate, at the end of the window.
		if !byCluster && !byRouter && !strings.HasPrefix(gate, "rollout-asked/") && gate != "old-samples" {
			out = append(out, gate)
		}
	}
	return out
}
