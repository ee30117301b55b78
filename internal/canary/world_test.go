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

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// world is a minimal model of a cluster with one Canary. Its reconciler does what the real one does: it applies effects in
// order up to the first that fails, writes the status, then sends queries.
type world struct {
	turn     *release.QueueState // nil: no limit
	spec     flaggerv1.CanarySpec
	settings canary.Settings
	now      time.Time

	generation          int64
	status              flaggerv1.CanaryStatus
	deleting, finalizer bool
	gone                bool // the Canary itself
	obstacle, command   string
	flagger             canary.OtherController
	missing             []string

	target, primary formatPods
	targetProblem   string
	newest          time.Time // the target's newest ReplicaSet
	history         []content // earlier contents of the primary
	instant         bool      // pods are available at once

	services, apex, prepared, given bool
	routes                          map[string]*canary.Route // by provider
	routeError                      string
	refused                         string // prefix of effects that the cluster rejects; empty: none
	// late is true while Kubernetes does not update endpoints. unread is true if endpoints cannot be read.
	late, unread bool

	standing map[string]string // immediate answers, by name of the query
	answers  release.Answers
	out      []release.Query // queries of the last decision
	track    [2]canary.ReadinessTrack
	began    time.Time // when the first of them was sent

	crash int // effects after which the next reconciliation with writes crashes; negative: never
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

// formatPods are a workload.
type formatPods struct {
	content
	id                         string
	found                      bool
	published                  int32 // endpoints
	noService                  bool
	serviceMade                time.Time // zero: before the scenario
	replicas, total, available int32
	exceeded                   bool
	problem                    string
	paused                     bool
}

func (p *formatPods) ready() bool { return p.found && !p.exceeded && p.available >= p.replicas }

func (p *formatPods) copy(name string) canary.WorkloadState {
	c := canary.WorkloadState{
		Found: p.found, Revision: p.revision(), FlaggerHash: "hash-" + p.template, ID: p.id, Replicas: p.replicas, Total: p.total, Available: p.available,
		Updated: p.total, ReadyPods: p.available, Ready: p.ready(), DeadlineExceeded: p.exceeded, PodProblem: p.problem, Endpoints: release.Endpoints{Ready: p.published, NoService: p.noService, ServiceCreated: p.serviceMade},
	}
	if c.Ready {
		c.RequiredPods = p.replicas
	}
	switch {
	case p.exceeded:
		c.Message = fmt.Sprintf("deployment %q exceeded its progress deadline", name)
	case !c.Ready:
		c.Message = fmt.Sprintf("waiting for rollout to finish: %d of %d (readyThreshold 100%%) updated replicas are available", p.available, p.replicas)
	}
	return c
}

// scale sets the desired replicas.
func (p *formatPods) scale(replicas int32, instant bool) {
	p.replicas, p.total, p.exceeded, p.problem = replicas, replicas, false, ""
	p.available = min(p.available, replicas)
	if instant {
		p.available = replicas
	}
}

// roll replaces the pods by ones with another content.
func (p *formatPods) roll(to content, id string, instant bool) {
	p.content, p.id, p.available = to, id, 0
	p.scale(p.replicas, instant)
}

// midnight is when every scenario starts.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld() *world {
	return &world{
		settings: canary.Settings{Provider: "istio", Drain: 5 * time.Second, Features: everything},
		now:      midnight, generation: 1,
		target:   formatPods{content: content{template: "v1"}, found: true, replicas: 1, total: 1, available: 1},
		routes:   map[string]*canary.Route{},
		standing: map[string]string{"sources": "yes"},
		answers:  release.Answers{},
		crash:    -1,
	}
}

// everything returns the features of a router that supports everything, except where its name says otherwise.
func everything(provider string) canary.Features {
	f := canary.Features{Known: true, Weights: true, Matches: true, Mirror: true, WeightedMirror: true, Sticky: true}
	switch provider {
	case canary.ProviderKubernetes, "nothing":
		return canary.Features{Known: true}
	case "plain":
		return canary.Features{Known: true, Weights: true, Matches: true}
	case "unheard-of":
		return canary.Features{}
	case "joined":
		f.Joins = true
		return f
	default:
		return f
	}
}

func (w *world) object() *flaggerv1.Canary {
	c := &flaggerv1.Canary{Spec: w.spec, Status: w.status}
	c.Name, c.Namespace, c.Generation = "cart", "shop", w.generation
	return c
}

