package experiment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/experiment"
	"github.com/serin-dev/serin/internal/release"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster in which an Experiment runs: effects are applied immediately, but pods become available when the
// test allows it.
type world struct {
	s      experiment.Snapshot
	unable map[string]bool // templates whose pods do not become available
	refuse string          // error of the creation of runs
	events []string
	done   []string // effects as text
}

func newWorld(spec argov1.ExperimentSpec) *world {
	w := &world{
		s:      experiment.Snapshot{Now: noon, Name: "compare", Spec: spec, Templates: map[string]experiment.TemplateState{}, AnalysisRuns: map[string]experiment.AnalysisRunState{}},
		unable: map[string]bool{},
	}
	for _, t := range spec.Templates {
		w.s.Templates[t.Name] = experiment.TemplateState{ReplicaSet: "compare-" + t.Name, Hash: "hash-of-" + t.Name}
	}
	return w
}

func template(name string, replicas int32) argov1.TemplateSpec {
	return argov1.TemplateSpec{
		Name: name, Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"side": name}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}}},
	}
}

func twoTemplates() argov1.ExperimentSpec {
	return argov1.ExperimentSpec{Templates: []argov1.TemplateSpec{template("old", 1), template("new", 2)}}
}

// runUntil applies decisions until nothing more happens before a time, and returns the last decision.
func (w *world) runUntil(end time.Time) experiment.Decision {
	for range 1000 {
		d := experiment.Next(w.s)
		moved := w.apply(&d)
		for _, e := range d.Events {
			w.events = append(w.events, e.Reason+": "+e.Message)
		}
		moved = moved || cmp.Diff(w.s.Status, d.Status) != ""
		w.s.Status = d.Status
		switch {
		case moved:
		case d.Wake.IsZero() || d.Wake.After(end):
			w.s.Now = end
			return d
		default:
			w.s.Now = release.LaterOf(w.s.Now, d.Wake)
		}
	}
	panic("the Experiment does not become idle")
}

func (w *world) apply(d *experiment.Decision) (changed bool) {
	for _, effect := range d.Effects {
		w.done = append(w.done, effect.String())
		changed = true
		switch e := effect.(type) {
		case experiment.ReplicaSetExists:
			w.setTemplateState(e.Template, func(s *experiment.TemplateState) { s.Found = true })
		case experiment.ReplicaSetScaled:
			w.setTemplateState(e.Template, func(s *experiment.TemplateState) {
				s.Desired, s.Total, s.Ready, s.Available = e.Replicas, e.Replicas, e.Replicas, e.Replicas
				if w.unable[e.Template] {
					s.Ready, s.Available = 0, 0
				}
			})
		case experiment.ScaleDownDeadlineSet:
			w.setTemplateState(e.Template, func(s *experiment.TemplateState) { s.ScaleDownDeadline = e.Deadline })
		case experiment.ServiceExists:
			w.setTemplateState(e.Template, func(s *experiment.TemplateState) { s.Service = e.Name })
		case experiment.ServiceDeleted:
			w.setTemplateState(e.Template, func(s *experiment.TemplateState) { s.Service = "" })
		case experiment.AnalysisRunStarted:
			if w.refuse != "" {
				d.Events = append(d.Events, experiment.RecordRunRejected(&d.Status, e.Analysis.Name, w.refuse)...)
				break
			}
			w.s.AnalysisRuns[e.Name] = experiment.AnalysisRunState{Found: true, Phase: argov1.AnalysisPhaseRunning}
			d.Events = append(d.Events, experiment.RecordRunStarted(&d.Status, e.Analysis.Name, e.Name)...)
			for _, arg := range e.Args {
				w.done = append(w.done, "  "+arg.Name+"="+*arg.Value)
			}
		case experiment.AnalysisRunTerminated:
			w.s.AnalysisRuns[e.Name] = experiment.AnalysisRunState{Found: true, Phase: argov1.AnalysisPhaseSuccessful, Terminated: true}
		}
	}
	return changed
}

func (w *world) setTemplateState(name string, change func(*experiment.TemplateState)) {
	side := w.s.Templates[name]
	change(&side)
	w.s.Templates[name] = side
}

func (w *world) setRunPhase(name string, phase argov1.AnalysisPhase, message string) {
	w.s.AnalysisRuns[name] = experiment.AnalysisRunState{Found: true, Phase: phase, Message: message}
}

func (w *world) expectPhase(t *testing.T, phase argov1.AnalysisPhase, message string) {
	t.Helper()
	if got := w.s.Status; got.Phase != phase || got.Message != message {
		t.Errorf("is %s %q, want %s %q", got.Phase, got.Message, phase, message)
	}
}

