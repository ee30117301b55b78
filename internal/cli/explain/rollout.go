package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Rollout is everything that was found out about one release by a Rollout.
type Rollout struct {
	Around

	// Object is the Rollout as it is stored.
	Object   *argov1.Rollout
	Snapshot rollout.Snapshot
	// Routers that it names.
	Routers []string
	// Runs are its AnalysisRuns.
	Runs []argov1.AnalysisRun
	// Assumed says that what is around the Rollout could not be read. What is said then comes from its status.
	Assumed bool
}

// Key names the Rollout.
func (seen *Rollout) Key() Key { return Key{KindRollout, seen.Object.Namespace, seen.Object.Name} }

// Version is that of the object, and of the look.
func (seen *Rollout) Version() Version {
	return Version{seen.Object.ResourceVersion, seen.Snapshot.Now}
}

// In is the same with other surroundings.
func (seen *Rollout) In(around Around) Seen {
	other := *seen
	other.Around = around
	return &other
}

// At says where the release stands at that moment.
func (seen *Rollout) At(now time.Time) Release {
	s := seen.Snapshot
	s.Now = now
	s, gates := seen.look(s)
	spec, status := s.Spec, s.Status
	index, total := rollout.StepsOf(spec, status)
	r := Release{
		Kind: KindRollout, Name: s.Name, Namespace: s.Namespace, Target: targetOf(s),
		Provider: seen.provider(), Strategy: strategyOf(spec), Phase: string(status.Phase), Since: sinceOf(status),
		Message: status.Message, Suspended: spec.Paused, Deleting: seen.Object.DeletionTimestamp != nil,
		Weight: int(rollout.Share(s)), TotalSteps: total, Revision: s.Hash, Promoted: status.StableRS,
		Gates: gates, Events: lastUpdate(seen.Events), Unread: slices.Clone(seen.Unread),
	}
	if index != nil && !rollout.Aborted(s) {
		r.Step = min(int(*index)+1, total)
	}
	r.Result = seen.result(s)
	r.State = seen.state(s, &r)
	if r.State == AtRest || seen.Peer.Sign != "" || seen.Assumed && len(gates) == 0 {
		return r // what another controller does, or waits for, is not known
	}
	at := now
	for _, gate := range gates {
		if gate.Verdict != string(release.Pass) && gate.Opener == string(release.ByTime) && gate.Name == "pause" {
			at = release.Later(at, gate.Until)
		}
	}
	for _, move := range rollout.Ahead(s) {
		r.Steps = append(r.Steps, Step{Text: move.Text, Weight: int(move.Weight), At: at.UTC()})
		at = at.Add(move.Lasts)
	}
	if len(r.Steps) > 0 {
		r.NextStep = r.Steps[0].Text
	}
	return r
}

// bookkeeping bounds the decisions that only note something down and look again.
const bookkeeping = 5

// look are the gates before the next move, and the snapshot with what the next status says.
func (seen *Rollout) look(s rollout.Snapshot) (rollout.Snapshot, []Gate) {
	switch {
	case seen.Peer.Sign != "":
		gate := gateOf(rollout.LeftTo(seen.Peer.Sign, seen.Peer.Until))
		gate.Do = seen.Peer.Stop
		return s, []Gate{gate}
	case seen.Assumed:
		return s, seen.stored(func(string) bool { return true })
	}
	var decision rollout.Decision
	for range bookkeeping {
		decision = rollout.Next(s)
		settled := len(decision.Gates) > 0 || equality.Semantic.DeepEqual(decision.Status, s.Status)
		s.Status = decision.Status
		if settled {
			break
		}
	}
	// That the API server would not have a ReplicaSet, only the controller knows.
	gates := seen.stored(func(name string) bool { return name == refusedGate })
	for _, gate := range decision.Gates {
		gates = append(gates, seen.withDo(gateOf(gate)))
		gates = append(gates, seen.metrics(gate, s)...)
	}
	return s, gates
}

// stored are gates of the status.
func (seen *Rollout) stored(wanted func(name string) bool) []Gate {
	var out []Gate
	if seen.Object.Status.Serin == nil {
		return nil
	}
	for _, gate := range seen.Object.Status.Serin.Gates {
		if !wanted(gate.Name) {
			continue
		}
		told := Gate{
			Name: gate.Name, Verdict: gate.Verdict, Message: gate.Message, Opener: gate.Opener,
			Value: release.Clip(gate.Value, mostValue), Limit: gate.Limit, Query: gate.Query,
		}
		if gate.Since != nil {
			told.Since = utc(gate.Since.Time)
		}
		if gate.Until != nil {
			told.Until = utc(gate.Until.Time)
		}
		out = append(out, seen.withDo(told))
	}
	return out
}

