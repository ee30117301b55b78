package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

var (
	cart  = types.NamespacedName{Namespace: "shop", Name: "cart"}
	other = types.NamespacedName{Namespace: "shop", Name: "other"}
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func waiting(name string, opener release.Opener) canary.Decision {
	return canary.Decision{Gates: release.Gates{release.WaitsFor(name, opener, "not yet")}}
}

func TestAWaitIsExplainedInTheStatusOnceAfterHalfAMinute(t *testing.T) {
	m := newMemory()
	d, s := waiting("canary-ready", release.ByCluster), canary.Snapshot{}
	status, explain := m.gates(cart, d, s, noon)
	if status != nil || !explain.Equal(noon.Add(explainAfter)) {
		t.Fatalf("at once: got %v until %v, want nothing until %v", status, explain, noon.Add(explainAfter))
	}
	status, _ = m.gates(cart, d, s, noon.Add(explainAfter))
	if len(status) != 1 || status[0].Name != "canary-ready" || !status[0].Since.Time.Equal(noon) {
		t.Fatalf("after half a minute: got %+v, want canary-ready since %v", status, noon)
	}
	s.Status.Serin = &flaggerv1.SerinStatus{Gates: status}
	d.Status = s.Status
	if again, explain := m.gates(cart, d, s, noon.Add(time.Hour)); again != nil || !explain.IsZero() {
		t.Fatalf("told already: got %v until %v, want nothing more", again, explain)
	}
}

// A gate that people open is asked and waits in turns, and while another one is asked nothing is known of it. All that is
// one wait, which is told once.
func TestAPolledGateIsOneWait(t *testing.T) {
	m := newMemory()
	var s canary.Snapshot
	asks := func(s canary.Snapshot) release.Gate {
		return release.Asks("approval", release.Probe{ID: "q"}, "waiting for the answer")
	}
	waits := func(s canary.Snapshot) release.Gate {
		return release.WaitsFor("approval", release.ByPerson, "not approved")
	}
	passes := func(s canary.Snapshot) release.Gate { return release.Passes("rollback", "not asked for") }
	other := func(s canary.Snapshot) release.Gate {
		return release.Asks("rollback", release.Probe{ID: "p"}, "waiting for the answer")
	}
	var written int
	for at := noon; at.Before(noon.Add(3 * time.Minute)); at = at.Add(5 * time.Second) {
		for _, looks := range [][]func(canary.Snapshot) release.Gate{{other, asks, asks}, {passes, asks, asks}, {passes, waits, asks}} {
			d := canary.Decision{Status: s.Status, Gates: release.Look(s, looks...)}
			if status, _ := m.gates(cart, d, s, at); status != nil {
				written++
				s.Status.Serin = &flaggerv1.SerinStatus{Gates: status}
			}
		}
	}
	if written != 1 {
		t.Fatalf("got %d writes, want one: %+v", written, s.Status.Serin)
	}
	if since := s.Status.Serin.Gates[1].Since; !since.Time.Equal(noon) {
		t.Errorf("got a wait since %v, want %v", since, noon)
	}
}

func TestAStatusThatKeepsNoGatesIsNotToldThem(t *testing.T) {
	m, s := newMemory(), canary.Snapshot{Pruned: true}
	d := waiting("canary-ready", release.ByCluster)
	m.gates(cart, d, s, noon)
	if status, explain := m.gates(cart, d, s, noon.Add(time.Hour)); status != nil || !explain.IsZero() {
		t.Errorf("got %v until %v, want nothing", status, explain)
	}
}

func TestPodsAreLookedAtBeforeAShortDeadline(t *testing.T) {
	m := newMemory()
	if at, _ := m.stuck(cart, false, true, noon, 3*time.Second); !at.Equal(noon.Add(3 * time.Second)) {
		t.Errorf("got a look at %v, want it 3 s after %v", at, noon)
	}
}

func TestWhatTimeOpensIsNotWrittenForItsOwnSake(t *testing.T) {
	m := newMemory()
	d := canary.Decision{Gates: release.Gates{release.WaitsUntil("window", noon.Add(time.Hour), "observing")}}
	if status, explain := m.gates(cart, d, canary.Snapshot{}, noon.Add(time.Minute)); status != nil || !explain.IsZero() {
		t.Fatalf("got %v until %v, want nothing", status, explain)
	}
}

func TestGatesGoAlongWithAWriteThatIsDueAnyway(t *testing.T) {
	m := newMemory()
	d := waiting("canary-ready", release.ByCluster)
	d.Status.Phase = flaggerv1.CanaryPhaseProgressing
	if status, _ := m.gates(cart, d, canary.Snapshot{}, noon); len(status) != 1 {
		t.Fatalf("got %v, want the gate", status)
	}
}

func TestStatusBoundsWhatItSaysAboutGates(t *testing.T) {
	m := newMemory()
	var d canary.Decision
	for i := range 30 {
		d.Gates = append(d.Gates, release.WaitsFor(fmt.Sprint("gate-", i), release.ByPerson, strings.Repeat("ä", 500)))
	}
	d.Status.Phase = flaggerv1.CanaryPhaseProgressing
	status, _ := m.gates(cart, d, canary.Snapshot{}, noon)
	if len(status) != maxGates {
		t.Errorf("got %d gates, want %d", len(status), maxGates)
	}
	if n := len(status[0].Message); n > maxGateMessage {
		t.Errorf("got a message of %d bytes, want at most %d", n, maxGateMessage)
	}
}

func TestSinceSurvivesARestartThroughTheStatus(t *testing.T) {
	before := newMemory()
	d := waiting("canary-ready", release.ByCluster)
	status, _ := before.gates(cart, d, canary.Snapshot{}, noon)
	if status != nil {
		t.Fatal("nothing is due yet")
	}
	status, _ = before.gates(cart, d, canary.Snapshot{}, noon.Add(explainAfter))
	s := canary.Snapshot{Status: flaggerv1.CanaryStatus{Serin: &flaggerv1.SerinStatus{Gates: status}}}
	after := newMemory()
	d.Status.Phase = flaggerv1.CanaryPhaseFailed // a write that is due
	status, _ = after.gates(cart, d, s, noon.Add(time.Hour))
	if len(status) != 1 || !status[0].Since.Time.Equal(noon) {
		t.Fatalf("got %+v, want since %v", status, noon)
	}
}

func TestAStatusDoesNotKeepAWaitThatIsOver(t *testing.T) {
	waits := waiting("suspended", release.ByPerson)
	written, _ := newMemory().gates(cart, waits, canary.Snapshot{Status: flaggerv1.CanaryStatus{Phase: "Other"}}, noon)
	s := canary.Snapshot{Status: flaggerv1.CanaryStatus{Serin: &flaggerv1.SerinStatus{Gates: written}}}
	m := newMemory()
	if status, _ := m.gates(cart, waits, s, noon); status != nil {
		t.Errorf("it still waits: got %v, want no write", status)
	}
	if status, _ := m.gates(cart, canary.Decision{}, s, noon); status == nil || len(status) != 0 {
		t.Errorf("it is over, and nothing else changed: got %v, want no gates", status)
	}
}

// A wait is explained half a minute after it began, also when the clock is set back by a day in between.
func TestAWaitDoesNotBeginTomorrow(t *testing.T) {
	m := newMemory()
	d := waiting("canary-ready", release.ByCluster)
	m.gates(cart, d, canary.Snapshot{}, noon)
	yesterday := noon.Add(-24 * time.Hour)
	if _, explain := m.gates(cart, d, canary.Snapshot{}, yesterday); !explain.Equal(yesterday.Add(explainAfter)) {
		t.Errorf("got %v, want half a minute from now", explain)
	}
	m.stuck(cart, false, true, noon, stuckLook)
	if at, _ := m.stuck(cart, false, true, yesterday, stuckLook); !at.Equal(yesterday.Add(stuckLook)) {
		t.Errorf("a look at the pods: got %v", at)
	}
}

// A clock that is set must not put the next look at the pods off for an hour.
func TestALookAtPodsIsNotPutOffByTheClock(t *testing.T) {
	m := newMemory()
	m.stuck(cart, false, true, noon, stuckLook)
	later := noon.Add(time.Hour)
	m.podProblem(cart, false, "", later)
	if at, _ := m.stuck(cart, false, true, later, stuckLook); at.After(later.Add(2 * stuckLook)) {
		t.Errorf("got %v", at)
	}
}

// A write that only comes first, and looks at no gate, does not make what is waited for begin anew: what is refused each
// time would never be said.
func TestAWaitOutlastsWhatLooksAtNothing(t *testing.T) {
	m := newMemory()
	refused := waiting("refused", release.ByPerson)
	first := canary.Decision{Wake: noon}
	s := canary.Snapshot{Now: noon}
	m.gates(cart, refused, s, noon)
	m.gates(cart, first, s, noon)
	later := noon.Add(explainAfter)
	if status, _ := m.gates(cart, refused, canary.Snapshot{Now: later}, later); len(status) != 1 {
		t.Errorf("got %v, want the gate that refuses", status)
	}
	m.gates(cart, canary.Decision{}, canary.Snapshot{Now: later}, later)
	if status, explain := m.gates(cart, refused, canary.Snapshot{Now: later}, later); status != nil || !explain.Equal(later.Add(explainAfter)) {
		t.Errorf("after a rest: got %v and %v, want another wait", status, explain)
	}
}

func TestPodsAreLookedAtUntilTheyTellAndAgainAfterTheyWereReady(t *testing.T) {
	m := newMemory()
	look := func(what string, now time.Time, unready bool, at time.Time, problem string) {
		t.Helper()
		if gotAt, got := m.stuck(cart, false, unready, now, stuckLook); !gotAt.Equal(at) || got != problem {
			t.Fatalf("%s: got a look at %v and %q, want %v and %q", what, gotAt, got, at, problem)
		}
	}
	first := noon.Add(stuckLook)
	look("unready", noon, true, first, "")
	m.podProblem(cart, false, "", first)
	look("nothing seen", first, true, noon.Add(2*stuckLook), "")
	m.podProblem(cart, false, "", noon.Add(2*stuckLook))
	look("nothing seen twice", noon.Add(2*stuckLook), true, noon.Add(4*stuckLook), "")
	m.podProblem(cart, false, "ImagePullBackOff", noon.Add(4*stuckLook))
	look("seen", noon.Add(time.Hour), true, time.Time{}, "ImagePullBackOff")
	look("ready", noon, false, time.Time{}, "")
	for range mostLooks {
		look("unready without a reason", noon, true, first, "")
		m.podProblem(cart, false, "", first)
		first = first.Add(first.Sub(noon))
	}
	look("often enough", noon.Add(time.Hour), true, time.Time{}, "")
	look("ready again", noon, false, time.Time{}, "")
	first = noon.Add(stuckLook)
	look("unready again", noon, true, first, "")
}

func TestPruningIsNoticedOnceAndItsEndToo(t *testing.T) {
	m := newMemory()
	written := &flaggerv1.SerinStatus{Run: "r"}
	if !m.noticePruning(cart, written, nil) || m.noticePruning(cart, written, nil) {
		t.Fatal("a status that comes back without our part must be noticed, and once")
	}
	if !m.pruned(other) {
		t.Fatal("pruning belongs to the definition, so it holds for every release")
	}
	m.noticePruning(cart, written, written)
	if m.pruned(cart) {
		t.Fatal("a status that comes back whole ends it")
	}
}