func TestExperimentRunsForItsDuration(t *testing.T) {
	spec := twoTemplates()
	spec.Duration = "5m"
	spec.Templates[1].Service = &argov1.TemplateService{}
	w := newWorld(spec)
	w.runUntil(noon.Add(5*time.Minute - time.Second))
	w.expectPhase(t, argov1.AnalysisPhaseRunning, "")
	if at := w.s.Status.AvailableAt; !at.Time.Equal(noon) {
		t.Errorf("available at %v", at)
	}
	w.runUntil(noon.Add(5 * time.Minute))
	w.expectPhase(t, argov1.AnalysisPhaseSuccessful, "")
	w.runUntil(noon.Add(5*time.Minute + 29*time.Second))
	if side := w.s.Templates["new"]; side.Desired != 2 || side.Service != "compare-new" {
		t.Errorf("the pods went before the delay: %+v", side)
	}
	w.runUntil(noon.Add(time.Hour))
	want := []string{
		"ReplicaSet of old exists", "ReplicaSet of new exists", "ReplicaSet of old scaled to 1", "ReplicaSet of new scaled to 2", "Service compare-new of new exists",
		"scale-down deadline of old is 2026-01-01T12:05:30Z", "scale-down deadline of new is 2026-01-01T12:05:30Z", "ReplicaSet of old scaled to 0", "ReplicaSet of new scaled to 0", "Service compare-new of new deleted",
	}
	if diff := cmp.Diff(want, w.done); diff != "" {
		t.Error(diff)
	}
	events := []string{
		"NewReplicaSetCreated: Created ReplicaSet compare-old", "TemplateProgressing: Template 'old' transitioned from  -> Progressing",
		"NewReplicaSetCreated: Created ReplicaSet compare-new", "TemplateProgressing: Template 'new' transitioned from  -> Progressing",
		"ExperimentPending: Experiment transitioned from  -> Pending",
		"ScalingReplicaSet: Scaled up ReplicaSet compare-old from 0 to 1", "ScalingReplicaSet: Scaled up ReplicaSet compare-new from 0 to 2",
		"TemplateRunning: Template 'old' transitioned from Progressing -> Running", "TemplateRunning: Template 'new' transitioned from Progressing -> Running",
		"ExperimentRunning: Experiment transitioned from Pending -> Running",
		"TemplateSuccessful: Template 'old' transitioned from Running -> Successful", "TemplateSuccessful: Template 'new' transitioned from Running -> Successful",
		"ExperimentSuccessful: Experiment transitioned from Running -> Successful",
		"ScalingReplicaSet: Scaled down ReplicaSet compare-old from 1 to 0", "ScalingReplicaSet: Scaled down ReplicaSet compare-new from 2 to 0",
	}
	if diff := cmp.Diff(events, w.events); diff != "" {
		t.Error(diff)
	}
}

func TestExperimentWithoutDurationRunsUntilTerminated(t *testing.T) {
	w := newWorld(twoTemplates())
	w.runUntil(noon.Add(1000 * time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseRunning, "")
	w.s.Spec.Terminate = true
	w.runUntil(noon.Add(1001 * time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseSuccessful, "")
	if w.s.Templates["new"].Desired != 0 {
		t.Error("the pods stay")
	}
}

func TestMissingPodsFailExperiment(t *testing.T) {
	spec := twoTemplates()
	spec.ProgressDeadlineSeconds = new(int32(60))
	w := newWorld(spec)
	w.unable["new"] = true
	w.runUntil(noon.Add(59 * time.Second))
	w.expectPhase(t, argov1.AnalysisPhasePending, "")
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseFailed, "Template 'new' exceeded its progressDeadlineSeconds (60)")
	if !slices.Contains(w.events, "TemplateFailed: Template 'new' transitioned from Progressing -> Failed: Template 'new' exceeded its progressDeadlineSeconds (60)") {
		t.Errorf("got %q", w.events)
	}
	if w.s.Templates["old"].Desired != 0 || w.s.Templates["new"].Desired != 0 {
		t.Error("the pods stay")
	}
}

func TestObjectsOfOthersAreNotChanged(t *testing.T) {
	w := newWorld(twoTemplates())
	w.setTemplateState("new", func(s *experiment.TemplateState) { s.Problem = "ReplicaSet compare-new is somebody else's" })
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseError, "ReplicaSet compare-new is somebody else's")
	if slices.ContainsFunc(w.done, func(effect string) bool { return strings.Contains(effect, "new") }) {
		t.Errorf("done: %q", w.done)
	}
}

func specWithAnalyses(required ...bool) argov1.ExperimentSpec {
	spec := twoTemplates()
	for i, r := range required {
		spec.Analyses = append(spec.Analyses, argov1.ExperimentAnalysisTemplateRef{Name: fmt.Sprint("a", i), TemplateName: "errors", RequiredForCompletion: r})
	}
	return spec
}