// gateOf is a gate as the machine sees it. When the cluster is looked at again is nobody's business.
func gateOf(gate release.Gate) Gate {
	g := Gate{Name: gate.Name, Verdict: string(gate.Verdict), Message: gate.Message, Opener: string(gate.Opener)}
	if gate.Opener != release.ByCluster {
		g.Until = utc(gate.Until)
	}
	return g
}

// withDo says what a person can do to open a gate. Most gates say it in their message already.
func (seen *Rollout) withDo(gate Gate) Gate {
	if gate.Verdict == string(release.Pass) || gate.Opener != string(release.ByPerson) {
		return gate
	}
	verb := map[string]string{"aborted": "retry", "paused": "resume", "pause": "promote", "inconclusive": "promote"}[gate.Name]
	if verb != "" {
		gate.Do = fmt.Sprintf("serin %s rollout/%s -n %s", verb, seen.Object.Name, seen.Object.Namespace)
	}
	return gate
}

// result is how the last release ended.
func (seen *Rollout) result(s rollout.Snapshot) Result {
	switch {
	case rollout.Released(s):
		return Promoted
	case rollout.Aborted(s):
		return Failed
	default:
		return ""
	}
}

// state says whether somebody has to do something. A release that was aborted is over when the stable revision serves.
func (seen *Rollout) state(s rollout.Snapshot, r *Release) State {
	switch {
	case r.Result == Promoted, seen.Peer.Sign != "" && r.Result == Failed:
		return AtRest
	case r.Result == Failed && len(rollout.Ahead(s)) == 0:
		return AtRest
	case r.Result == Failed && !s.Spec.Paused:
		return Returning
	case r.Person() != nil:
		return WaitsForPerson
	default:
		return Moving
	}
}

func targetOf(s rollout.Snapshot) string {
	if ref := s.Spec.WorkloadRef; ref != nil {
		return ref.Kind + "/" + ref.Name
	}
	return argov1.RolloutKind + "/" + s.Name
}

func strategyOf(spec argov1.RolloutSpec) string {
	if spec.Strategy.BlueGreen != nil {
		return "blue-green"
	}
	return "canary"
}

// provider is who carries the traffic.
func (seen *Rollout) provider() string {
	switch {
	case seen.Object.Spec.Strategy.BlueGreen != nil:
		return "service"
	case len(seen.Routers) == 0:
		return "replicas"
	default:
		return strings.Join(seen.Routers, ",")
	}
}

// sinceOf is when the release entered its phase, as far as the status knows.
func sinceOf(status argov1.RolloutStatus) time.Time {
	condition := argov1.RolloutProgressing
	switch {
	case status.Phase == argov1.RolloutPhasePaused && len(status.PauseConditions) > 0:
		return utc(status.PauseConditions[0].StartTime.Time)
	case status.Phase == argov1.RolloutPhaseDegraded && status.AbortedAt != nil:
		return utc(status.AbortedAt.Time)
	case status.Phase == argov1.RolloutPhaseHealthy:
		condition = argov1.RolloutHealthy
	case status.Phase == argov1.RolloutPhaseProgressing && status.Duration != nil && status.Duration.RolloutStartedAt != nil:
		return utc(status.Duration.RolloutStartedAt.Time)
	}
	for _, c := range status.Conditions {
		if c.Type == condition {
			return utc(c.LastTransitionTime.Time)
		}
	}
	return time.Time{}
}

// lastUpdate are the events since a revision was last taken up.
func lastUpdate(events []Event) []Event {
	for i, event := range slices.Backward(events) {
		if strings.HasPrefix(event.Message, "Rollout not completed, started update to revision") {
			return slices.Clone(events[i:])
		}
	}
	return slices.Clone(events)
}

// metrics are those of the analysis behind a gate: what was measured last, and what it is compared with.
func (seen *Rollout) metrics(gate release.Gate, s rollout.Snapshot) []Gate {
	run := seen.runBehind(gate.Name, s)
	if run == nil {
		return nil
	}
	var out []Gate
	for i := range run.Spec.Metrics {
		out = append(out, metricGate(&run.Spec.Metrics[i], resultOfMetric(run, run.Spec.Metrics[i].Name), gate))
	}
	return out
}

// runBehind is the AnalysisRun that a gate is about; nil: there is none. Of an abort it is the one that was against the
// release.
func (seen *Rollout) runBehind(gate string, s rollout.Snapshot) *argov1.AnalysisRun {
	var recorded *argov1.RolloutAnalysisRunStatus
	switch gate {
	case "analysis":
		recorded = s.Status.Canary.CurrentStepAnalysisRunStatus
	case "background":
		recorded = s.Status.Canary.CurrentBackgroundAnalysisRunStatus
	case "pre-promotion":
		recorded = s.Status.BlueGreen.PrePromotionAnalysisRunStatus
	case "post-promotion":
		recorded = s.Status.BlueGreen.PostPromotionAnalysisRunStatus
	case "aborted":
		return seen.against(s.Hash)
	}
	if recorded == nil {
		return nil
	}
	i := slices.IndexFunc(seen.Runs, func(run argov1.AnalysisRun) bool { return run.Name == recorded.Name })
	if i < 0 {
		return nil
	}
	return &seen.Runs[i]
}

