package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
	"github.com/serin-dev/serin/internal/rollout/pods"
)

// rolloutCluster is a cluster with one Rollout in memory: it applies effects at once, and pods are ready at once.
type rolloutCluster struct {
	in              Input
	namespace, name string
	now             time.Time
	generation      int64
	spec            argov1.RolloutSpec
	status          argov1.RolloutStatus
	hash, stepHash  string
	// revision and workloadGeneration are annotations of the Rollout.
	revision, workloadGeneration string
	sets                         []rollout.ReplicaSet
	services                     map[string]rollout.Service
	runs                         []*playedAnalysis
	experiments                  []*playedExperiment
	managedRoutes                []string
	mirrors                      bool
	// slowest is true if measurements return as many errors as their analyses tolerate.
	slowest bool
	// answers are those of step plugins, which are successful at once.
	answers release.Answers
	last    rollout.Decision
	count   int
	notes   []string
}

func newRolloutCluster(in Input, spec argov1.RolloutSpec, slowest bool) *rolloutCluster {
	w := &rolloutCluster{
		in: in, namespace: in.Rollout.Namespace, name: in.Rollout.Name, now: playedFrom, generation: 1, spec: spec, hash: previousRevision,
		services: map[string]rollout.Service{}, slowest: slowest,
	}
	w.spec.Paused, w.spec.RestartAt = false, nil
	if c := spec.Strategy.Canary; c != nil {
		w.stepHash, _ = rollout.StepHash(c.Steps) // fails for no value of this type
	}
	for _, name := range rollout.ServiceNames(spec.Strategy) {
		if name != "" {
			w.services[name] = rollout.Service{Found: true, Selector: map[string]string{}}
		}
	}
	return w
}

// startRelease changes the template.
func (w *rolloutCluster) startRelease() {
	w.generation++
	w.hash, w.runs, w.experiments, w.notes = newRevision, nil, nil, nil
	w.now = w.now.Truncate(time.Second).Add(time.Second) // the first revision is older
}

// tick returns the time of creation of an object, so that the order of objects is known.
func (w *rolloutCluster) tick() time.Time {
	w.count++
	return w.now.Add(time.Duration(w.count) * time.Microsecond)
}

func (w *rolloutCluster) snapshot() rollout.Snapshot {
	for i := range w.sets {
		rs := &w.sets[i]
		rs.Replicas, rs.Ready, rs.Available, rs.StatusCurrent = rs.SpecReplicas, rs.SpecReplicas, rs.SpecReplicas, true
	}
	s := rollout.Snapshot{
		Now: w.now, Namespace: w.namespace, Name: w.name, UID: "plan", Generation: w.generation, RevisionAnnotation: w.revision,
		WorkloadGenerationAnnotation: w.workloadGeneration, Spec: *w.spec.DeepCopy(), Status: *w.status.DeepCopy(), ReplicaSets: slices.Clone(w.sets),
		Hash: w.hash, StepHash: w.stepHash, Services: w.observedServices(), Answers: maps.Clone(w.answers),
		Route: rollout.Route{ManagedRoutes: slices.Clone(w.managedRoutes)},
	}
	s.Selector = metav1.FormatLabelSelector(w.spec.Selector)
	if c := w.spec.Strategy.Canary; c != nil && c.TrafficRouting != nil {
		s.Route.Confirmed = new(true)
	}
	if c := w.spec.Strategy.Canary; c != nil {
		s.StepPlugins = map[string]rollout.StepPlugin{}
		for _, step := range c.Steps {
			if step.Plugin != nil {
				s.StepPlugins[step.Plugin.Name] = w.in.Plugins.step(step.Plugin.Name)
			}
		}
	}
	for _, run := range w.runs {
		s.AnalysisRuns = append(s.AnalysisRuns, run.AnalysisRun)
	}
	for _, e := range w.experiments {
		s.Experiments = append(s.Experiments, e.Experiment)
	}
	return s
}

// observedServices returns the Services with their endpoints.
func (w *rolloutCluster) observedServices() map[string]rollout.Service {
	out := maps.Clone(w.services)
	for name, service := range out {
		service.Endpoints = map[string]release.Endpoints{}
		for _, rs := range w.sets {
			if of := service.Selector[argov1.PodTemplateHashLabel]; of == "" || of == rs.Hash {
				service.Endpoints[rs.Hash] = release.Endpoints{Ready: rs.SpecReplicas}
			}
		}
		out[name] = service
	}
	return out
}

// reconcile decides, applies the effects and writes the status. It reports whether something changed.
func (w *rolloutCluster) reconcile() bool {
	w.completeAnalyses()
	s := w.snapshot()
	w.last = rollout.Next(s)
	changed := false
	for _, effect := range w.last.Effects {
		changed = w.apply(effect) || changed
	}
	if !equality.Semantic.DeepEqual(s.Status, w.last.Status) {
		w.status, changed = *w.last.Status.DeepCopy(), true
	}
	return w.answerPlugins() || changed
}