func (w *world) plan() canary.Plan { return canary.NewPlan(w.object(), w.settings) }

func (w *world) route() *canary.Route { return w.routes[w.plan().Provider] }

// publish updates the endpoints from the pods, unless that is late.
func (w *world) publish() {
	if w.late {
		return
	}
	w.target.published, w.primary.published = w.target.available, w.primary.available
}

func (w *world) snapshot() canary.Snapshot {
	w.publish()
	s := canary.Snapshot{
		Now: w.now, UID: "uid", Generation: w.generation, Plan: w.plan(), Status: *w.status.DeepCopy(),
		Deleting: w.deleting, Finalizer: w.finalizer, TargetConflict: w.obstacle, OtherController: w.flagger, MissingReferences: w.missing, Command: w.command, Queue: w.turn,
		Workload: canary.Workload{
			Problem: w.targetProblem, Target: w.target.copy("cart"), Primary: w.primary.copy("cart-primary"),
			SameTemplate: w.primary.found && w.target.content == w.primary.content,
			Configs:      w.target.configs(), FlaggerConfigs: w.target.configs(), NewestTemplateTime: w.newest,
		},
		Answers: maps.Clone(w.answers),
	}
	if until := s.OtherController.Until; !until.IsZero() && !w.now.Before(until) {
		s.OtherController = canary.OtherController{}
	}
	if len(w.out) > 0 {
		s.Answers[w.out[0].ID] = release.Answer{ID: w.out[0].ID, Began: w.began}
	}
	if w.unread {
		unknown := release.Endpoints{Unknown: "EndpointSlices may not be read"}
		s.Workload.Target.Endpoints, s.Workload.Primary.Endpoints = unknown, unknown
	}
	switch route := w.route(); {
	case w.routeError != "":
		s.Route.Problem = w.routeError
	case route != nil:
		s.Route = *route
	}
	for i, copy := range []*canary.WorkloadState{&s.Workload.Target, &s.Workload.Primary} {
		w.track[i] = w.track[i].Observe(*copy, w.now)
		copy.Track = w.track[i]
	}
	return s
}

// pass is one reconciliation: the decision, its new effects, and whether the status was written.
type pass struct {
	canary.Decision
	news    []release.Effect
	wrote   bool
	crashed bool
	refused error
}

func (w *world) step() pass {
	s := w.snapshot()
	p := pass{Decision: canary.Next(s)}
	written := w.written(s, p.Decision)
	p.wrote = !equality.Semantic.DeepEqual(written, s.Status)
	for _, effect := range p.Effects {
		if p.wrote && w.crash == len(p.news) {
			break
		}
		changed, err := w.apply(effect)
		if err != nil {
			p.refused = err
			p.Decision = canary.RefusedDecision(s, p.Gates, effect, err.Error())
			written = w.written(s, p.Decision)
			p.wrote = !equality.Semantic.DeepEqual(written, s.Status)
			break
		}
		if changed {
			p.news = append(p.news, effect)
		}
	}
	if p.wrote && w.crash >= 0 {
		w.crash, p.crashed = -1, true
		w.restart()
		return p
	}
	w.status = written
	w.ask(p.Queries)
	return p
}

// written is the status of a decision after the API server stored it.
func (w *world) written(s canary.Snapshot, d canary.Decision) flaggerv1.CanaryStatus {
	status := *d.Status.DeepCopy()
	canary.FillStamps(&status, s.Plan, d.Stamp, w.now)
	return stored(status)
}

// stored is a status as the API server returns it.
func stored(status flaggerv1.CanaryStatus) flaggerv1.CanaryStatus {
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
	w.answers, w.out, w.track = release.Answers{}, nil, [2]canary.ReadinessTrack{}
}

// ask accepts the queries of a decision; one query per release is pending at a time.
func (w *world) ask(queries []release.Query) {
	var first string
	if len(w.out) > 0 {
		first = w.out[0].ID
	}
	w.out = nil
	for _, query := range queries {
		if _, known := w.answers.AnswerTo(query); !known {
			w.out = append(w.out, query)
		}
	}
	if len(w.out) > 0 && w.out[0].ID != first {
		w.began = w.now
	}
}

// answered answers the pending query if there is an immediate answer for it, and reports whether there was one.
func (w *world) answered() bool {
	if len(w.out) == 0 {
		return false
	}
	value, ok := w.standing[name(w.out[0])]
	if !ok {
		value, ok = w.standing["all"]
	}
	if ok {
		w.answer(value)
	}
	return ok
}

