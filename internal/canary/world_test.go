package canary_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// world is a minimal model of a cluster with one Canary. Its reconciler works like the real one: it applies effects in order up
// to the first that fails, writes the status, then sends queries.
type world struct {
	queue    *release.QueueState // nil: no limit
	spec     flaggerv1.CanarySpec
	settings canary.Settings
	now      time.Time

	generation                         int64
	status                             flaggerv1.CanaryStatus
	deleting, finalizer                bool
	deleted                            bool // the Canary itself
	targetConflict, command, commandBy string
	flagger                            canary.OtherController
	missingReferences                  []string
	missingAlertProviders              []string
	unreported                         canary.Unreported
	portWarning                        string
	noAnalysis                         bool

	workloads
	scalerProblem  string
	targetLimit    int32
	newestTemplate time.Time // the target's newest ReplicaSet
	instantPods    bool      // pods are available at once
	// observed is the target that the workloads belong to, as kind/name; others are the workloads of other targets.
	observed string
	others   map[string]workloads

	entry
	// observedApex is the Service that the entry belongs to; otherEntries are those of other Services.
	observedApex       string
	otherEntries       map[string]entry
	prepared, restored bool
	routeError         string
	refusedEffects     string // prefix of effects that the cluster rejects; empty: none
	// endpointsDelayed is true while Kubernetes does not update endpoints, endpointsUnreadable if they cannot be read.
	endpointsDelayed, endpointsUnreadable bool
	apexFormerEndpoints                   int32

	standingAnswers map[string]string // immediate answers, by name of the query
	answers         release.Answers
	pending         []release.Query // queries of the last decision
	track           [2]canary.ReadinessTrack
	pendingSince    time.Time // when the first of them was sent

	crash int // effects after which the next reconciliation with writes crashes; negative: never
}

// workloads are a target and its primary.
type workloads struct {
	target, primary workload
	targetProblem   string
	history         []content // earlier contents of the primary
}

// entry is how clients reach the workloads: the Services, and the routes of one apex Service.
type entry struct {
	services, apex bool
	selected       string                   // the target whose workloads the Services select, as kind/name
	routes         map[string]*canary.Route // by provider
	matched        map[string]bool          // providers whose weight applies to matching requests only
}

func newEntry() entry {
	return entry{routes: map[string]*canary.Route{}, matched: map[string]bool{}}
}

// content is the template and configuration of a workload.
type content struct{ template, config string }

func (c content) revision() string {
	if c.config == "" {
		return c.template
	}
	return c.template + "+" + c.config
}

func (c content) configs() map[string]string {
	if c.config == "" {
		return nil
	}
	return map[string]string{"configmap/app": c.config}
}

// workload is the target or the primary of the model.
type workload struct {
	content
	id                         string
	found                      bool
	endpoints                  int32 // endpoints
	noService, otherService    bool
	serviceCreated             time.Time // zero: before the scenario
	replicas, total, available int32
	deadlineExceeded           bool
	podProblem                 string
	paused                     bool
}

func (p *workload) ready() bool { return p.found && !p.deadlineExceeded && p.available >= p.replicas }

func (p *workload) state(name string) canary.WorkloadState {
	state := canary.WorkloadState{
		Found: p.found, Revision: p.revision(), FlaggerHash: "hash-" + p.template, ID: p.id, Replicas: p.replicas, Total: p.total, Available: p.available,
		Updated: p.total, ReadyPods: p.available, Ready: p.ready(), DeadlineExceeded: p.deadlineExceeded, PodProblem: p.podProblem, Endpoints: release.Endpoints{Ready: p.endpoints, NoService: p.noService, ServiceCreated: p.serviceCreated},
	}
	if state.Ready {
		state.RequiredPods = p.replicas
	}
	switch {
	case p.deadlineExceeded:
		state.Message = fmt.Sprintf("deployment %q exceeded its progress deadline", name)
	case !state.Ready:
		state.Message = fmt.Sprintf("waiting for rollout to finish: %d of %d (readyThreshold 100%%) updated replicas are available", p.available, p.replicas)
	}
	return state
}

// scale sets the desired replicas.
func (p *workload) scale(replicas int32, instant bool) {
	p.replicas, p.total, p.deadlineExceeded, p.podProblem = replicas, replicas, false, ""
	p.available = min(p.available, replicas)
	if instant {
		p.available = replicas
	}
}

