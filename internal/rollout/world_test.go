package rollout

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// world is a Rollout and a small cluster that applies its effects: pods are created and removed immediately, unless a
// test prevents them from becoming available.
type world struct {
	now        time.Time
	spec       argov1.RolloutSpec
	status     argov1.RolloutStatus
	generation int64
	template   string
	problem    string

	unreadableTemplate string

	revision, workloadGeneration string

	sets                []ReplicaSet // by time of creation
	labels              map[string]*argov1.PodTemplateMetadata
	ready               map[string]int32 // by hash: the maximum number of available pods
	readyLongEnough     map[string]int32 // by hash: the maximum number of pods that have been ready for long enough
	bad                 bool
	pods                []Pod
	budget              bool // a disruption budget protects all pods
	services            map[string]Service
	outdatedEndpoints   map[string]map[string]int32 // outdated endpoints by Service and hash; nil: they are current
	endpointsUnreadable bool                        // no permission to read endpoints
	runs                []AnalysisRun
	experiments         []Experiment
	verdict             argov1.AnalysisPhase
	outcome             argov1.AnalysisPhase
	route               *TrafficRouted
	headers             int // number of header routes before the last change
	observedRoute       Route
	workload            *WorkloadScale
	plugins             map[string]StepPlugin
	replies             map[string]pluginBehavior
	answers             release.Answers
	calls               map[string]StepPluginCall // in flight, by the ID of the query
	routerPlugins       map[string]RouterPlugin
	routerReplies       map[string]routerBehavior
	routerCalls         map[string]RouterCalls // in flight, by the ID of the query
	queueSlot           *release.QueueState    // of a release that may start
	count               int

	// become returns how many pods of a ReplicaSet exist and are available after a while; nil: all.
	become func(rs ReplicaSet) (replicas, available int32)

	persistentEvents []string // persistent events that were sent

	last   Decision
	steps  []int32 // step index of each status write
	events strings.Builder
	shown  string
	// watch is called for each effect that has changed something; before are the previous ReplicaSets.
	watch func(effect release.Effect, before []ReplicaSet)
	// lives returns after how many effects of a reconciliation the process stops, before it writes the status; nil:
	// never.
	lives func(effects int) (survivors int, dies bool)
	// hasty writes each decision unchanged, without merging decisions.
	hasty bool
}

func newWorld(spec argov1.RolloutSpec) *world {
	return &world{
		now: noon, template: "v1", generation: 1, spec: spec, verdict: argov1.AnalysisPhaseRunning, outcome: argov1.AnalysisPhaseRunning,
		ready: map[string]int32{}, readyLongEnough: map[string]int32{}, services: map[string]Service{}, labels: map[string]*argov1.PodTemplateMetadata{},
		plugins: map[string]StepPlugin{}, replies: map[string]pluginBehavior{}, answers: release.Answers{}, calls: map[string]StepPluginCall{},
		routerCalls: map[string]RouterCalls{},
	}
}

// tick is the time between the creation of two objects, so that their order is known.
func (w *world) tick() time.Time {
	w.count++
	return w.now.Add(time.Duration(w.count) * time.Microsecond)
}

// snapshot returns the world as the reconciler observes it: stored times have whole seconds.
func (w *world) snapshot(t testingT) Snapshot {
	text, err := json.Marshal(w.status)
	if err != nil {
		t.Fatalf("%v", err)
	}
	s := Snapshot{
		Now: w.now, Namespace: "shop", Name: "cart", UID: "uid", Generation: w.generation, RevisionAnnotation: w.revision, WorkloadGenerationAnnotation: w.workloadGeneration,
		Spec: *w.spec.DeepCopy(), ValidationError: w.problem, UnreadableTemplate: w.unreadableTemplate, ReplicaSets: slices.Clone(w.sets), Hash: "hash-" + w.template, Selector: "app=cart",
		Services: w.observedServices(), AnalysisRuns: slices.Clone(w.runs), Experiments: slices.Clone(w.experiments), Route: w.observedRoute,
		Workload: w.workload, StepPlugins: maps.Clone(w.plugins), RouterPlugins: maps.Clone(w.routerPlugins), Answers: maps.Clone(w.answers),
	}
	if err := json.Unmarshal(text, &s.Status); err != nil {
		t.Fatalf("%v", err)
	}
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}}
	if c := w.spec.Strategy.Canary; c != nil {
		if s.StepHash, err = StepHash(c.Steps); err != nil {
			t.Fatalf("%v", err)
		}
	}
	s.Route.ManagedRoutes = nil
	if w.route != nil {
		for _, h := range w.route.Headers {
			s.Route.ManagedRoutes = append(s.Route.ManagedRoutes, h.Name)
		}
		for _, m := range w.route.Mirrors {
			s.Route.ManagedRoutes = append(s.Route.ManagedRoutes, m.Name)
		}
	}
	if checkWeights, targets := ExternalConfirmations(s); w.observedRoute.ExternalLoadBalancer && !checkWeights && len(targets) == 0 {
		s.Route.Confirmed = nil
	}
	if MayStartRelease(s) {
		s.QueueSlot = w.queueSlot
	}
	if IsRestartDue(s.Spec, s.Status, s.Now) {
		s.Pods = slices.Clone(w.pods)
	}
	return s
}