// answerPlugins answers the calls of step plugins. How long a plugin takes is not known.
func (w *rolloutCluster) answerPlugins() bool {
	answered := false
	for _, query := range w.last.Queries {
		call, isCall := query.Request.(rollout.StepPluginCall)
		if _, known := w.answers[query.ID]; known || !isCall {
			continue
		}
		if w.answers == nil {
			w.answers = release.Answers{}
		}
		w.answers[query.ID] = release.Answer{ID: query.ID, Began: w.now, Ended: w.now, Outcome: release.Yes, Detail: rollout.StepPluginReply{Phase: argov1.StepPluginSuccessful}}
		w.addNote(fmt.Sprintf("Step %d calls the plugin %s, whose duration is not known.", call.Step+1, call.Plugin))
		answered = true
	}
	return answered
}

// completeAnalyses completes the analyses whose time has come. A run that the status does not name yet is in progress.
func (w *rolloutCluster) completeAnalyses() {
	for _, run := range w.runs {
		switch {
		case run.Phase.Completed():
		case run.Terminated:
			run.Phase, run.ended = argov1.AnalysisPhaseSuccessful, w.now
		case run.awaited && run.isDue(w.now):
			run.Phase, run.ended = argov1.AnalysisPhaseSuccessful, w.now
		}
	}
	for _, e := range w.experiments {
		if !e.Phase.Completed() && (e.Terminated || w.status.Canary.CurrentExperiment == e.Name && !w.now.Before(e.end)) {
			e.Phase, e.Destinations = argov1.AnalysisPhaseSuccessful, nil
		}
	}
}

// isRecorded reports whether the status names an AnalysisRun.
func (w *rolloutCluster) isRecorded(name string) bool {
	c, b := w.status.Canary, w.status.BlueGreen
	return slices.ContainsFunc([]*argov1.RolloutAnalysisRunStatus{
		c.CurrentStepAnalysisRunStatus, c.CurrentBackgroundAnalysisRunStatus, b.PrePromotionAnalysisRunStatus, b.PostPromotionAnalysisRunStatus,
	}, func(run *argov1.RolloutAnalysisRunStatus) bool { return run != nil && run.Name == name })
}

// advanceTime advances to the next time at which something happens, and reports whether there is one. Analyses that need no time
// happen now.
func (w *rolloutCluster) advanceTime() bool {
	ends := false
	for _, run := range w.runs {
		if !run.awaited && w.isRecorded(run.Name) {
			run.awaited = true
			ends = ends || run.isDue(w.now)
		}
	}
	if ends {
		return true
	}
	next := w.last.Wake
	earlier := func(at time.Time) {
		if at.After(w.now) && (!next.After(w.now) || at.Before(next)) {
			next = at
		}
	}
	for _, run := range w.runs {
		if !run.Phase.Completed() && !run.unlimited {
			earlier(run.due)
		}
	}
	for _, e := range w.experiments {
		if !e.Phase.Completed() {
			earlier(e.end)
		}
	}
	if !next.After(w.now) {
		return false
	}
	w.now = next
	return true
}

// promote ends a pause as the command promote does, and reports whether there is one.
func (w *rolloutCluster) promote() bool {
	if len(w.status.PauseConditions) == 0 {
		return false
	}
	w.status.PauseConditions = nil
	return true
}

// experimentWeight returns the share of the requests that Experiments receive, in percent.
func (w *rolloutCluster) experimentWeight() int {
	if w.spec.Strategy.Canary == nil {
		return 0
	}
	total := 0
	for _, e := range w.experiments {
		for _, d := range e.Destinations {
			total += int(d.Weight)
		}
	}
	return total * release.Total / max(int(pods.MaxWeight(w.spec.Strategy.Canary)), 1)
}

// apply applies an effect, and reports whether it changed something.
func (w *rolloutCluster) apply(effect release.Effect) bool {
	switch e := effect.(type) {
	case rollout.RevisionAnnotated:
		return assign(&w.revision, fmt.Sprint(e.Revision))
	case rollout.WorkloadGenerationAnnotated:
		return assign(&w.workloadGeneration, e.Generation)
	case rollout.ServiceSelects:
		service := w.services[e.Service]
		if service.ManagedBy == w.name && service.Selector[argov1.PodTemplateHashLabel] == e.Hash {
			return false
		}
		w.services[e.Service] = rollout.Service{Found: true, ManagedBy: w.name, Selector: map[string]string{argov1.PodTemplateHashLabel: e.Hash}}
		return true
	case rollout.TrafficRouted:
		w.managedRoutes, w.mirrors = nil, len(e.Mirrors) > 0
		for _, header := range e.Headers {
			w.managedRoutes = append(w.managedRoutes, header.Name)
		}
		for _, mirror := range e.Mirrors {
			w.managedRoutes = append(w.managedRoutes, mirror.Name)
		}
		return false // the status records the weights
	case rollout.AnalysisRunExists, rollout.AnalysisRunTerminated, rollout.AnalysisRunDeleted, rollout.ExperimentExists, rollout.ExperimentTerminated, rollout.ExperimentDeleted:
		return w.applyToAnalyses(effect)
	default:
		return w.applyToReplicaSets(effect)
	}
}

