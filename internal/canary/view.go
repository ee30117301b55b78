package canary

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// View shows the release of a Canary to users. The snapshot needs no answers: the last answers of the reconciler are in the
// stored gates, and so is the time since which a gate is closed. unread are the parts of the snapshot that could not be read;
// the gates that observe them are taken from the status.
func View(s Snapshot, unread ...release.Part) release.View {
	s, d := decideForView(s)
	upcoming := forecast(s)
	v := release.View{
		Phase: string(s.Status.Phase), Since: s.Status.LastTransitionTime.Time, Result: resultOf(s.Status.Phase), Message: messageOf(s.Status),
		Revision: s.Status.LastAppliedSpec, Promoted: s.Status.LastPromotedSpec,
		Weight: s.currentWeight(), Mirrored: s.Route.Mirrored, Step: s.Status.Iterations, Window: viewWindow(s),
		Gates: viewGates(s, d.Gates, upcoming.limits, unread), ApprovalGates: s.Plan.approvalGates(),
	}
	v.PromotionFailed = v.Result == release.RolledBack && s.primaryUnpromoted()
	if serin := s.serin(); serin.Revision != "" {
		v.Revision, v.Promoted = serin.Revision, serin.Promoted
	}
	if s.Plan.Strategy != Weighted {
		v.TotalSteps = s.Plan.Iterations
	}
	if suspendedWithoutRelease(s) {
		v.State, v.Gates = release.Idle, nil
		return v
	}
	v.State = stateOf(s, d, &v)
	if v.State != release.Idle && !s.OtherController.Acts() {
		v.Upcoming = upcoming.steps
	}
	return v
}

// decideForView returns a decision and its snapshot. After a decision that only records the start of a deadline, it returns the
// decision that follows at once.
func decideForView(s Snapshot) (Snapshot, Decision) {
	d := Next(s)
	if len(d.Gates.Conditions()) > 0 || !slices.Equal(d.Stamp, []release.Stamp{release.StampSince}) || d.Status.Phase != s.Status.Phase {
		return s, d
	}
	s.Status = *d.Status.DeepCopy()
	FillStamps(&s.Status, s.Plan, d.Stamp, s.Now)
	return s, Next(s)
}

// viewWindow is the open observation window; nil: none is open.
func viewWindow(s Snapshot) *release.Window {
	window := s.currentWindow()
	if !window.open || window.start.IsZero() || !IsActivePhase(s.Status.Phase) {
		return nil
	}
	return &release.Window{Start: window.start, End: release.LaterOf(window.start, window.end())}
}

// suspendedWithoutRelease reports whether the Canary is suspended while there is no new revision to release.
func suspendedWithoutRelease(s Snapshot) bool {
	if !s.Plan.Suspended || !isIdle(s.Status.Phase) || s.OtherController.Acts() {
		return false
	}
	resumed := s
	resumed.Plan.Suspended = false
	d := Next(resumed)
	return isIdle(d.Status.Phase) && d.Gates.First() == nil
}

func stateOf(s Snapshot, d Decision, v *release.View) release.State {
	idle := isIdle(s.Status.Phase)
	switch {
	case idle && s.OtherController.Acts(): // a new revision is a release of the other controller
		return release.Idle
	case v.WaitsForUser():
		return release.WaitsForUser
	case s.isReverting():
		return release.RollingBack
	case !idle || !isIdle(d.Status.Phase):
		return release.InProgress
	}
	if first := d.Gates.First(); first != nil && !isHookGate(first, flaggerv1.PostRolloutHook) {
		return release.InProgress // the gates before the start of a new revision
	}
	return release.Idle
}