// observedServices returns the Services with their endpoints.
func (w *world) observedServices() map[string]Service {
	seen := maps.Clone(w.services)
	endpoints := w.endpoints()
	for _, name := range ServicesWithEndpoints(w.spec.Strategy) {
		service, found := seen[name]
		if !found {
			continue
		}
		service.Endpoints = map[string]release.Endpoints{}
		for _, rs := range w.sets {
			switch {
			case w.endpointsUnreadable:
				service.Endpoints[rs.Hash] = release.Endpoints{Unknown: "no permission to read EndpointSlices"}
			case w.outdatedEndpoints != nil:
				service.Endpoints[rs.Hash] = release.Endpoints{Ready: w.outdatedEndpoints[name][rs.Hash]}
			default:
				service.Endpoints[rs.Hash] = release.Endpoints{Ready: endpoints[name][rs.Hash]}
			}
		}
		seen[name] = service
	}
	return seen
}

// endpoints returns the number of ready endpoints by Service and revision.
func (w *world) endpoints() map[string]map[string]int32 {
	all := map[string]map[string]int32{}
	for name, service := range w.services {
		all[name] = map[string]int32{}
		for _, rs := range w.sets {
			if of := service.Selector[argov1.PodTemplateHashLabel]; of == "" || of == rs.Hash {
				all[name][rs.Hash] = rs.Ready
			}
		}
	}
	return all
}

// testingT is a test, or a property test.
type testingT interface {
	Helper()
	Fatalf(format string, args ...any)
}

var _ testingT = (*testing.T)(nil)

// settle reconciles until nothing changes.
func (w *world) settle(t testingT) {
	t.Helper()
	for range 400 {
		if !w.reconcile(t) {
			w.checkIdleInvariants(t)
			return
		}
	}
	s := w.snapshot(t)
	d := Next(s)
	t.Fatalf("does not become idle; now it is %v, %v, and the status (-is +becomes)\n%s\n%s", d.Effects, d.Gates, cmp.Diff(s.Status, d.Status), w.events.String())
}

// worldInFirstPause returns a world with a router, in the first pause of a release.
func worldInFirstPause(t *testing.T, pods int32, steps ...argov1.CanaryStep) *world {
	t.Helper()
	w := newWorld(argov1.RolloutSpec{Replicas: &pods})
	w.spec.Strategy.Canary = &argov1.CanaryStrategy{
		CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{}, Steps: steps,
	}
	w.settle(t)
	w.generation++
	w.template = "v2"
	w.settle(t)
	if w.status.Phase != argov1.RolloutPhasePaused {
		t.Fatalf("%s (%s):\n%s", w.status.Phase, w.status.Message, w.events.String())
	}
	w.steps = nil
	w.events.Reset()
	return w
}

// checkGatesAgree verifies that two gates have the same name only if both wait for the same party, such as those of two Services:
// users would not know which one applies.
func checkGatesAgree(t testingT, gates release.Gates) {
	t.Helper()
	for i, gate := range gates {
		for _, other := range gates[:i] {
			if other.Name == gate.Name && (other.Verdict != gate.Verdict || other.Opener != gate.Opener || other.Message == gate.Message) {
				t.Fatalf("the gate %s is shown as %s (%s) and as %s (%s)", gate.Name, other.Verdict, other.Message, gate.Verdict, gate.Message)
			}
		}
	}
}