// against is the newest run that failed about a revision.
func (seen *Rollout) against(hash string) *argov1.AnalysisRun {
	var newest *argov1.AnalysisRun
	for i := range seen.Runs {
		run := &seen.Runs[i]
		failed := run.Status.Phase == argov1.AnalysisPhaseFailed || run.Status.Phase == argov1.AnalysisPhaseError
		if failed && run.Labels[argov1.PodTemplateHashLabel] == hash && (newest == nil || newest.CreationTimestamp.Before(&run.CreationTimestamp)) {
			newest = run
		}
	}
	return newest
}

func resultOfMetric(run *argov1.AnalysisRun, name string) argov1.MetricResult {
	i := slices.IndexFunc(run.Status.MetricResults, func(r argov1.MetricResult) bool { return r.Name == name })
	if i < 0 {
		return argov1.MetricResult{Name: name}
	}
	return run.Status.MetricResults[i]
}

// mostValue bounds a measured value: some services answer with whole documents.
const mostValue = 100

// metricGate is what one metric of a run has come to. Beside the steps it holds nothing while it is measured.
func metricGate(metric *argov1.Metric, result argov1.MetricResult, of release.Gate) Gate {
	g := Gate{
		Name: metric.Name, Check: true, Asks: asks(metric.Provider), Limit: limitOf(metric), Query: result.Metadata["ResolvedPrometheusQuery"],
		Message: counted(result),
	}
	if n := len(result.Measurements); n > 0 {
		last := result.Measurements[n-1]
		g.Value = release.Clip(last.Value, mostValue)
		g.Last = string(judged(last.Phase))
		if last.FinishedAt != nil {
			g.Since = utc(last.FinishedAt.Time)
		}
	}
	switch result.Phase {
	case argov1.AnalysisPhaseSuccessful:
		g.Verdict = string(release.Pass)
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError:
		g.Verdict, g.Opener, g.Asks = string(release.Fail), string(release.ByPerson), ""
		g.Message = cmp.Or(result.Message, g.Message)
	case argov1.AnalysisPhaseInconclusive:
		g.Verdict, g.Opener, g.Asks = string(release.Wait), string(release.ByPerson), ""
		g.Message = cmp.Or(result.Message, g.Message)
	default:
		g.Verdict, g.Opener = string(release.Ask), string(release.ByAnswer)
	}
	if result.DryRun || of.Verdict == release.Pass && g.Verdict == string(release.Ask) {
		g.Verdict, g.Opener = string(release.Pass), ""
	}
	return g
}

// judged is a measurement as a verdict; empty while there is none.
func judged(phase argov1.AnalysisPhase) release.Verdict {
	switch phase {
	case argov1.AnalysisPhaseSuccessful:
		return release.Pass
	case argov1.AnalysisPhaseFailed, argov1.AnalysisPhaseError, argov1.AnalysisPhaseInconclusive:
		return release.Fail
	default:
		return ""
	}
}

// counted says how many measurements came to what.
func counted(r argov1.MetricResult) string {
	parts := []string{fmt.Sprintf("%d good", r.Successful)}
	for _, bad := range []struct {
		count int32
		word  string
	}{{r.Failed, "bad"}, {r.Inconclusive, "neither good nor bad"}, {r.Error, "gone wrong"}} {
		if bad.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", bad.count, bad.word))
		}
	}
	text := "measurements: " + strings.Join(parts, ", ")
	if r.DryRun {
		text += " (recorded only)"
	}
	return text
}

// limitOf is what a metric is compared with.
func limitOf(m *argov1.Metric) string {
	limit := analysis.Limit(*m)
	if m.FailureLimit != nil {
		limit += fmt.Sprintf(" (may fail %s times)", m.FailureLimit)
	}
	return strings.TrimSpace(limit)
}

// asks is whom a metric is measured by.
func asks(p argov1.MetricProvider) string {
	switch {
	case p.Prometheus != nil && strings.Contains(p.Prometheus.Address, "{{"), p.Web != nil && strings.Contains(p.Web.URL, "{{"):
		return "the service that its argument names"
	case p.Prometheus != nil && p.Prometheus.Address != "":
		return "Prometheus at " + outbound.Redact(p.Prometheus.Address)
	case p.Prometheus != nil:
		return "the Prometheus of the controller"
	case p.Web != nil:
		return "the service at " + outbound.Redact(p.Web.URL)
	case p.Job != nil:
		return "a Job"
	default:
		return "its metrics provider"
	}
}