func TestAnalysesDecideExperiment(t *testing.T) {
	const duration = 5 * time.Minute
	for _, c := range []struct {
		name     string
		required []bool
		phases   []argov1.AnalysisPhase // of the runs, a minute after the start
		message  string
		want     argov1.AnalysisPhase
		why      string
		at       time.Duration
	}{
		{"one fails", []bool{false, false}, []argov1.AnalysisPhase{"Running", "Failed"}, "too many errors", "Failed", "too many errors", time.Minute},
		{"one errs", []bool{false}, []argov1.AnalysisPhase{"Error"}, "no answer", "Error", "no answer", time.Minute},
		{"one is inconclusive", []bool{false}, []argov1.AnalysisPhase{"Inconclusive"}, "", "Inconclusive", "", time.Minute},
		{"all end well", []bool{false, false}, []argov1.AnalysisPhase{"Successful", "Successful"}, "", "Successful", "", duration},
		{"some go on", []bool{false, false}, []argov1.AnalysisPhase{"Successful", "Running"}, "", "Successful", "", duration},
		{"all required end well", []bool{true, false}, []argov1.AnalysisPhase{"Successful", "Running"}, "", "Successful", "Required AnalysisRuns completed", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := specWithAnalyses(c.required...)
			spec.Duration = "5m"
			w := newWorld(spec)
			w.runUntil(noon.Add(time.Minute))
			for i, phase := range c.phases {
				w.setRunPhase(fmt.Sprint("compare-a", i), phase, c.message)
			}
			if c.at > time.Minute {
				w.runUntil(noon.Add(c.at - time.Second))
				w.expectPhase(t, argov1.AnalysisPhaseRunning, "")
			}
			w.runUntil(noon.Add(c.at))
			w.expectPhase(t, c.want, c.why)
			w.runUntil(noon.Add(time.Hour))
			for name, run := range w.s.AnalysisRuns {
				if !run.Phase.Completed() {
					t.Errorf("run %s goes on", name)
				}
			}
		})
	}
}

func TestRequiredAnalysisMayExceedDuration(t *testing.T) {
	spec := specWithAnalyses(true)
	spec.Duration = "1m"
	w := newWorld(spec)
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseRunning, "")
	w.setRunPhase("compare-a0", argov1.AnalysisPhaseSuccessful, "")
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseSuccessful, "Required AnalysisRuns completed")
}

func TestRejectedRunFailsExperiment(t *testing.T) {
	w := newWorld(specWithAnalyses(false))
	w.refuse = "AnalysisTemplate 'errors' not found"
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseError, "Failed to create AnalysisRun for analysis 'a0': AnalysisTemplate 'errors' not found")
}

func TestDeletedRunFailsExperiment(t *testing.T) {
	w := newWorld(specWithAnalyses(false))
	w.runUntil(noon)
	delete(w.s.AnalysisRuns, "compare-a0")
	w.runUntil(noon.Add(time.Hour))
	w.expectPhase(t, argov1.AnalysisPhaseError, "AnalysisRun 'compare-a0' not found")
}

func TestArgumentsContainTheHashesAndTimesOfTheExperiment(t *testing.T) {
	spec := specWithAnalyses(false)
	spec.Duration = "90s"
	for name, value := range map[string]string{
		"hash": "{{templates.new.podTemplateHash}}", "name": "of {{ templates.old.replicaset.name }}",
		"from": "{{experiment.availableAt}}", "to": "{{experiment.finishedAt}}", "plain": "x",
	} {
		spec.Analyses[0].Args = append(spec.Analyses[0].Args, argov1.Argument{Name: name, Value: &value})
	}
	w := newWorld(spec)
	w.runUntil(noon)
	for _, want := range []string{"  hash=hash-of-new", "  name=of compare-old", "  from=2026-01-01T12:00:00Z", "  to=2026-01-01T12:01:30Z", "  plain=x"} {
		if !slices.Contains(w.done, want) {
			t.Errorf("%q is not in %q", want, w.done)
		}
	}
	spec.Analyses[0].Args = []argov1.Argument{{Name: "hash", Value: new("{{templates.other.podTemplateHash}}")}}
	w = newWorld(spec)
	w.runUntil(noon)
	w.expectPhase(t, argov1.AnalysisPhaseError, "Failed to create AnalysisRun for analysis 'a0': failed to resolve {{templates.other.podTemplateHash}}")
}