// reconcile decides, applies the effects, and writes the status. It reports whether something changed.
func (w *world) reconcile(t testingT) bool {
	t.Helper()
	w.runControllers()
	w.finishCalls()
	s := w.snapshot(t)
	d := Next(s)
	if again := Next(s); !equality.Semantic.DeepEqual(d.Status, again.Status) || !reflect.DeepEqual(d.Gates, again.Gates) || fmt.Sprint(d.Effects, d.Events) != fmt.Sprint(again.Effects, again.Events) {
		t.Fatalf("two decisions about one snapshot differ")
	}
	checkGatesAgree(t, d.Gates)
	w.last = d
	effects, dies := d.Effects, false
	if w.lives != nil {
		survivors, dead := w.lives(len(effects))
		effects, dies = effects[:min(survivors, len(effects))], dead
	}
	moved := false
	for _, effect := range effects {
		before := slices.Clone(w.sets)
		if !w.apply(t, effect) {
			continue
		}
		if w.watch != nil {
			w.watch(effect, before)
		}
		moved = true
		if made, is := effect.(ReplicaSetExists); is {
			s.ReplicaSets = append(s.ReplicaSets, *w.replicaSet(made.Name))
		}
		if event, ok := EffectEvent(effect); ok {
			fmt.Fprintf(&w.events, "  %s: %s\n", event.Reason, event.Message)
		} else {
			fmt.Fprintf(&w.events, "  %s\n", effect)
		}
	}
	if dies {
		clear(w.answers) // they are in memory only
		clear(w.calls)
		clear(w.routerCalls)
		return true
	}
	if !w.hasty {
		d = MergeStatusChanges(s, d)
	}
	w.last = d
	for _, event := range d.Events {
		if event.Persistent && !slices.Contains(w.persistentEvents, event.Message) {
			fmt.Fprintf(&w.events, "  %s: %s\n", event.Reason, event.Message)
			w.persistentEvents = append(w.persistentEvents, event.Message)
		}
	}
	if equality.Semantic.DeepEqual(s.Status, d.Status) {
		return w.sendQueries(t, d.Queries) || moved
	}
	defer w.sendQueries(t, d.Queries)
	w.status = d.Status
	w.steps = append(w.steps, valueOr(w.status.CurrentStepIndex, -1))
	w.recordEvents(d.Events)
	return true
}

// recordEvents records each event once.
func (w *world) recordEvents(events []release.Event) {
	for _, event := range events {
		if !event.Persistent {
			fmt.Fprintf(&w.events, "  %s: %s\n", event.Reason, event.Message)
		}
	}
}

// checkIdleInvariants checks the invariants of a Rollout that does not change.
func (w *world) checkIdleInvariants(t testingT) {
	t.Helper()
	d := w.last
	if !d.Wake.IsZero() && !d.Wake.After(w.now) {
		t.Fatalf("idle, but requeued at %s: %v", d.Wake, d.Gates)
	}
	open := true
	for _, gate := range d.Gates {
		if gate.Verdict == release.Pass {
			continue
		}
		open = false
		if gate.Opener == "" || gate.Opener == release.ByTime && gate.Until.IsZero() {
			t.Fatalf("the gate %s has no opener: %s", gate.Name, gate.Message)
		}
	}
	if open && w.status.Phase != argov1.RolloutPhaseHealthy {
		t.Fatalf("%s (%s), and no gate explains why:\n%s", w.status.Phase, w.status.Message, w.events.String())
	}
}

// advanceTo advances the time, with a reconciliation at each requested time.
func (w *world) advanceTo(t testingT, at time.Time) {
	t.Helper()
	for range 2000 {
		wake := w.last.Wake
		if wake.IsZero() || wake.After(at) {
			w.now = at
			if w.lives != nil {
				w.settle(t)
				return
			}
			before := w.events.Len()
			if w.reconcile(t) {
				t.Fatalf("something changed at %s, and no decision requeued the Rollout at that time:\n%s", w.now.Format(time.TimeOnly), w.events.String()[before:])
			}
			w.checkIdleInvariants(t)
			return
		}
		w.now = wake
		w.settle(t)
	}
	t.Fatalf("requeued endlessly")
}

