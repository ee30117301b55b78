package reconciler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// StatusGate is a gate in the status of a release. It has the fields of the GateStatus of both APIs, which convert to and from
// it.
type StatusGate struct {
	Name, Verdict, Message, Opener string
	Value, Limit, Query            string
	Since, Until                   *metav1.MicroTime
}

// ExplainAfter is the time for which a release may wait for something that its status does not show. After it, the status is
// written only to show the wait. Values, limits and messages change all the time; they are written along with any other write
// and never cause one.
const ExplainAfter = 30 * time.Second

// Bounds of the gates in a status.
const (
	MaxGates       = 20
	MaxGateMessage = 200
	MaxGateName    = 256 // some contain the name of a webhook, whose length is not limited
	MaxGateQuery   = 1 << 10
)

// ExplanationPolicy configures when a status is written only to show the reason of a wait.
type ExplanationPolicy struct {
	// WaitsFor returns the reason for which a gate waits, in the precision that users need; empty means none. A polled gate
	// alternates between asking and waiting, and must return the same reason in both states.
	WaitsFor func(StatusGate) string
	// Detail returns a part of the message that users cannot learn otherwise: the status is written when it changes, too. nil
	// means that there is none.
	Detail func(StatusGate) string
	// Complete is true if the status must not show a waiting gate that is no longer evaluated. Otherwise, such a gate remains
	// until the next write, unless the object waits for nothing at all. A notice that is over never remains: nothing would
	// replace it while a user does not approve something else.
	Complete bool
}

// reasonNotice is the reason of a gate that passes, but has a message for users.
const reasonNotice = "notice"

// WaitsFor is the usual ExplanationPolicy.WaitsFor. A gate that time opens needs no explanation: the write that began its wait
// shows it. A notice delays nothing, but users must be able to find it in the status.
func WaitsFor(gate StatusGate) string {
	switch {
	case gate.Verdict == string(release.Pass) && gate.Opener == string(release.ByUser):
		return reasonNotice
	case gate.Verdict == string(release.Pass) || gate.Verdict == "" || gate.Opener == string(release.ByTime):
		return ""
	case gate.Verdict == string(release.Fail):
		return "repair"
	case gate.Opener == string(release.ByCluster):
		return "cluster"
	default:
		return "user-or-answer"
	}
}

// Evaluation is the part of a decision that Explain needs.
type Evaluation struct {
	Gates release.Gates
	// Shown are the gates in the status.
	Shown []StatusGate
	// Provisional is true for a decision that another one follows at once. If it has no gates but notices, it does not end a wait.
	Provisional bool
	// Pruned is true if the status cannot show gates because the installed CRD prunes them.
	Pruned bool
	Now    time.Time
}

// Explanation contains the gates to show in a status, and when to write it.
type Explanation struct {
	Gates []StatusGate
	// Due is true if the status must be written only because of the gates.
	Due bool
	// At is the time at which the write becomes due if nothing changes until then; zero means never.
	At time.Time
}

// IsPending reports whether the object waits for something that its status does not show.
func (e Explanation) IsPending() bool { return e.Due || !e.At.IsZero() }

// withWait adds a wait to the explanation. Its write is due after ExplainAfter.
func (e Explanation) withWait(w wait, now time.Time) Explanation {
	switch at := w.unshownSince.Add(ExplainAfter); {
	case w.unshownSince.IsZero():
	case !now.Before(at):
		e.Due = true
	default:
		e.At = Earliest(e.At, at)
	}
	return e
}