// messageOf is the message of the most important condition: Blocked, Unanswered, or the phase.
func messageOf(status flaggerv1.CanaryStatus) string {
	for _, name := range []string{flaggerv1.ConditionBlocked, flaggerv1.ConditionUnanswered} {
		if c := findCondition(status, name); c != nil && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	if c := findCondition(status, flaggerv1.ConditionPromoted); c != nil {
		return c.Message
	}
	return ""
}

// viewGates are the gates of a decision, completed with the information that only the reconciler has and stores in the status:
// answers, rejections, and since when a gate is closed.
func viewGates(s Snapshot, gates release.Gates, limits map[string]string, unread []release.Part) []release.GateView {
	kinds := GateKinds()
	stored := storedGates(s, kinds)
	var views []release.GateView
	for _, name := range []string{"refused", providerUnreachableGate} {
		if gate, ok := stored[name]; ok && gate.Verdict != release.Pass && storedGateApplies(s, name) {
			views = append(views, gate)
		}
	}
	for _, gate := range gates {
		view := release.GateView{Gate: gate, Kind: s.Plan.kindOf(gate.Name, kinds), Request: s.Plan.queryOf(gate.Name)}
		last, known := stored[gate.Name]
		switch {
		case slices.Contains(unread, view.Kind.Observes):
			if known {
				views = append(views, last)
			}
			continue
		case strings.HasPrefix(gate.Name, rolloutAskedGate) && (!known || !storedInWindow(s, last)):
			continue // the reconciler stores this gate only if the response takes long
		case view.Request != nil && known:
			view = withLastAnswer(view, last, s.Now)
		case known && last.Verdict == gate.Verdict:
			view.Since = last.Since
			if strings.HasPrefix(last.Message, gate.Message) {
				view.Message = last.Message // the reconciler also reports why a pod does not run
			}
		}
		if view.Otherwise != "" && view.Until.Equal(s.Now.Add(s.Plan.Deadline)) { // the last progress is unknown to a view
			view.Until, view.Limit, view.Otherwise = time.Time{}, "", ""
		}
		if view.Request != nil && view.Limit == "" {
			view.Limit = limits[gate.Name]
		}
		if w := viewWindow(s); gate.Name == "window" && w != nil && gate.Verdict != release.Pass {
			view.Since = w.Start
		}
		views = append(views, view)
	}
	return views
}

// storedGates are the gates of the status, by name.
func storedGates(s Snapshot, kinds release.GateKinds) map[string]release.GateView {
	gates := map[string]release.GateView{}
	for _, g := range s.serin().Gates {
		gates[g.Name] = release.GateView{
			Gate: release.Gate{
				Name: g.Name, Verdict: release.Verdict(g.Verdict), Message: g.Message, Opener: release.Opener(g.Opener),
				Value: g.Value, Limit: g.Limit, Query: g.Query, Until: timeOf(g.Until),
			},
			Kind: s.Plan.kindOf(g.Name, kinds), Since: timeOf(g.Since),
		}
	}
	return gates
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// storedGateApplies reports whether a gate of the status is up to date.
func storedGateApplies(s Snapshot, name string) bool {
	if s.OtherController.Acts() {
		return false
	}
	if name == "refused" {
		blocked := findCondition(s.Status, flaggerv1.ConditionBlocked)
		return blocked != nil && blocked.Status == corev1.ConditionTrue
	}
	w := viewWindow(s)
	return w != nil && !s.Now.Before(w.End)
}

// storedInWindow reports whether a gate of the status belongs to the open window.
func storedInWindow(s Snapshot, g release.GateView) bool {
	w := viewWindow(s)
	return w != nil && !g.Since.IsZero() && !g.Since.Before(w.Start)
}

// withLastAnswer adds to a gate with a question the answer that the reconciler received last.
func withLastAnswer(view, last release.GateView, now time.Time) release.GateView {
	view.Value, view.Limit, view.Query = last.Value, last.Limit, last.Query
	answered := last
	answered.Request, answered.LastVerdict = view.Request, view.LastVerdict
	byUser := last.Opener == release.ByUser
	switch last.Verdict {
	case release.Pass, release.Fail:
		if last.Verdict == release.Pass && view.Kind.OncePerRun {
			return answered
		}
		if view.Verdict == release.Pass {
			return view
		}
		if byUser { // a webhook requested a rollback
			answered.LastVerdict = last.Verdict
			return answered
		}
		view.LastVerdict = last.Verdict
		if last.Message != "" {
			view.Message += "; the last answer: " + last.Message
		}
	case release.Wait:
		if byUser { // a webhook refused: the user opens the gate, whenever the webhook is called again
			if !answered.Until.After(now) {
				answered.Until = time.Time{}
			}
			return answered
		}
	case release.Ask:
		if view.Verdict == release.Ask {
			view.Since = last.Since
		}
	default: // a verdict that only a newer version of Serin writes
	}
	return view
}