// runControllers simulates the controllers of the cluster.
func (w *world) runControllers() {
	for _, named := range namedServices(w.spec.Strategy) {
		if _, found := w.services[named.name]; !found && named.name != "" {
			w.services[named.name] = Service{Found: true, Selector: map[string]string{"app": "cart"}}
		}
	}
	for i := range w.sets {
		rs := &w.sets[i]
		if w.bad && rs.Hash == "hash-"+w.template {
			if _, limited := w.ready[rs.Hash]; !limited {
				w.ready[rs.Hash] = rs.Available
			}
		}
		w.replacePods(rs)
		replicas, available := rs.SpecReplicas, rs.SpecReplicas
		if w.become != nil {
			replicas, available = w.become(*rs)
		}
		rs.Replicas, rs.StatusCurrent = replicas, replicas == rs.SpecReplicas
		rs.Available = available
		if limit, limited := w.ready[rs.Hash]; limited {
			rs.Available = min(available, limit)
		}
		rs.Ready = rs.Available
		if limit, limited := w.readyLongEnough[rs.Hash]; limited {
			rs.Available = min(rs.Available, limit)
		}
		ready := rs.Ready
		for j := range w.pods {
			if w.pods[j].ReplicaSet == rs.Name {
				w.pods[j].Ready = ready > 0
				ready--
			}
		}
	}
	for i := range w.runs {
		if !w.runs[i].Phase.Completed() {
			if w.isRunRecorded(w.runs[i].Name) { // a run takes longer than a restart of the process
				w.runs[i].Phase, w.runs[i].Message = w.verdict, "as judged"
			}
			if w.runs[i].Terminated {
				w.runs[i].Phase, w.runs[i].Message = argov1.AnalysisPhaseSuccessful, "Run Terminated"
			}
		}
	}
	for i := range w.experiments {
		if e := &w.experiments[i]; !e.Phase.Completed() {
			if w.status.Canary.CurrentExperiment == e.Name {
				e.Phase = w.outcome
			}
			if e.Terminated {
				e.Phase = argov1.AnalysisPhaseSuccessful
			}
			if e.Phase.Completed() {
				e.Destinations = nil
			}
		}
	}
}

// isRunRecorded reports whether the status names an AnalysisRun.
func (w *world) isRunRecorded(name string) bool {
	c, b := w.status.Canary, w.status.BlueGreen
	return slices.ContainsFunc([]*argov1.RolloutAnalysisRunStatus{
		c.CurrentStepAnalysisRunStatus, c.CurrentBackgroundAnalysisRunStatus, b.PrePromotionAnalysisRunStatus, b.PostPromotionAnalysisRunStatus,
	}, func(run *argov1.RolloutAnalysisRunStatus) bool { return run != nil && run.Name == name })
}

// replacePods creates or removes pods of a ReplicaSet until it has the desired number.
func (w *world) replacePods(rs *ReplicaSet) {
	var own int32
	w.pods = slices.DeleteFunc(w.pods, func(pod Pod) bool {
		if pod.ReplicaSet == rs.Name {
			own++
		}
		return pod.ReplicaSet == rs.Name && own > rs.SpecReplicas
	})
	for ; own < rs.SpecReplicas; own++ {
		made := w.tick()
		w.pods = append(w.pods, Pod{Name: fmt.Sprintf("%s-%d", rs.Name, w.count), ReplicaSet: rs.Name, Created: made})
	}
}

func (w *world) replicaSet(name string) *ReplicaSet {
	for i := range w.sets {
		if w.sets[i].Name == name {
			return &w.sets[i]
		}
	}
	return nil
}

