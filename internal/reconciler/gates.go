package reconciler

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/release"
)

// StatusGate is a gate as the status of a release shows it. It has the fields of the GateStatus of both APIs, which convert to
// it and from it.
type StatusGate struct {
	Name, Verdict, Message, Opener string
	Value, Limit, Query            string
	Since, Until                   *metav1.MicroTime
}

// ExplainAfter is how long a release may wait for something that its status does not say before the status is written only to
// say it. Values, limits and messages change all the time; they are written along with any other write, and never cause one.
const ExplainAfter = 30 * time.Second

// Bounds of the gates in a status.
const (
	MaxGates       = 20
	MaxGateMessage = 200
	MaxGateName    = 256 // some contain the name of a webhook, which may be as long as a whole Canary
	MaxGateQuery   = 1 << 10
)

// Explanations decides when a status is written only to say what its object waits for.
type Explanations struct {
	// WaitsFor returns what a gate waits for, as far as users have to know; empty: for nothing. A gate that is polled is
	// asked and waits in turns, and waits for the same all the time.
	WaitsFor func(StatusGate) string
	// Detail is a part of the message that users cannot find out otherwise: another detail is explained, too. nil: there is none.
	Detail func(StatusGate) string
	// Complete is true where the status must not show a waiting gate that is not evaluated anymore. Otherwise, such a gate
	// remains until the next write, unless the object waits for nothing at all.
	Complete bool
}

// WaitsFor is the usual Explanations.WaitsFor: a gate that time opens needs no explanation, because the write that began its
// wait shows it.
func WaitsFor(gate StatusGate) string {
	switch {
	case gate.Verdict == string(release.Pass) || gate.Verdict == "" || gate.Opener == string(release.ByTime):
		return ""
	case gate.Verdict == string(release.Fail):
		return "repair"
	case gate.Opener == string(release.ByCluster):
		return "cluster"
	default:
		return "somebody" // the user, or the recipient of a query
	}
}

// Evaluation is a decision, as far as its gates are to be explained.
type Evaluation struct {
	Gates release.Gates
	// Shown are the gates in the status.
	Shown []StatusGate
	// Provisional is true for a decision that another one follows at once: if it evaluated no gates, it ends no wait.
	Provisional bool
	// Pruned is true if the status cannot show gates, because the installed definition drops them.
	Pruned bool
	Now    time.Time
}

// Explanation is what a status is to show about an evaluation.
type Explanation struct {
	Gates []StatusGate
	// Due is true if the status must be written only because of the gates.
	Due bool
	// At is when it will be due, if nothing changes until then; zero: never.
	At time.Time
}

// Unsaid reports whether the object waits for something that its status does not show.
func (e Explanation) Unsaid() bool { return e.Due || !e.At.IsZero() }

// including returns the explanation with a wait, which is due after ExplainAfter.
func (e Explanation) including(w wait, now time.Time) Explanation {
	switch at := w.unsaid.Add(ExplainAfter); {
	case w.unsaid.IsZero():
	case !now.Before(at):
		e.Due = true
	default:
		e.At = Earliest(e.At, at)
	}
	return e
}

// Explain returns what the status of an object is to show about the gates of a decision, and when that has to be written.
func (m *Memory[E]) Explain(key types.NamespacedName, of Evaluation) Explanation {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, rules := m.entry(key), m.Explanations
	now := of.Now.Truncate(time.Microsecond) // as the API stores it
	shown, waits := map[string]StatusGate{}, map[string]wait{}
	name := numbering{}
	for _, gate := range of.Shown {
		shown[name.of(gate.Name)] = gate
	}
	out := Explanation{Gates: []StatusGate{}}
	name = numbering{}
	for _, gate := range of.Gates[:min(len(of.Gates), MaxGates)] {
		status := statusGate(gate)
		id := name.of(status.Name)
		w := rules.follow(e.waits[id], status, gate.NotYetAsked, shown[id], now)
		waits[id] = w
		if !gate.NotYetAsked { // nothing new is known of one that is
			out = out.including(w, now)
		}
		status.Since = new(metav1.NewMicroTime(w.since))
		out.Gates = append(out.Gates, status)
	}
	for id, gate := range shown {
		if rules.WaitsFor(gate) == "" {
			continue
		}
		out.Due = out.Due || gate.Opener != string(release.ByTime) && of.Gates.First() == nil // nothing is waited for
		if _, evaluated := waits[id]; !evaluated && rules.Complete {
			waits[id] = rules.follow(e.waits[id], StatusGate{Name: gate.Name}, false, gate, now)
			out = out.including(waits[id], now)
		}
	}
	if len(of.Gates) > 0 || !of.Provisional {
		e.waits = waits
	}
	if of.Pruned {
		out.Due, out.At = false, time.Time{}
	}
	return out
}

// WaitingSince returns since when a gate waits for the same, or passes, as of the last Explain.
func (m *Memory[E]) WaitingSince(key types.NamespacedName, gate release.Gate) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).waits[GateName(gate)].since
}

// wait is what a gate waits for.
type wait struct {
	reason string
	since  time.Time
	// unsaid is the time since which the status shows something else; zero: it shows this.
	unsaid time.Time
}

// follow returns what a gate waits for, and since when: as this process remembers it in before, or as the status shows it. Nothing
// is known of an unasked gate except for what it waited for before.
func (x Explanations) follow(before wait, gate StatusGate, unasked bool, shown StatusGate, now time.Time) wait {
	is, said := wait{reason: x.WaitsFor(gate), since: now}, x.WaitsFor(shown)
	switch {
	case !before.since.IsZero() && (before.reason == is.reason || unasked):
		is.reason, is.since = before.reason, before.since
	case shown.Since != nil && said == is.reason:
		is.since = shown.Since.Time
	}
	if is.since.After(now) { // the clock was set back
		is.since = now
	}
	switch {
	case is.reason != said:
		is.unsaid = is.since
	case x.Detail != nil && is.reason != "" && x.Detail(gate) != x.Detail(shown):
		is.unsaid = now
		if !before.unsaid.IsZero() && before.unsaid.Before(now) {
			is.unsaid = before.unsaid
		}
	}
	return is
}

// numbering distinguishes gates of one name: webhooks may have the same.
type numbering map[string]int

func (n numbering) of(name string) string {
	if n[name]++; n[name] > 1 {
		return fmt.Sprintf("%s#%d", name, n[name])
	}
	return name
}

// GateName is the name of a gate in a status.
func GateName(gate release.Gate) string { return release.Truncate(gate.Name, MaxGateName) }

// statusGate returns a gate as a status shows it, except for the time since which it waits.
func statusGate(gate release.Gate) StatusGate {
	out := StatusGate{
		Name: GateName(gate), Verdict: string(gate.Verdict), Message: release.Truncate(gate.Message, MaxGateMessage), Opener: string(gate.Opener),
		Value: release.Truncate(gate.Value, MaxGateMessage), Limit: release.Truncate(gate.Limit, MaxGateMessage), Query: release.Truncate(gate.Query, MaxGateQuery),
	}
	if !gate.Until.IsZero() {
		out.Until = new(metav1.NewMicroTime(gate.Until))
	}
	return out
}