// roll replaces the pods by ones with another content.
func (p *workload) roll(to content, id string, instant bool) {
	p.content, p.id, p.available = to, id, 0
	p.scale(p.replicas, instant)
}

// midnight is when every scenario starts.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		settings: canary.Settings{Provider: "istio", Drain: 5 * time.Second, Features: testFeatures},
		now:      midnight, generation: 1,
		workloads:       workloads{target: newTarget("v1")},
		observed:        "Deployment/cart",
		others:          map[string]workloads{},
		entry:           newEntry(),
		observedApex:    "cart",
		otherEntries:    map[string]entry{},
		standingAnswers: map[string]string{"sources": "yes"},
		answers:         release.Answers{},
		crash:           -1,
	}
}

// newTarget returns a target with one available pod.
func newTarget(template string) workload {
	return workload{content: content{template: template}, found: true, replicas: 1, total: 1, available: 1}
}

// testFeatures returns the features of a router that supports everything, except for some names, which stand for less.
func testFeatures(provider string) canary.Features {
	f := canary.Features{Known: true, Weights: true, Matches: true, Mirror: true, WeightedMirror: true, Sticky: true}
	switch provider {
	case canary.ProviderKubernetes, "nothing":
		return canary.Features{Known: true}
	case "plain":
		return canary.Features{Known: true, Weights: true, Matches: true}
	case "unheard-of":
		return canary.Features{}
	case "joined":
		f.RouteBeforePods = true
		return f
	default:
		return f
	}
}

func (w *world) object() *flaggerv1.Canary {
	c := &flaggerv1.Canary{Spec: w.spec, Status: w.status}
	c.Name, c.Namespace, c.Generation = "cart", "shop", w.generation
	if w.deleting {
		c.DeletionTimestamp = &metav1.Time{Time: w.now}
	}
	return c
}

func (w *world) plan() canary.Plan {
	object, _ := canary.WithFormerTarget(w.object())
	return canary.NewPlan(object, w.settings)
}

// load loads the workloads and the Services of the target that is observed now.
func (w *world) load() {
	plan := w.plan()
	if w.status.Phase == "" {
		w.observed, w.observedApex = plan.Kind+"/"+plan.Target, plan.Apex // of the target with which the scenario begins
	}
	if key := plan.Kind + "/" + plan.Target; key != w.observed {
		w.others[w.observed] = w.workloads
		next, known := w.others[key]
		if !known {
			next.targetProblem = strings.ToLower(plan.Kind) + " " + plan.Target + ".shop get query error: not found"
		}
		w.workloads, w.observed = next, key
	}
	if plan.Apex != w.observedApex {
		w.otherEntries[w.observedApex] = w.entry
		next, known := w.otherEntries[plan.Apex]
		if !known {
			next = newEntry()
		}
		w.entry, w.observedApex = next, plan.Apex
	}
}

// selectedWorkloads are the workloads that the Services select.
func (w *world) selectedWorkloads() workloads {
	if w.servicesSelectOther() {
		return w.others[w.selected]
	}
	return w.workloads
}

// servicesSelectOther reports whether the Services select the workloads of a target with another name. Those of another kind with
// the same name have the same labels.
func (w *world) servicesSelectOther() bool {
	_, selected, _ := strings.Cut(w.selected, "/")
	_, observed, _ := strings.Cut(w.observed, "/")
	return selected != "" && selected != observed
}

func (w *world) route() *canary.Route { return w.routes[w.plan().Provider] }

// currentWeight is the weight of the current route.
func (w *world) currentWeight() int {
	if route := w.route(); route != nil {
		return route.Canary
	}
	return 0
}

// publish updates the endpoints from the pods, unless that is late.
func (w *world) publish() {
	if w.endpointsDelayed {
		return
	}
	selected := w.selectedWorkloads()
	w.target.endpoints, w.primary.endpoints = selected.target.available, selected.primary.available
	if w.target.otherService {
		w.target.endpoints = 0
	}
}

