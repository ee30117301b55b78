package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestScenarios plays the stories of testdata/scenarios, in which the numbers of pods and the status of a canary without
// a router go on together; -rewrite writes what happened into them.
//
//	rollout      YAML of a spec: its first revision is deployed without a word
//	edit         YAML laid over the spec
//	template x   gives the template another revision, or one that there was
//	pods ok|bad  of new ReplicaSets become available at once, or never
//	judge phase  is what AnalysisRuns come to from now on
//	status       YAML laid over the status, as people patch it
//	after 10s    lets time pass
//
// After each command passes run until nothing moves.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		w := &world{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.told.Reset()
			w.do(t, d)
			w.settle(t, d)
			if w.told.Len() == 0 {
				return "nothing moves\n"
			}
			return w.told.String()
		})
	})
}

// world is a Rollout, and a cluster that does what it is told at once.
type world struct {
	now        time.Time
	spec       argov1.RolloutSpec
	status     argov1.RolloutStatus
	generation int64
	template   string
	sets       []ReplicaSet // by time of creation
	bad        bool
	verdict    argov1.AnalysisPhase
	told       strings.Builder
	last       string
}

func (w *world) do(t *testing.T, d *datadriven.TestData) {
	overlay := func(into any) {
		if err := yaml.UnmarshalStrict([]byte(d.Input), into); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	switch d.Cmd {
	case "rollout":
		*w = world{now: noon, template: "v1", generation: 1, verdict: argov1.AnalysisPhaseRunning}
		overlay(&w.spec)
		w.settle(t, d)
		w.told.Reset()
	case "edit":
		w.generation++
		overlay(&w.spec)
	case "template":
		w.generation++
		w.template = d.CmdArgs[0].Key
	case "pods":
		w.bad = d.CmdArgs[0].Key == "bad"
	case "judge":
		w.verdict = argov1.AnalysisPhase(d.CmdArgs[0].Key)
	case "status":
		overlay(&w.status)
	case "after":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.now = w.now.Add(by)
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
}

// settle runs passes until one changes nothing.
func (w *world) settle(t *testing.T, d *datadriven.TestData) {
	for range 100 {
		if !w.pass(t) {
			w.show()
			return
		}
	}
	d.Fatalf(t, "does not come to rest:\n%s", w.told.String())
}

func (w *world) pass(t *testing.T) bool {
	if status, news := NotePause(w.now, w.generation, w.spec, w.status); news {
		w.status = status
		return true
	}
	hash := "hash-" + w.template
	w.newest(hash)
	stepHash, err := StepHash(w.spec.Strategy.Canary.Steps)
	if err != nil {
		t.Fatal(err)
	}
	v := CanaryView{
		Now: w.now, Name: "cart", Generation: w.generation, Spec: w.spec, Status: w.status, Sets: w.sets, New: hash, StepHash: stepHash, Selector: "app=cart",
	}
	scaled := !v.changed() && w.scale(hash)
	v.Step = w.step()
	if w.spec.Strategy.Canary.Analysis != nil && w.status.StableRS != "" && !promoted(w.status) {
		v.Background = &Judgement{Name: "background", Phase: w.verdict, Message: "as judged"}
	}
	status, events := NextCanaryStatus(v)
	again, _ := NextCanaryStatus(v)
	if !equality.Semantic.DeepEqual(status, again) {
		t.Fatal("two decisions about one view differ")
	}
	changed := !equality.Semantic.DeepEqual(status, w.status)
	w.status = status
	for _, event := range events {
		if changed {
			fmt.Fprintf(&w.told, "  %s: %s\n", event.Reason, event.Message)
		}
	}
	return changed || scaled
}

// newest makes the ReplicaSet of the template, or gives it the newest revision.
func (w *world) newest(hash string) {
	var revision int64
	for _, rs := range w.sets {
		revision = max(revision, rs.Revision)
	}
	for i := range w.sets {
		if w.sets[i].Hash == hash {
			if w.sets[i].Revision < revision {
				w.sets[i].Revision = revision + 1
			}
			return
		}
	}
	w.sets = append(w.sets, ReplicaSet{Name: "cart-" + hash, Hash: hash, Revision: revision + 1})
	fmt.Fprintf(&w.told, "  made %s\n", hash)
}

// sides are the pods as the arithmetic sees them.
func (w *world) sides(hash string) (p Pods, newSet, stable *ReplicaSet) {
	for i := range w.sets {
		switch rs := &w.sets[i]; rs.Hash {
		case hash:
			newSet, p.New = rs, Scaled{rs.Spec, rs.Available}
		case w.status.StableRS:
			stable, p.Stable, p.Distinct = rs, Scaled{rs.Spec, rs.Available}, true
		default:
			p.Others += rs.Spec
		}
	}
	return p, newSet, stable
}

func (w *world) progress() Progress {
	return Progress{
		Steps: w.spec.Strategy.Canary.Steps, Index: w.status.CurrentStepIndex, Aborted: w.status.Abort,
		All: w.status.PromoteFull || w.status.StableRS == "" || promoted(w.status),
	}
}

func (w *world) limits() Limits {
	c := w.spec.Strategy.Canary
	return NewLimits(value(w.spec.Replicas, 1), c.MaxSurge, c.MaxUnavailable)
}

// scale changes one ReplicaSet: the stable one first, then the new one, then the others.
func (w *world) scale(hash string) bool {
	if w.spec.Paused {
		return false
	}
	for _, c := range w.status.PauseConditions {
		if c.Reason == argov1.PauseReasonInconclusiveAnalysis {
			return false
		}
	}
	p, newSet, stable := w.sides(hash)
	l := w.limits()
	next := l.Toward(p, l.Want(w.progress().Weight(Total), Total, p.Distinct))
	if stable != nil && stable.Spec != next.Stable {
		w.to(stable, next.Stable)
		return true
	}
	if newSet.Spec != next.Canary {
		w.to(newSet, next.Canary)
		return true
	}
	var old []Old
	for _, rs := range w.sets {
		if rs.Hash != hash && rs.Hash != w.status.StableRS {
			old = append(old, Old{Name: rs.Hash, Revision: rs.Revision, Scaled: Scaled{rs.Spec, rs.Available}})
		}
	}
	drain := Drain{Now: w.now, Limits: l, Promoted: promoted(w.status), NewAvailable: p.New.Available, StableAvailable: p.Stable.Available}
	for _, fate := range drain.Fates(old) {
		for i := range w.sets {
			if w.sets[i].Hash == fate.Name {
				w.to(&w.sets[i], fate.Pods)
				return true
			}
		}
	}
	return false
}

func (w *world) to(rs *ReplicaSet, pods int32) {
	fmt.Fprintf(&w.told, "  scaled %s from %d to %d\n", rs.Hash, rs.Spec, pods)
	rs.Spec, rs.Replicas = pods, pods
	switch broken := w.bad && rs.Hash == "hash-"+w.template; {
	case broken:
		rs.Available = min(rs.Available, pods)
	default:
		rs.Available = pods
	}
	rs.Ready = rs.Available
}

func (w *world) step() StepView {
	steps := w.spec.Strategy.Canary.Steps
	step, _ := stepAt(steps, w.status.CurrentStepIndex)
	p, _, _ := w.sides("hash-" + w.template)
	want := w.limits().Want(w.progress().Weight(Total), Total, p.Distinct)
	v := StepView{
		Now: w.now, Index: value(w.status.CurrentStepIndex, 0), Total: int32(len(steps)), Step: step, Status: w.status,
		Pods: StepPods{
			Threshold: w.spec.Strategy.Canary.ReplicaProgressThreshold, New: p.New, WantNew: want.Canary, Basic: true,
			StableFixed: p.Distinct, StableSpec: p.Stable.Spec, StableThere: p.Stable.Spec, WantStable: want.Stable,
		},
	}
	if step.Analysis != nil {
		v.Run = &Judgement{Name: "run", Phase: w.verdict, Message: "as judged"}
	}
	return v
}

// show prints the status where it differs from the one that was shown last.
func (w *world) show() {
	s := w.status
	var b strings.Builder
	index := "-"
	if s.CurrentStepIndex != nil {
		index = fmt.Sprint(*s.CurrentStepIndex)
	}
	fmt.Fprintf(&b, "%s step=%s stable=%s", s.Phase, index, s.StableRS)
	if run := s.Canary.CurrentStepAnalysisRunStatus; run != nil {
		fmt.Fprintf(&b, " run=%s", run.Status)
	}
	if s.Message != "" {
		fmt.Fprintf(&b, " (%s)", s.Message)
	}
	b.WriteString("\n ")
	for _, rs := range w.sets {
		if rs.Spec > 0 {
			fmt.Fprintf(&b, " %s %d/%d", rs.Hash, rs.Available, rs.Spec)
		}
	}
	b.WriteString("\n ")
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, " %s=%s/%s", c.Type, c.Status, c.Reason)
	}
	b.WriteString("\n")
	if text := b.String(); text != w.last {
		w.last = text
		w.told.WriteString(text)
	}
}