// apply applies an effect, and reports whether it changed something.
func (w *world) apply(t testingT, effect release.Effect) bool {
	t.Helper()
	switch e := effect.(type) {
	case ReplicasDefaulted:
		if w.spec.Replicas != nil {
			return false
		}
		w.spec.Replicas = new(int32(1))
		w.generation++
	case RevisionAnnotated:
		return assign(&w.revision, fmt.Sprint(e.Revision))
	case WorkloadGenerationAnnotated:
		return assign(&w.workloadGeneration, e.Generation)
	case ReplicaSetExists:
		if w.replicaSet(e.Name) != nil {
			return false
		}
		w.sets = append(w.sets, ReplicaSet{
			Name: e.Name, Hash: e.Hash, Revision: e.Revision, AvoidedHash: e.AvoidedHash, Created: w.tick(), RolloutReplicas: new(valueOr(w.spec.Replicas, 1)),
		})
		w.labels[e.Name] = e.Metadata
	case ReplicaSetMaintained:
		rs := w.replicaSet(e.Name)
		changed := assign(&rs.Revision, e.Revision)
		return assign(&rs.AvoidedHash, e.AvoidedHash) || changed
	case ReplicaSetScaled:
		return w.scaleReplicaSet(t, e)
	case ScaleDownDeadlineSet:
		rs := w.replicaSet(e.Name)
		marked := assign(&rs.Abandoned, e.Abandoned && !e.Until.IsZero())
		return assign(&rs.ScaleDownDeadline, e.Until.Truncate(time.Second)) || marked
	case EphemeralMetadataSet:
		if cmp.Equal(w.labels[e.Name], e.Metadata) {
			return false
		}
		w.labels[e.Name] = e.Metadata
	case ReplicaSetDeleted:
		w.sets = slices.DeleteFunc(w.sets, func(rs ReplicaSet) bool { return rs.Name == e.Name })
	case PodEvicted:
		if w.budget {
			for i := range w.pods {
				if w.pods[i].Name == e.Name {
					// A stopped process would forget it, and retry earlier.
					w.pods[i].EvictionRefusal = EvictionRefusal{At: w.now, ReadyPods: CountReadyPods(w.pods)}
				}
			}
			return false
		}
		w.pods = slices.DeleteFunc(w.pods, func(pod Pod) bool { return pod.Name == e.Name })
	case ServiceSelects:
		service := w.services[e.Service]
		if service.ManagedBy == "cart" && service.Selector[argov1.PodTemplateHashLabel] == e.Hash {
			return false
		}
		selector := maps.Clone(service.Selector)
		selector[argov1.PodTemplateHashLabel] = e.Hash
		w.services[e.Service] = Service{Found: true, ManagedBy: "cart", Selector: selector}
	case ServiceRestored:
		delete(w.services, e.Service)
	case TrafficRouted:
		if w.headers = 0; w.route != nil {
			w.headers = len(w.route.Headers)
		}
		if w.route != nil && equality.Semantic.DeepEqual(*w.route, e) {
			return false
		}
		w.route = &e
	case RouteRestored:
		changed := w.route != nil || w.observedRoute.HasStaleRouters
		w.route, w.observedRoute.HasStaleRouters = nil, false
		return changed
	case AnalysisRunExists, AnalysisRunTerminated, AnalysisRunDeleted, ExperimentExists, ExperimentTerminated, ExperimentDeleted:
		return w.applyAnalysisEffect(effect)
	case WorkloadRestored:
	case WorkloadScaled:
		return assign(&w.workload.SpecReplicas, e.Pods)
	default:
		t.Fatalf("unknown effect %T", effect)
	}
	return true
}

func assign[T comparable](into *T, is T) bool {
	changed := *into != is
	*into = is
	return changed
}

func (w *world) scaleReplicaSet(t testingT, e ReplicaSetScaled) bool {
	rs := w.replicaSet(e.Name)
	if rs.SpecReplicas != e.From {
		t.Fatalf("%s is scaled from %d, and has %d", e.Name, e.From, rs.SpecReplicas)
	}
	noted := rs.RolloutReplicas == nil || *rs.RolloutReplicas != e.RolloutReplicas
	rs.RolloutReplicas = new(e.RolloutReplicas)
	if e.Pods == 0 && !e.KeepDeadline {
		rs.ScaleDownDeadline, rs.Abandoned = time.Time{}, false
	}
	changed := assign(&rs.SpecReplicas, e.Pods)
	return changed || noted
}