// applyToReplicaSets applies an effect on ReplicaSets. All other effects change nothing that a decision depends on.
func (w *rolloutCluster) applyToReplicaSets(effect release.Effect) bool {
	set := func(name string) *rollout.ReplicaSet {
		i := slices.IndexFunc(w.sets, func(rs rollout.ReplicaSet) bool { return rs.Name == name })
		if i < 0 {
			return &rollout.ReplicaSet{}
		}
		return &w.sets[i]
	}
	switch e := effect.(type) {
	case rollout.ReplicaSetExists:
		if set(e.Name).Name != "" {
			return false
		}
		w.sets = append(w.sets, rollout.ReplicaSet{
			Name: e.Name, Hash: e.Hash, Revision: e.Revision, AvoidedHash: e.AvoidedHash, Created: w.tick(), RolloutReplicas: new(*w.spec.Replicas),
		})
		return true
	case rollout.ReplicaSetMaintained:
		changed := assign(&set(e.Name).Revision, e.Revision)
		return assign(&set(e.Name).AvoidedHash, e.AvoidedHash) || changed
	case rollout.ReplicaSetScaled:
		rs := set(e.Name)
		noted := rs.RolloutReplicas == nil || *rs.RolloutReplicas != e.RolloutReplicas
		rs.RolloutReplicas = new(e.RolloutReplicas)
		if e.Pods == 0 && !e.KeepDeadline {
			rs.ScaleDownDeadline, rs.Abandoned = time.Time{}, false
		}
		return assign(&rs.SpecReplicas, e.Pods) || noted
	case rollout.ScaleDownDeadlineSet:
		rs := set(e.Name)
		marked := assign(&rs.Abandoned, e.Abandoned && !e.Until.IsZero())
		return assign(&rs.ScaleDownDeadline, e.Until.Truncate(time.Second)) || marked
	case rollout.ReplicaSetDeleted:
		w.sets = slices.DeleteFunc(w.sets, func(rs rollout.ReplicaSet) bool { return rs.Name == e.Name })
		return true
	default:
		return false
	}
}

func (w *rolloutCluster) applyToAnalyses(effect release.Effect) bool {
	run := func(name string) int {
		return slices.IndexFunc(w.runs, func(r *playedAnalysis) bool { return r.Name == name })
	}
	experiment := func(name string) int {
		return slices.IndexFunc(w.experiments, func(e *playedExperiment) bool { return e.Name == name })
	}
	switch e := effect.(type) {
	case rollout.AnalysisRunExists:
		if run(e.Name) >= 0 {
			return false
		}
		w.runs = append(w.runs, w.startAnalysis(e))
	case rollout.AnalysisRunTerminated:
		if i := run(e.Name); i >= 0 {
			return assign(&w.runs[i].Terminated, true)
		}
		return false
	case rollout.AnalysisRunDeleted:
		return deleteWith(w.runs, run(e.Name), func(r *playedAnalysis) { r.Deleting = true })
	case rollout.ExperimentExists:
		if experiment(e.Name) >= 0 {
			return false
		}
		w.experiments = append(w.experiments, w.startExperiment(e))
	case rollout.ExperimentTerminated:
		if i := experiment(e.Name); i >= 0 {
			return assign(&w.experiments[i].Terminated, true)
		}
		return false
	case rollout.ExperimentDeleted:
		return deleteWith(w.experiments, experiment(e.Name), func(x *playedExperiment) { x.Deleting = true })
	}
	return true
}

func (w *rolloutCluster) addNote(text string) {
	if !slices.Contains(w.notes, text) {
		w.notes = append(w.notes, text)
	}
}

// deleteWith marks one object as deleted; its garbage collection changes nothing that a plan shows.
func deleteWith[T any](all []*T, i int, mark func(*T)) bool {
	if i < 0 {
		return false
	}
	mark(all[i])
	return false
}

func assign[T comparable](into *T, value T) bool {
	changed := *into != value
	*into = value
	return changed
}

func joinWords(words []string) string { return strings.Join(words, ",") }