func TestInvalidExperimentChangesNothing(t *testing.T) {
	for want, change := range map[string]func(*argov1.ExperimentSpec){
		"Rollout has missing field '.Spec.Templates[1].Selector'": func(s *argov1.ExperimentSpec) { s.Templates[1].Selector = nil },
		"This experiment is selecting all pods at index 0. A non-empty selector is required.": func(s *argov1.ExperimentSpec) {
			s.Templates[0].Selector = &metav1.LabelSelector{}
		},
		"MinReadySeconds cannot be longer than ProgressDeadlineSeconds. Check template index 1": func(s *argov1.ExperimentSpec) { s.Templates[1].MinReadySeconds = 601 },
		"Experiment compare has empty template name at index 0":                                 func(s *argov1.ExperimentSpec) { s.Templates[0].Name = "" },
		"Experiment compare has repeated template name 'old' in templates":                      func(s *argov1.ExperimentSpec) { s.Templates[1].Name = "old" },
		"Experiment compare has 101 templates, and at most 100 are supported":                   func(s *argov1.ExperimentSpec) { s.Templates = slices.Repeat(s.Templates[:1], 101) },
		`invalid duration string: time: invalid duration "later"`:                               func(s *argov1.ExperimentSpec) { s.Duration = "later" },
	} {
		spec := twoTemplates()
		change(&spec)
		w := newWorld(spec)
		w.runUntil(noon.Add(time.Hour))
		conditions := w.s.Status.Conditions
		if len(w.done) > 0 || len(conditions) != 1 || conditions[0].Type != argov1.ExperimentInvalidSpec || conditions[0].Message != want {
			t.Errorf("want %q, did %q and says %+v", want, w.done, conditions)
		}
		w.s.Spec = twoTemplates()
		w.runUntil(noon.Add(time.Hour))
		w.expectPhase(t, argov1.AnalysisPhaseRunning, "")
		if slices.ContainsFunc(w.s.Status.Conditions, func(c argov1.ExperimentCondition) bool { return c.Type == argov1.ExperimentInvalidSpec }) {
			t.Error("the complaint stays")
		}
	}
}

// Whatever happens to its pods and its analyses: an incomplete Experiment names what it waits for, a completed one is
// unchanged, and finally its pods are removed and its runs are complete.
func TestExperimentInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var required []bool
		for range rapid.IntRange(0, 3).Draw(t, "analyses") {
			required = append(required, rapid.Bool().Draw(t, "required"))
		}
		spec := specWithAnalyses(required...)
		spec.Duration = argov1.DurationString(rapid.SampledFrom([]string{"", "0s", "1m", "10m"}).Draw(t, "duration"))
		spec.ScaleDownDelaySeconds = rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(5))}).Draw(t, "delay")
		spec.Templates[0].Replicas = new(rapid.Int32Range(0, 3).Draw(t, "replicas"))
		spec.Templates[1].Service = rapid.SampledFrom([]*argov1.TemplateService{nil, {}, {Name: "x"}}).Draw(t, "service")
		w := newWorld(spec)
		for range 8 {
			before := w.s.Status
			d := w.runUntil(w.s.Now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second))
			now := w.s.Status
			if before.Phase.Completed() && (now.Phase != before.Phase || now.Message != before.Message) {
				t.Fatalf("ended as %s, and then %s", before.Phase, now.Phase)
			}
			if !now.Phase.Completed() && d.Wake.IsZero() && len(d.Gates) == 0 {
				t.Fatalf("nothing brings it on: %+v", d)
			}
			switch rapid.IntRange(0, 5).Draw(t, "what happens") {
			case 0:
				w.unable["new"] = true
				w.setTemplateState("new", func(s *experiment.TemplateState) { s.Ready, s.Available = 0, 0 })
			case 1:
				w.unable["new"] = false
				w.setTemplateState("new", func(s *experiment.TemplateState) { s.Ready, s.Available = s.Desired, s.Desired })
			case 2:
				if run := w.s.AnalysisRuns["compare-a0"]; run.Found && !run.Phase.Completed() {
					w.setRunPhase("compare-a0", rapid.SampledFrom([]argov1.AnalysisPhase{"Successful", "Failed", "Inconclusive", "Error"}).Draw(t, "phase"), "")
				}
			}
		}
		w.s.Spec.Terminate = true
		w.runUntil(w.s.Now.Add(time.Hour))
		if !w.s.Status.Phase.Completed() {
			t.Fatalf("terminated, and still %s", w.s.Status.Phase)
		}
		for name, side := range w.s.Templates {
			if side.Desired != 0 || side.Service != "" {
				t.Fatalf("%s stays: %+v", name, side)
			}
		}
		for name, run := range w.s.AnalysisRuns {
			if !run.Phase.Completed() {
				t.Fatalf("run %s goes on", name)
			}
		}
	})
}