func (w *world) applyAnalysisEffect(effect release.Effect) bool {
	run := func(name string) int {
		return slices.IndexFunc(w.runs, func(r AnalysisRun) bool { return r.Name == name })
	}
	experiment := func(name string) int {
		return slices.IndexFunc(w.experiments, func(e Experiment) bool { return e.Name == name })
	}
	switch e := effect.(type) {
	case AnalysisRunExists:
		if run(e.Name) >= 0 {
			return false
		}
		w.runs = append(w.runs, AnalysisRun{Name: e.Name, Hash: e.Hash, Type: e.Type, Step: e.Step, Created: w.tick()})
	case AnalysisRunTerminated:
		return assign(&w.runs[run(e.Name)].Terminated, true)
	case AnalysisRunDeleted:
		w.runs = slices.Delete(w.runs, run(e.Name), run(e.Name)+1)
	case ExperimentExists:
		if experiment(e.Name) >= 0 {
			return false
		}
		made := Experiment{Name: e.Name, Hash: e.Hash, Created: w.tick()}
		for _, template := range e.Step.Templates {
			if template.Weight != nil {
				made.Destinations = append(made.Destinations, Destination{Service: e.Name + "-" + template.Name, Hash: template.Name, Weight: *template.Weight})
			}
		}
		w.experiments = append(w.experiments, made)
	case ExperimentTerminated:
		return assign(&w.experiments[experiment(e.Name)].Terminated, true)
	case ExperimentDeleted:
		w.experiments = slices.Delete(w.experiments, experiment(e.Name), experiment(e.Name)+1)
	}
	return true
}

// printState prints the world if it differs from the last output.
func (w *world) printState() {
	s := w.status
	var b strings.Builder
	index := "-"
	if s.CurrentStepIndex != nil {
		index = fmt.Sprint(*s.CurrentStepIndex)
	}
	fmt.Fprintf(&b, "%s step=%s stable=%s", s.Phase, index, s.StableRS)
	if s.Message != "" {
		fmt.Fprintf(&b, " (%s)", s.Message)
	}
	b.WriteString("\n  pods")
	for _, rs := range w.sets {
		if rs.SpecReplicas > 0 {
			fmt.Fprintf(&b, " %s %d/%d", rs.Hash, rs.Available, rs.SpecReplicas)
			if rs.HasScaleDownDeadline() {
				fmt.Fprintf(&b, " until %s", rs.ScaleDownDeadline.Format(time.TimeOnly))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.services)) {
		fmt.Fprintf(&b, "\n  service %s: %s", name, cmpOr(w.services[name].Selector[argov1.PodTemplateHashLabel], "all"))
	}
	if w.route != nil {
		fmt.Fprintf(&b, "\n  %s", w.route)
	}
	for _, run := range w.runs {
		fmt.Fprintf(&b, "\n  run %s %s", run.Name, run.Phase)
	}
	for _, e := range w.experiments {
		fmt.Fprintf(&b, "\n  experiment %s %s", e.Name, e.Phase)
	}
	b.WriteString("\n  is")
	sorted := slices.SortedFunc(slices.Values(s.Conditions), func(a, b argov1.RolloutCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	for _, c := range sorted {
		fmt.Fprintf(&b, " %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	if d := s.Duration; d != nil {
		fmt.Fprintf(&b, "\n  record %s", formatDuration(*d))
	}
	for _, p := range s.Canary.StepPluginStatuses {
		fmt.Fprintf(&b, "\n  plugin %s", formatPluginStatus(p))
	}
	for _, gate := range w.last.Gates {
		if gate.Verdict != release.Pass {
			fmt.Fprintf(&b, "\n  %s %s (%s): %s", gate.Verdict, gate.Name, gate.Opener, gate.Message)
		}
	}
	b.WriteString("\n")
	if text := b.String(); text != w.shown {
		w.shown = text
		w.events.WriteString(text)
	}
}

// formatDuration prints the duration of a release.
func formatDuration(d argov1.RolloutDuration) string {
	var parts []string
	at := func(what string, moment *metav1.Time) {
		if moment != nil {
			parts = append(parts, what+" "+moment.UTC().Format(time.TimeOnly))
		}
	}
	at("from", d.RolloutStartedAt)
	at("to", d.FinishedAt)
	if d.CompletionStatus != nil {
		parts = append(parts, string(*d.CompletionStatus))
	}
	at("waiting for the user since", d.ManualPauseStartedAt)
	if d.TotalManualPauseDurationSeconds != nil {
		parts = append(parts, fmt.Sprintf("waited for the user for %d s", *d.TotalManualPauseDurationSeconds))
	}
	return strings.Join(parts, ", ")
}

func cmpOr(text, without string) string {
	if text == "" {
		return without
	}
	return text
}