// Explain returns the gates to show in the status of an object, and when they must be written.
func (m *Memory[E]) Explain(key types.NamespacedName, evaluation Evaluation) Explanation {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, rules := m.entry(key), m.Explanations
	now := evaluation.Now.Truncate(time.Microsecond) // the precision of the API
	shown, waits := map[string]StatusGate{}, map[string]wait{}
	names := nameCounter{}
	for _, gate := range evaluation.Shown {
		shown[names.unique(gate.Name)] = gate
	}
	out := Explanation{Gates: []StatusGate{}}
	names = nameCounter{}
	for i, gate := range evaluation.Gates {
		status := statusGate(gate)
		id := names.unique(status.Name)
		w := rules.trackWait(e.waits[id], status, gate.NotYetQueried, shown[id], now)
		waits[id] = w
		if i >= MaxGates { // the status has no room for it, but WaitingGate may return it
			continue
		}
		if !gate.NotYetQueried { // such a gate has no new state
			out = out.withWait(w, now)
		}
		status.Since = new(metav1.NewMicroTime(w.since))
		out.Gates = append(out.Gates, status)
	}
	for id, gate := range shown {
		if rules.WaitsFor(gate) == "" {
			continue
		}
		current, evaluated := waits[id]
		lasts := evaluated && current.reason == rules.WaitsFor(gate)                                            // a notice
		out.Due = out.Due || gate.Opener != string(release.ByTime) && evaluation.Gates.First() == nil && !lasts // the object waits for nothing
		if !evaluated && (rules.Complete || rules.WaitsFor(gate) == reasonNotice) {
			waits[id] = rules.trackWait(e.waits[id], StatusGate{Name: gate.Name}, false, gate, now)
			out = out.withWait(waits[id], now)
		}
	}
	if len(evaluation.Gates.Conditions()) > 0 || !evaluation.Provisional {
		e.waits = waits
	}
	if evaluation.Pruned {
		out.Due, out.At = false, time.Time{}
	}
	return out
}

// WaitingGate returns the first gate that does not pass, with the time since which it has waited for the same reason as of the
// last Explain, for the metrics.
func (m *Memory[E]) WaitingGate(key types.NamespacedName, gates release.Gates) telemetry.WaitingGate {
	first := gates.First()
	if first == nil {
		return telemetry.WaitingGate{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := gateName(*first)
	return telemetry.WaitingGate{Name: name, Opener: first.Opener, Since: m.entry(key).waits[name].since}
}

// wait is the reason for which a gate waits, with its times.
type wait struct {
	reason string
	since  time.Time
	// unshownSince is the time since which the status shows something else; zero means that it shows this wait.
	unshownSince time.Time
}

// trackWait returns the current wait of a gate. It takes the beginning of the wait from before, the memory of this process, or
// else from the status. An unasked gate has no state of its own and continues its previous wait.
func (x ExplanationPolicy) trackWait(before wait, gate StatusGate, unasked bool, shown StatusGate, now time.Time) wait {
	current, shownReason := wait{reason: x.WaitsFor(gate), since: now}, x.WaitsFor(shown)
	switch {
	case !before.since.IsZero() && (before.reason == current.reason || unasked):
		current.reason, current.since = before.reason, before.since
	case shown.Since != nil && shownReason == current.reason:
		current.since = shown.Since.Time
	}
	if current.since.After(now) { // the clock was set back
		current.since = now
	}
	switch {
	case current.reason != shownReason:
		current.unshownSince = current.since
	case x.Detail != nil && current.reason != "" && x.Detail(gate) != x.Detail(shown):
		current.unshownSince = now
		if !before.unshownSince.IsZero() && before.unshownSince.Before(now) {
			current.unshownSince = before.unshownSince
		}
	}
	return current
}

// nameCounter makes the names of gates unique: several webhooks may have the same name.
type nameCounter map[string]int

func (n nameCounter) unique(name string) string {
	if n[name]++; n[name] > 1 {
		return fmt.Sprintf("%s#%d", name, n[name])
	}
	return name
}

// gateName returns the name of a gate in a status.
func gateName(gate release.Gate) string { return release.Truncate(gate.Name, MaxGateName) }

// statusGate converts a gate to its form in a status, without Since.
func statusGate(gate release.Gate) StatusGate {
	out := StatusGate{
		Name: gateName(gate), Verdict: string(gate.Verdict), Message: release.TruncateMiddle(gate.Message, MaxGateMessage), Opener: string(gate.Opener),
		Value: release.Truncate(gate.Value, MaxGateMessage), Limit: release.Truncate(gate.Limit, MaxGateMessage), Query: release.Truncate(gate.Query, MaxGateQuery),
	}
	if !gate.Until.IsZero() {
		out.Until = new(metav1.NewMicroTime(gate.Until))
	}
	return out
}