func (w *world) snapshot() canary.Snapshot {
	w.load()
	w.publish()
	_, next := canary.WithFormerTarget(w.object())
	s := canary.Snapshot{
		NextTarget: next,
		Now:        w.now, UID: "uid", Generation: w.generation, Plan: w.plan(), Status: *w.status.DeepCopy(),
		Deleting: w.deleting, Finalizer: w.finalizer, TargetConflict: w.targetConflict, OtherController: w.flagger, MissingReferences: w.missingReferences, MissingAlertProviders: w.missingAlertProviders, Command: w.command, CommandBy: w.commandBy, Queue: w.queue,
		Workload: canary.Workload{
			Problem: w.targetProblem, ScalerProblem: w.scalerProblem, TargetLimit: w.targetLimit, PortWarning: w.portWarning, Images: []string{"shop/" + w.plan().Target + ":" + w.target.template},
			Target: w.target.state(w.plan().Target), Primary: w.primary.state(w.plan().Target + "-primary"),
			ApexSelectsTarget: !w.apex, ApexSelectsPrimary: w.apex, ServicesSelectOther: w.servicesSelectOther(), CanaryServiceSelectsOther: w.deleting && w.target.otherService,
			SameTemplate: w.primary.found && w.target.content == w.primary.content,
			Configs:      w.target.configs(), FlaggerConfigs: w.target.configs(), NewestTemplateTime: w.newestTemplate,
		},
		Answers: maps.Clone(w.answers),
	}
	if until := s.OtherController.Until; !until.IsZero() && !w.now.Before(until) {
		s.OtherController = canary.OtherController{}
	}
	if len(w.pending) > 0 {
		s.Answers[w.pending[0].ID] = release.Answer{ID: w.pending[0].ID, Began: w.pendingSince}
	}
	if phase := s.Status.Phase; (phase == flaggerv1.CanaryPhaseInitializing || phase == flaggerv1.CanaryPhaseTerminating) && !w.endpointsUnreadable {
		s.ApexFormerEndpoints = w.apexFormerEndpoints
	}
	if w.endpointsUnreadable {
		unknown := release.Endpoints{Unknown: "EndpointSlices may not be read"}
		s.Workload.Target.Endpoints, s.Workload.Primary.Endpoints = unknown, unknown
	}
	switch route := w.route(); {
	case w.routeError != "":
		s.Route.Problem = w.routeError
	case route != nil:
		s.Route = *route
		s.Route.OtherMatches = route.Canary > 0 && w.matched[s.Plan.Provider] != (s.Plan.Strategy == canary.ABTesting)
	}
	if s.Route.Unreported = w.unreported; w.unreported.Message != "" {
		s.Route.Confirmation, s.Route.Reason = canary.Unconfirmed, w.unreported.Message
	}
	for i, copy := range []*canary.WorkloadState{&s.Workload.Target, &s.Workload.Primary} {
		w.track[i] = w.track[i].Observe(*copy, w.now)
		copy.Track = w.track[i]
	}
	return s
}

// reconciliation is one reconciliation: the decision, its new effects, and whether the status was written.
type reconciliation struct {
	canary.Decision
	observed      canary.Snapshot
	changes       []release.Effect
	statusWritten bool
	crashed       bool
	refused       error
}

func (w *world) step() reconciliation {
	s := w.snapshot()
	p := reconciliation{Decision: canary.Next(s), observed: s}
	written := w.statusAfter(s, p.Decision)
	p.statusWritten = !equality.Semantic.DeepEqual(written, s.Status)
	for _, effect := range p.Effects {
		if p.statusWritten && w.crash == len(p.changes) {
			break
		}
		changed, err := w.apply(effect)
		if err != nil {
			p.refused = err
			p.Decision = canary.RejectedEffectDecision(s, p.Gates, effect, err.Error())
			written = w.statusAfter(s, p.Decision)
			p.statusWritten = !equality.Semantic.DeepEqual(written, s.Status)
			break
		}
		if changed {
			p.changes = append(p.changes, effect)
		}
	}
	if p.statusWritten && w.crash >= 0 {
		w.crash, p.crashed = -1, true
		w.restart()
		return p
	}
	w.status = written
	w.sendQueries(p.Queries)
	return p
}

// statusAfter is the status of a decision after the API server stored it.
func (w *world) statusAfter(s canary.Snapshot, d canary.Decision) flaggerv1.CanaryStatus {
	status := *d.Status.DeepCopy()
	canary.FillStamps(&status, s.Plan, d.Stamp, w.now)
	return storedStatus(status)
}

// storedStatus is a status as the API server returns it.
func storedStatus(status flaggerv1.CanaryStatus) flaggerv1.CanaryStatus {
	data, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	var out flaggerv1.CanaryStatus
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}

