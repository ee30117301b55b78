package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

var (
	cart = types.NamespacedName{Namespace: "shop", Name: "cart"}
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func newMemory() *Memory[struct{}] {
	return &Memory[struct{}]{Explanations: ExplanationPolicy{WaitsFor: WaitsFor}}
}

func waiting(name string, opener release.Opener) release.Gates {
	return release.Gates{release.NewWaitingGate(name, opener, "not yet")}
}

func TestAWaitIsExplainedOnceAfterHalfAMinute(t *testing.T) {
	m := newMemory()
	gates := waiting("pods", release.ByCluster)
	if e := m.Explain(cart, Evaluation{Gates: gates, Now: noon}); e.Due || !e.At.Equal(noon.Add(ExplainAfter)) || !e.IsPending() {
		t.Fatalf("immediately: got %+v, want it at %v", e, noon.Add(ExplainAfter))
	}
	e := m.Explain(cart, Evaluation{Gates: gates, Now: noon.Add(ExplainAfter)})
	if !e.Due || len(e.Gates) != 1 || e.Gates[0].Name != "pods" || !e.Gates[0].Since.Time.Equal(noon) {
		t.Fatalf("after half a minute: got %+v, want pods since %v", e, noon)
	}
	if again := m.Explain(cart, Evaluation{Gates: gates, Shown: e.Gates, Now: noon.Add(time.Hour)}); again.IsPending() {
		t.Fatalf("shown: got %+v, want nothing more", again)
	}
}

// Values, limits, messages and times may differ in each reconciliation: they are written along with other writes, and never
// cause one.
func TestAChangingMeasurementCausesNoWrite(t *testing.T) {
	m := newMemory()
	var shown []StatusGate
	for i := range 100 {
		now := noon.Add(time.Duration(i) * time.Minute)
		gate := release.NewFailedGate("success-rate", release.ByCluster, fmt.Sprintf("%d is below 99", i))
		gate.Value, gate.Query, gate.Until = fmt.Sprint(i), fmt.Sprint("rate at ", i), now.Add(time.Minute)
		e := m.Explain(cart, Evaluation{Gates: release.Gates{gate}, Shown: shown, Now: now})
		if e.Due && i != 1 {
			t.Fatalf("after %d minutes: another write is due", i)
		}
		if e.Due {
			shown = e.Gates
		}
		if got := e.Gates[0]; got.Value != gate.Value || got.Query != gate.Query || !got.Until.Time.Equal(gate.Until) {
			t.Fatalf("got %+v, want the last measurement", got)
		}
	}
	if len(shown) != 1 {
		t.Fatal("the wait itself was never explained")
	}
}

// A gate that the user opens alternates between asking and waiting, and has no state while another gate asks. All that is one
// wait, which is explained once.
func TestAPolledGateIsOneWait(t *testing.T) {
	type snapshot struct{}
	m := newMemory()
	asks := func(snapshot) release.Gate {
		return release.NewQueryGate("approval", release.Query{ID: "q"}, "waiting for the answer")
	}
	waits := func(snapshot) release.Gate { return release.NewWaitingGate("approval", release.ByUser, "not approved") }
	passes := func(snapshot) release.Gate { return release.NewPassingGate("rollback", "not requested") }
	other := func(snapshot) release.Gate {
		return release.NewQueryGate("rollback", release.Query{ID: "p"}, "waiting for the answer")
	}
	var shown []StatusGate
	var written int
	for at := noon; at.Before(noon.Add(3 * time.Minute)); at = at.Add(5 * time.Second) {
		for _, conditions := range [][]func(snapshot) release.Gate{{other, asks, asks}, {passes, asks, asks}, {passes, waits, asks}} {
			e := m.Explain(cart, Evaluation{Gates: release.EvaluateGates(snapshot{}, conditions...), Shown: shown, Now: at})
			if e.Due {
				written++
				shown = e.Gates
			}
		}
	}
	if written != 1 {
		t.Fatalf("got %d writes, want one: %+v", written, shown)
	}
	if since := shown[1].Since; !since.Time.Equal(noon) {
		t.Errorf("got a wait since %v, want %v", since, noon)
	}
}

func TestAStatusThatCannotShowGatesIsNotWrittenForThem(t *testing.T) {
	m := newMemory()
	gates := waiting("pods", release.ByCluster)
	m.Explain(cart, Evaluation{Gates: gates, Pruned: true, Now: noon})
	if e := m.Explain(cart, Evaluation{Gates: gates, Pruned: true, Now: noon.Add(time.Hour)}); e.IsPending() {
		t.Errorf("got %+v, want nothing to be due", e)
	}
}

func TestAGateThatTimeOpensCausesNoWrite(t *testing.T) {
	gates := release.Gates{release.NewTimedGate("window", noon.Add(time.Hour), "observing")}
	e := newMemory().Explain(cart, Evaluation{Gates: gates, Now: noon.Add(time.Minute)})
	if e.IsPending() || !e.Gates[0].Until.Time.Equal(noon.Add(time.Hour)) {
		t.Fatalf("got %+v, want the gate with its time, and no write", e)
	}
}

func TestGatesInAStatusAreBounded(t *testing.T) {
	var gates release.Gates
	long := strings.Repeat("ä", 2*MaxGateQuery)
	for i := range MaxGates + 10 {
		gate := release.NewWaitingGate(fmt.Sprint("gate-", i, long), release.ByUser, long)
		gate.Value, gate.Limit, gate.Query = long, long, long
		gates = append(gates, gate)
	}
	e := newMemory().Explain(cart, Evaluation{Gates: gates, Now: noon})
	if len(e.Gates) != MaxGates {
		t.Errorf("got %d gates, want %d", len(e.Gates), MaxGates)
	}
	g := e.Gates[0]
	if len(g.Name) > MaxGateName || len(g.Message) > MaxGateMessage || len(g.Value) > MaxGateMessage || len(g.Limit) > MaxGateMessage || len(g.Query) > MaxGateQuery {
		t.Errorf("got a gate with %d, %d, %d, %d and %d bytes", len(g.Name), len(g.Message), len(g.Value), len(g.Limit), len(g.Query))
	}
}

// Gates beyond the bound are not in the status and must not cause a write in each reconciliation.
func TestGatesBeyondTheBoundCauseNoWrite(t *testing.T) {
	m := newMemory()
	var gates release.Gates
	for i := range MaxGates + 1 {
		gates = append(gates, release.NewWaitingGate(fmt.Sprint("gate-", i), release.ByUser, "closed"))
	}
	shown := m.Explain(cart, Evaluation{Gates: gates, Now: noon}).Gates
	if e := m.Explain(cart, Evaluation{Gates: gates, Shown: shown, Now: noon.Add(time.Hour)}); e.IsPending() {
		t.Errorf("got due %t, at %v, want nothing", e.Due, e.At)
	}
}

// The metrics show the first gate that does not pass, even if the status has no room for it.
func TestTheWaitingGateBeyondTheBoundHasItsTime(t *testing.T) {
	m := newMemory()
	var gates release.Gates
	for i := range MaxGates {
		gates = append(gates, release.NewPassingGate(fmt.Sprint("gate-", i), "open"))
	}
	gates = append(gates, release.NewWaitingGate("last", release.ByUser, "closed"))
	m.Explain(cart, Evaluation{Gates: gates, Now: noon})
	if waiting := m.WaitingGate(cart, gates); waiting.Name != "last" || !waiting.Since.Equal(noon) {
		t.Errorf("got %+v, want the last gate since %s", waiting, noon)
	}
}

func TestSinceSurvivesARestartThroughTheStatus(t *testing.T) {
	gates := waiting("pods", release.ByCluster)
	shown := newMemory().Explain(cart, Evaluation{Gates: gates, Now: noon}).Gates
	restarted := newMemory()
	if e := restarted.Explain(cart, Evaluation{Gates: gates, Shown: shown, Now: noon.Add(time.Hour)}); !e.Gates[0].Since.Time.Equal(noon) {
		t.Fatalf("got %+v, want since %v", e.Gates, noon)
	}
	if since := restarted.WaitingGate(cart, gates).Since; !since.Equal(noon) {
		t.Errorf("got %v, want %v", since, noon)
	}
}

func TestAStatusDoesNotShowAWaitThatIsOver(t *testing.T) {
	gates := waiting("suspended", release.ByUser)
	shown := newMemory().Explain(cart, Evaluation{Gates: gates, Now: noon}).Gates
	m := newMemory()
	if e := m.Explain(cart, Evaluation{Gates: gates, Shown: shown, Now: noon}); e.IsPending() {
		t.Errorf("it still waits: got %+v, want no write", e)
	}
	if e := m.Explain(cart, Evaluation{Shown: shown, Now: noon}); !e.Due || len(e.Gates) != 0 {
		t.Errorf("it waits for nothing: got %+v, want a write without gates", e)
	}
}

// A gate that is not evaluated anymore, while others wait, remains in the status of a kind that quotes it later, and is removed
// after half a minute from that of a kind that does not.
func TestAGateThatIsNotEvaluatedAnymore(t *testing.T) {
	for complete, want := range map[bool]bool{true: true, false: false} {
		m := newMemory()
		m.Explanations.Complete = complete
		refused := release.Gates{release.NewFailedGate("refused", release.ByUser, "no quota")}
		shown := m.Explain(cart, Evaluation{Gates: refused, Now: noon}).Gates
		drained := release.Gates{release.NewTimedGate("drained", noon.Add(time.Hour), "until 13:00")}
		first := m.Explain(cart, Evaluation{Gates: drained, Shown: shown, Now: noon.Add(time.Minute)})
		second := m.Explain(cart, Evaluation{Gates: drained, Shown: shown, Now: noon.Add(time.Minute + ExplainAfter)})
		if first.Due || second.Due != want {
			t.Errorf("complete %t: got due immediately %t, after half a minute %t, want false and %t", complete, first.Due, second.Due, want)
		}
	}
}

// A notice that is over is removed from the status of each kind after half a minute, even if the object waits for something
// else all the time, such as an approval.
func TestAStatusDoesNotShowANoticeThatIsOver(t *testing.T) {
	m := newMemory()
	refused := waiting("confirm-rollout", release.ByUser)
	notice := release.Gate{Name: "references", Verdict: release.Pass, Opener: release.ByUser, Message: "the alert provider does not exist"}
	shown := m.Explain(cart, Evaluation{Gates: append(release.Gates{notice}, refused...), Now: noon}).Gates
	if first := m.Explain(cart, Evaluation{Gates: refused, Shown: shown, Now: noon.Add(time.Minute)}); first.Due || !first.At.Equal(noon.Add(time.Minute+ExplainAfter)) {
		t.Errorf("immediately: got due %t, at %v, want a write after half a minute", first.Due, first.At)
	}
	second := m.Explain(cart, Evaluation{Gates: refused, Shown: shown, Now: noon.Add(time.Minute + ExplainAfter)})
	if !second.Due || len(second.Gates) != 1 {
		t.Errorf("after half a minute: got %+v, want a write of the other gate alone", second)
	}
}

// Another detail is explained after half a minute, however often it changes meanwhile.
func TestAnotherDetailIsExplained(t *testing.T) {
	m := newMemory()
	m.Explanations.Detail = func(g StatusGate) string { return g.Message }
	gate := func(i int) release.Gates {
		return release.Gates{release.NewWaitingGate("targets", release.ByCluster, fmt.Sprintf("%d of 5 targets are healthy", i))}
	}
	shown := m.Explain(cart, Evaluation{Gates: gate(0), Now: noon}).Gates
	var due []int
	for i := range 5 {
		e := m.Explain(cart, Evaluation{Gates: gate(i), Shown: shown, Now: noon.Add(time.Duration(i) * ExplainAfter / 2)})
		if e.Due {
			due = append(due, i)
		}
		if !e.Gates[0].Since.Time.Equal(noon) {
			t.Errorf("got a wait since %v, want %v: it waits for the same", e.Gates[0].Since, noon)
		}
	}
	if !slices.Equal(due, []int{3, 4}) { // it differs since 1
		t.Errorf("got writes at %v, want them from half a minute after the first other detail", due)
	}
}

// A wait is explained half a minute after it began, also when the clock is set back by a day in between.
func TestAWaitDoesNotBeginTomorrow(t *testing.T) {
	m := newMemory()
	gates := waiting("pods", release.ByCluster)
	m.Explain(cart, Evaluation{Gates: gates, Now: noon})
	yesterday := noon.Add(-24 * time.Hour)
	if e := m.Explain(cart, Evaluation{Gates: gates, Now: yesterday}); !e.At.Equal(yesterday.Add(ExplainAfter)) {
		t.Errorf("got %v, want half a minute from now", e.At)
	}
}

// A decision that only stores something and evaluates no gate does not restart a wait: an effect that is rejected each time
// would never be explained.
func TestAWaitOutlastsAProvisionalDecision(t *testing.T) {
	m := newMemory()
	gates := waiting("refused", release.ByUser)
	m.Explain(cart, Evaluation{Gates: gates, Now: noon})
	m.Explain(cart, Evaluation{Provisional: true, Now: noon})
	later := noon.Add(ExplainAfter)
	if e := m.Explain(cart, Evaluation{Gates: gates, Now: later}); !e.Due {
		t.Errorf("got %+v, want it explained", e)
	}
	m.Explain(cart, Evaluation{Now: later})
	if e := m.Explain(cart, Evaluation{Gates: gates, Now: later}); e.Due || !e.At.Equal(later.Add(ExplainAfter)) {
		t.Errorf("after the wait ended: got %+v, want a new wait", e)
	}
}

func TestGatesOfOneNameWaitSeparately(t *testing.T) {
	m := newMemory()
	two := release.Gates{release.NewPassingGate("approval", ""), release.NewWaitingGate("approval", release.ByUser, "closed")}
	shown := m.Explain(cart, Evaluation{Gates: two, Now: noon}).Gates
	if e := m.Explain(cart, Evaluation{Gates: two, Shown: shown, Now: noon.Add(time.Hour)}); e.IsPending() {
		t.Errorf("got %+v, want nothing: the status shows both", e)
	}
}

func TestMemorySchedulesAndForgets(t *testing.T) {
	var m Memory[int]
	m.Do(cart, func(own *int) { *own = 7 })
	m.ScheduleWake(cart, noon)
	if by, due := m.Lateness(cart, noon.Add(time.Second)); by != time.Second || !due {
		t.Errorf("got %v and %t, want a second", by, due)
	}
	if _, due := m.Lateness(cart, noon.Add(time.Minute)); due {
		t.Error("a scheduled time counts once")
	}
	if first, second := m.RetryAt(cart, Refused, noon), m.RetryAt(cart, Refused, noon.Add(InitialBackoff)); !first.Equal(noon.Add(InitialBackoff)) || !second.Equal(noon.Add(3*InitialBackoff)) {
		t.Errorf("got attempts at %v and %v", first, second)
	}
	m.ResetBackoff(cart, Refused)
	if again := m.RetryAt(cart, Refused, noon); !again.Equal(noon.Add(InitialBackoff)) {
		t.Errorf("after a success: got %v, want the initial backoff", again)
	}
	if m.Own(cart) != 7 || len(m.Keys()) != 1 {
		t.Errorf("got %d of %v", m.Own(cart), m.Keys())
	}
	if m.Forget(cart); len(m.Keys()) > 0 {
		t.Errorf("got %v, want nothing", m.Keys())
	}
}

// TestANoticeIsShownOnceAndRemovedOnce: it delays nothing, but users find it in the status of a release that is idle.
func TestANoticeIsShownOnceAndRemovedOnce(t *testing.T) {
	m := newMemory()
	gates := release.Gates{release.NewNotice("plan", "no analysis")}
	if e := m.Explain(cart, Evaluation{Gates: gates, Now: noon}); e.Due || !e.At.Equal(noon.Add(ExplainAfter)) {
		t.Fatalf("immediately: got %+v", e)
	}
	e := m.Explain(cart, Evaluation{Gates: gates, Now: noon.Add(ExplainAfter)})
	if !e.Due || len(e.Gates) != 1 || e.Gates[0].Verdict != "pass" || e.Gates[0].Opener != "person" {
		t.Fatalf("after half a minute: got %+v", e)
	}
	for _, m := range []*Memory[struct{}]{m, newMemory()} {
		if again := m.Explain(cart, Evaluation{Gates: gates, Shown: e.Gates, Now: noon.Add(time.Hour)}); again.IsPending() {
			t.Errorf("shown: got %+v", again)
		}
		// A decision that is followed by another one need not have gates.
		m.Explain(cart, Evaluation{Gates: gates, Provisional: true, Shown: e.Gates, Now: noon.Add(time.Hour)})
		if gone := m.Explain(cart, Evaluation{Shown: e.Gates, Now: noon.Add(time.Hour)}); !gone.Due {
			t.Errorf("corrected: got %+v", gone)
		}
	}
}