// answer answers the pending query.
func (w *world) answer(value string) {
	query := w.out[0]
	w.out = w.out[1:]
	a := answerTo(query, value)
	a.ID, a.Began, a.Ended = query.ID, w.began, w.now
	w.began = w.now
	w.answers[query.ID] = a
}

// name of a query in scenarios.
func name(query release.Query) string {
	switch q := query.Request.(type) {
	case canary.HookQuery:
		return q.Hook.Name
	case canary.MetricQuery:
		return q.Check.Metric.Name
	default:
		return "sources"
	}
}

// answerTo parses an answer: good, bad, yes, no, no:text, 99.5, no-data, broken:text, unreachable:text.
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
	default:
		return release.Answer{Outcome: release.Outcome(outcome), Text: text}
	}
}

// settle reconciles until nothing changes, at most that many times.
func (w *world) settle(limit int, see func(pass)) bool {
	for range limit {
		p := w.step()
		see(p)
		if w.gone || !p.wrote && !p.crashed && len(p.news) == 0 && !w.answered() {
			return true
		}
	}
	return false
}

// apply applies an effect and reports whether it changed anything.
func (w *world) apply(effect release.Effect) (changed bool, err error) {
	if w.refused != "" && strings.HasPrefix(fmt.Sprint(effect), w.refused) {
		return false, fmt.Errorf("%s is forbidden", w.refused)
	}
	plan := w.plan()
	switch e := effect.(type) {
	case canary.HasFinalizer:
		changed = w.finalizer != e.Present
		w.finalizer = e.Present
		w.gone = w.deleting && !e.Present
	case canary.PrimaryExists:
		switch {
		case !w.primary.found:
			w.primary = formatPods{found: true, replicas: max(w.target.replicas, 1), published: w.primary.published}
			w.primary.roll(w.target.content, e.ID, w.instant)
			return true, nil
		case e.Follow && w.primary.content != w.target.content:
			w.primary.roll(w.target.content, e.ID, w.instant)
			return true, nil
		}
	case canary.PrimaryRecreated:
		if w.primary.found {
			return false, nil
		}
		past := slices.DeleteFunc(slices.Clone(w.history), func(c content) bool {
			p := formatPods{content: c}
			return e.Revision != "" && p.revision() != e.Revision || e.Revision == "" && e.FlaggerHash != "" && "hash-"+c.template != e.FlaggerHash
		})
		if len(past) == 0 {
			return false, fmt.Errorf("no ReplicaSet of cart-primary is left")
		}
		w.primary = formatPods{found: true, replicas: 1, published: w.primary.published}
		w.primary.roll(past[len(past)-1], e.ID, w.instant)
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
		if w.target.found && (w.target.replicas == 0 || e.ToPrimaryCapacity && w.target.replicas < replicas) {
			w.target.scale(replicas, w.instant)
			return true, nil
		}
	case canary.PrimaryScaledUp:
		if w.primary.found && w.primary.replicas == 0 {
			w.primary.scale(max(w.target.replicas, 1), w.instant)
			return true, nil
		}
	case canary.TargetScaledToZero:
		changed = !w.target.found || w.target.replicas > 0 || w.target.total > 0
		w.target.scale(0, w.instant)
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
		w.primary.roll(w.target.content, e.ID, w.instant)
		return true, nil
	case canary.RestoreTemplate:
		if w.primary.id == e.ID {
			return false, nil
		}
		if len(w.history) == 0 {
			return false, fmt.Errorf("no ReplicaSet of cart-primary is left from before the promotion")
		}
		w.primary.roll(w.history[len(w.history)-1], e.ID, w.instant)
		return true, nil
	case canary.ServicesExist:
		changed = !w.services || e.Apex && !w.apex
		w.services, w.apex = true, w.apex || e.Apex
	case canary.RoutePrepared:
		changed = !w.prepared
		w.prepared = true
	case canary.UserObjectsRestored:
		changed = !w.given
		w.given = true
	case canary.ScalerExists, canary.ConfigsCollected, canary.ConfigsRestored:
		// The world has neither autoscalers nor copies.
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
	if provider == canary.ProviderKubernetes {
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
	w.routes[provider] = &after
	return before == nil || *before != after, nil
}