// restart drops the memory of the process.
func (w *world) restart() {
	w.answers, w.pending, w.track = release.Answers{}, nil, [2]canary.ReadinessTrack{}
}

// sendQueries accepts the queries of a decision; one query per release is pending at a time.
func (w *world) sendQueries(queries []release.Query) {
	var first string
	if len(w.pending) > 0 {
		first = w.pending[0].ID
	}
	w.pending = nil
	for _, query := range queries {
		if _, known := w.answers.AnswerTo(query); !known {
			w.pending = append(w.pending, query)
		}
	}
	if len(w.pending) > 0 && w.pending[0].ID != first {
		w.pendingSince = w.now
	}
}

// answerAtOnce answers the pending query if there is an immediate answer for it, and reports whether there was one.
func (w *world) answerAtOnce() bool {
	if len(w.pending) == 0 {
		return false
	}
	value, ok := w.standingAnswers[queryName(w.pending[0])]
	if !ok {
		value, ok = w.standingAnswers["all"]
	}
	if ok {
		w.answer(value)
	}
	return ok
}

// answer answers the pending query.
func (w *world) answer(value string) {
	query := w.pending[0]
	w.pending = w.pending[1:]
	a := answerTo(query, value)
	a.ID, a.Began, a.Ended = query.ID, w.pendingSince, w.now
	w.pendingSince = w.now
	w.answers[query.ID] = a
}

// queryName returns the name of a query in scenarios.
func queryName(query release.Query) string {
	switch q := query.Request.(type) {
	case canary.HookQuery:
		return q.Hook.Name
	case canary.MetricQuery:
		return q.Check.Metric.Name
	default:
		return "sources"
	}
}

// answerTo parses an answer: good, bad, yes, no, no:text, 99.5, no-data, broken:text, unreachable:text, and
// no-data-but-primary-has, no-data-nor-primary.
func answerTo(query release.Query, value string) release.Answer {
	outcome, text, _ := strings.Cut(value, ":")
	if number, err := strconv.ParseFloat(value, 64); err == nil {
		return release.Answer{Outcome: release.Measured, Value: number}
	}
	metric, measured := query.Request.(canary.MetricQuery)
	switch {
	case (value == "good" || value == "bad") && measured:
		number := 0.0
		if (metric.Check.Canonical == canary.SuccessRate) == (value == "good") {
			number = 100000
		}
		if metric.Check.Canonical == canary.SuccessRate {
			number = min(number, 100)
		}
		return release.Answer{Outcome: release.Measured, Value: number}
	case value == "good" || value == "bad":
		hook, _ := query.Request.(canary.HookQuery)
		if (hook.Hook.Type == flaggerv1.RollbackHook) == (value == "bad") {
			return release.Answer{Outcome: release.Yes}
		}
		return release.Answer{Outcome: release.No}
	case value == "no-data-but-primary-has":
		return release.Answer{Outcome: release.NoData, Detail: canary.PrimaryHasData}
	case value == "no-data-nor-primary":
		return release.Answer{Outcome: release.NoData, Detail: canary.PrimaryHasNoData}
	default:
		return release.Answer{Outcome: release.Outcome(outcome), Text: text}
	}
}

// settle reconciles until nothing changes, at most that many times.
func (w *world) settle(limit int, see func(reconciliation)) bool {
	for range limit {
		p := w.step()
		see(p)
		if w.deleted || !p.statusWritten && !p.crashed && len(p.changes) == 0 && !w.answerAtOnce() {
			return true
		}
	}
	return false
}

// apply applies an effect and reports whether it changed anything.
func (w *world) apply(effect release.Effect) (changed bool, err error) {
	if w.refusedEffects != "" && strings.HasPrefix(fmt.Sprint(effect), w.refusedEffects) {
		return false, fmt.Errorf("%s is forbidden", w.refusedEffects)
	}
	plan := w.plan()
	switch e := effect.(type) {
	case canary.HasFinalizer:
		changed = w.finalizer != e.Present
		w.finalizer = e.Present
		w.deleted = w.deleting && !e.Present
	case canary.PrimaryExists:
		switch {
		case !w.primary.found:
			w.primary = workload{found: true, replicas: max(w.target.replicas, 1), endpoints: w.primary.endpoints}
			w.primary.roll(w.target.content, e.ID, w.instantPods)
			return true, nil
		case e.Follow && w.primary.content != w.target.content:
			w.primary.roll(w.target.content, e.ID, w.instantPods)
			return true, nil
		}
	case canary.PrimaryRecreated:
		if w.primary.found {
			return false, nil
		}
		past := slices.DeleteFunc(slices.Clone(w.history), func(c content) bool {
			p := workload{content: c}
			return e.Revision != "" && p.revision() != e.Revision || e.Revision == "" && e.FlaggerHash != "" && "hash-"+c.template != e.FlaggerHash
		})
		if len(past) == 0 {
			return false, fmt.Errorf("no ReplicaSet of %s-primary is left", plan.Target)
		}
		w.primary = workload{found: true, replicas: 1, endpoints: w.primary.endpoints}
		w.primary.roll(past[len(past)-1], e.ID, w.instantPods)
		return true, nil
	case canary.RouteMaintained:
		if live := w.route(); live != nil && live.Found { // the weights of an existing route remain
			e.Canary, e.Mirror = live.Canary, live.Mirrored
		}
		if plan.HasRouter && w.routeError == "" {
			return w.setRoute(plan, canary.TrafficWeight{Canary: e.Canary, Mirror: e.Mirror})
		}
	case canary.TrafficWeight:
		return w.setRoute(plan, e)
	case canary.TargetScaledUp:
		replicas := int32(1)
		if e.ToPrimaryCapacity {
			replicas = max(w.primary.replicas, 1)
		}
		if w.targetLimit > 0 {
			replicas = min(replicas, w.targetLimit)
		}
		if w.target.found && (w.target.replicas == 0 || e.ToPrimaryCapacity && w.target.replicas < replicas) {
			w.target.scale(replicas, w.instantPods)
			return true, nil
		}
	case canary.PrimaryScaledUpFromZero:
		if w.primary.found && w.primary.replicas == 0 {
			w.primary.scale(max(w.target.replicas, 1), w.instantPods)
			return true, nil
		}
	case canary.TargetScaledToZero:
		changed = !w.target.found || w.target.replicas > 0 || w.target.total > 0
		w.target.scale(0, w.instantPods)
	case canary.ScalerPaused:
		changed = w.target.paused != e.Paused
		w.target.paused = e.Paused
	case canary.CopyTemplate:
		switch {
		case w.primary.id == e.ID:
			return false, nil
		case w.target.revision() != e.Revision:
			return false, fmt.Errorf("target has revision %s, not the analysed %s", w.target.revision(), e.Revision)
		}
		w.history = append(w.history, w.primary.content)
		w.primary.roll(w.target.content, e.ID, w.instantPods)
		return true, nil
	case canary.RestoreTemplate:
		if w.primary.id == e.ID {
			return false, nil
		}
		if len(w.history) == 0 {
			return false, fmt.Errorf("no ReplicaSet of cart-primary is left from before the promotion")
		}
		w.primary.roll(w.history[len(w.history)-1], e.ID, w.instantPods)
		return true, nil
	case canary.ServicesExist:
		changed = !w.services || e.Apex && !w.apex || w.selected != w.observed
		w.services, w.apex, w.selected = true, w.apex || e.Apex, w.observed
	case canary.RoutePrepared:
		changed = !w.prepared
		w.prepared = true
	case canary.UserObjectsRestored:
		changed = !w.restored
		w.restored, w.apex = true, false
	case canary.ScalerExists, canary.ConfigsCollected, canary.ConfigsRestored:
		// The model has neither autoscalers nor copies of configuration.
	default:
		return false, fmt.Errorf("unknown effect %T", effect)
	}
	return changed, nil
}

func (w *world) setRoute(plan canary.Plan, e canary.TrafficWeight) (bool, error) {
	provider := plan.Provider
	if e.Provider != "" {
		provider = e.Provider
	}
	if provider == canary.ProviderKubernetes || !w.settings.Features(provider).Known {
		return false, nil
	}
	if w.routeError != "" {
		return false, fmt.Errorf("%s", w.routeError)
	}
	before := w.routes[provider]
	after := canary.Route{Found: true, Canary: e.Canary, Mirrored: e.Mirror, Confirmation: canary.CannotTell}
	if before != nil {
		after.Confirmation, after.Reason = before.Confirmation, before.Reason
	}
	w.routes[provider], w.matched[provider] = &after, plan.Strategy == canary.ABTesting
	return before == nil || *before != after, nil
}
