package canary_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
)

// drawSpec draws a spec, valid or not.
func drawSpec(t *rapid.T, w *world) {
	rare := func(label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 0 }
	a := &flaggerv1.CanaryAnalysis{
		Interval:            rapid.SampledFrom([]string{"10s", "1m", "2m", "nonsense"}).Draw(t, "interval"),
		Threshold:           rapid.IntRange(-1, 4).Draw(t, "threshold"),
		StepWeight:          rapid.SampledFrom([]int{50, 30, 50, 100, 100, 20, 1, 1 << 62}).Draw(t, "step"),
		MaxWeight:           rapid.SampledFrom([]int{0, 0, 0, 50, 50, 100}).Draw(t, "max"),
		StepWeightPromotion: rapid.SampledFrom([]int{0, 0, 40, 1 << 62, -4}).Draw(t, "promotion-step"),
		Mirror:              rare("mirror"),
	}
	if rare("impossible") {
		a.StepWeight = rapid.SampledFrom([]int{0, -3}).Draw(t, "no-step")
		a.MaxWeight = rapid.SampledFrom([]int{0, 130, -1}).Draw(t, "no-max")
		a.StepWeights = rapid.SliceOfN(rapid.IntRange(-5, 120), 0, 4).Draw(t, "weights")
	}
	if rapid.IntRange(0, 2).Draw(t, "iterates") == 0 {
		a.Iterations = rapid.SampledFrom([]int{1, 2, 3, 1 << 62}).Draw(t, "iterations")
		if rapid.IntRange(0, 2).Draw(t, "matches") == 0 {
			a.Match = match()
		}
	}
	if rare("sticky") {
		a.SessionAffinity = &flaggerv1.SessionAffinity{CookieName: "ship", PrimaryCookieName: "home"}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "hooks") {
		a.Webhooks = append(a.Webhooks, flaggerv1.CanaryWebhook{
			Type: rapid.SampledFrom(hookTypes).Draw(t, "type"), Name: fmt.Sprint("hook", i/2), URL: fmt.Sprint("http://hook", i),
		})
	}
	for range rapid.IntRange(0, 2).Draw(t, "checks") {
		a.Metrics = append(a.Metrics, flaggerv1.CanaryMetric{
			Name:      rapid.SampledFrom([]string{canary.SuccessRate, canary.Duration, "custom", "istio_requests_total"}).Draw(t, "metric"),
			Threshold: rapid.Float64Range(1, 99).Draw(t, "bound"), Query: rapid.SampledFrom([]string{"", "sum(x)"}).Draw(t, "query"),
		})
	}
	w.spec = flaggerv1.CanarySpec{
		TargetRef: flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "cart"}, Service: w.spec.Service, Analysis: a,
		Provider:     rapid.SampledFrom([]string{"istio", "istio", "gatewayapi:v1", "kubernetes"}).Draw(t, "provider"),
		SkipAnalysis: rare("skip"), Suspend: rare("suspend"), RevertOnDeletion: rare("revert"),
	}
	w.generation++
}

// worlds are states of the world, reachable or not.
func worlds() *rapid.Generator[*world] {
	return rapid.Custom(func(t *rapid.T) *world {
		w := newWorld()
		rare := func(label string) bool { return rapid.IntRange(0, 9).Draw(t, label) == 0 }
		drawSpec(t, w)
		w.instantPods = rapid.Bool().Draw(t, "instant")
		w.target, w.primary = drawWorkload(t, "target"), drawWorkload(t, "primary")
		if !w.target.found {
			w.targetProblem = "deployment cart.shop get query error: not found"
		}
		w.history = []content{{template: "v1"}}
		w.newestTemplate = drawTime(t, "newest")
		w.endpointsDelayed, w.endpointsUnreadable = rapid.Bool().Draw(t, "late"), rare("unread")
		if rare("missing alert provider") {
			w.missingAlertProviders = []string{"alert provider slack.shop does not exist"}
		}
		if rare("unreported parent") {
			w.unreported = canary.Unreported{Message: "Gateway gatway.edge does not exist", Since: drawTime(t, "unreported")}
		}
		w.status = storedStatus(drawStatus(t))
		w.deleting, w.finalizer = rare("deleting"), rare("finalizer")
		if rare("obstacle") {
			w.targetConflict = "another Canary was first"
		}
		if rare("missing") {
			w.missingReferences = []string{"no template"}
		}
		if rare("limited") {
			w.queue = &release.QueueState{Open: rapid.Bool().Draw(t, "its turn"), Position: 1, Waiting: 2, InProgress: 3, Limit: 3}
		}
		if rapid.Bool().Draw(t, "routed") {
			w.matched[w.plan().Provider] = (w.plan().Strategy == canary.ABTesting) != rare("other matches")
			w.routes[w.plan().Provider] = &canary.Route{
				Found: true, Canary: rapid.SampledFrom([]int{0, 0, 20, 50, 100}).Draw(t, "live"), Mirrored: rare("mirrored"),
				Confirmation: rapid.SampledFrom([]canary.Confirmation{canary.Confirmed, canary.Unconfirmed, canary.CannotTell}).Draw(t, "confirmed"),
			}
		}
		if rare("unreadable") {
			w.routeError = "cannot be read"
		}
		if rare("commanded") {
			w.command = canary.NewCommand(rapid.SampledFrom([]string{"abort", "promote", "promote-full", "retry"}).Draw(t, "verb"), "uid", w.status)
		}
		w.standingAnswers["all"] = rapid.SampledFrom([]string{"good", "bad", "unreachable:away", "no-data:none", "broken:bad query"}).Draw(t, "answers")
		if rapid.Bool().Draw(t, "silent") {
			delete(w.standingAnswers, "all")
		}
		return w
	})
}

func drawWorkload(t *rapid.T, label string) workload {
	p := workload{
		content: content{template: rapid.SampledFrom(templates).Draw(t, label)}, id: rapid.SampledFrom([]string{"", "id"}).Draw(t, "id"),
		found: rapid.IntRange(0, 9).Draw(t, "found") > 0, replicas: rapid.Int32Range(0, 3).Draw(t, "replicas"),
		deadlineExceeded: rapid.IntRange(0, 9).Draw(t, "exceeded") == 0, paused: rapid.Bool().Draw(t, "paused"),
	}
	p.total = p.replicas
	p.available = rapid.Int32Range(0, p.replicas).Draw(t, "available")
	p.endpoints = rapid.Int32Range(0, p.replicas).Draw(t, "published")
	if !p.found {
		return workload{}
	}
	return p
}

// drawTime is a time around the start of every scenario, or zero.
func drawTime(t *rapid.T, label string) time.Time {
	seconds := rapid.SampledFrom([]int{-1 << 20, -300, -60, -30, -5, 0, 5, 30, 3600}).Draw(t, label)
	if seconds == -1<<20 {
		return time.Time{}
	}
	return midnight.Add(time.Duration(seconds) * time.Second)
}

func drawMicroTime(t *rapid.T, label string) *metav1.MicroTime {
	at := drawTime(t, label)
	if at.IsZero() {
		return nil
	}
	micro := metav1.NewMicroTime(at)
	return &micro
}

func drawStatus(t *rapid.T) flaggerv1.CanaryStatus {
	hashes := []string{"", "hash-v1", "hash-v2", "5fcc94f9fb"}
	status := flaggerv1.CanaryStatus{
		Phase:        rapid.SampledFrom(phases).Draw(t, "phase"),
		CanaryWeight: rapid.SampledFrom([]int{0, 0, 20, 50, 100}).Draw(t, "weight"), Iterations: rapid.IntRange(-1, 4).Draw(t, "iterations"),
		FailedChecks:    rapid.IntRange(0, 3).Draw(t, "failed"),
		LastAppliedSpec: rapid.SampledFrom(hashes).Draw(t, "applied"), LastPromotedSpec: rapid.SampledFrom(hashes).Draw(t, "promoted"),
		LastTransitionTime: metav1.NewTime(drawTime(t, "transition")),
	}
	if rapid.Bool().Draw(t, "conditions") {
		status.Conditions = []flaggerv1.CanaryCondition{{Type: flaggerv1.ConditionPromoted, Status: corev1.ConditionUnknown, LastUpdateTime: metav1.NewTime(midnight)}}
	}
	if rapid.IntRange(0, 9).Draw(t, "blocked") == 0 {
		status.Conditions = append(status.Conditions, flaggerv1.CanaryCondition{Type: flaggerv1.ConditionBlocked, Status: corev1.ConditionTrue, Reason: "Plan"})
	}
	if rapid.IntRange(0, 4).Draw(t, "unanswered") == 0 {
		status.Conditions = append(status.Conditions, flaggerv1.CanaryCondition{
			Type: flaggerv1.ConditionUnanswered, Status: corev1.ConditionTrue,
			Reason: rapid.SampledFrom([]string{"ProviderUnreachable", "PreRolloutHook0", "RolloutHook0", "ConfirmPromotionHook0"}).Draw(t, "silent"),
		})
	}
	if rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
		return status
	}
	status.Serin = &flaggerv1.SerinStatus{
		Run:         rapid.SampledFrom([]string{"", "run"}).Draw(t, "run"),
		Revision:    rapid.SampledFrom([]string{"v1", "v2", "v3", "peer-x", ""}).Draw(t, "revision"),
		Promoted:    rapid.SampledFrom([]string{"v1", "v2", "none", "peer-x", ""}).Draw(t, "promoted"),
		Shape:       rapid.SampledFrom([]string{"", "canary/istio/Deployment/cart", "blue-green/kubernetes/Deployment/cart"}).Draw(t, "shape"),
		Started:     rapid.Bool().Draw(t, "started"),
		Since:       drawMicroTime(t, "since"),
		DrainUntil:  drawMicroTime(t, "drain"),
		Asked:       drawMicroTime(t, "asked"),
		Unreachable: drawMicroTime(t, "unreachable"),
		LastTraffic: drawMicroTime(t, "last-traffic"),
		Intent:      rapid.SampledFrom([]string{"", "", "", "rollback", "cancel", "skip", "completed", "skipped", "failed", "unheard-of"}).Draw(t, "intent"),
		Held:        rapid.SampledFrom([]string{"", "confirm-rollout/hook0"}).Draw(t, "held"),
	}
	if since := drawMicroTime(t, "queued"); since != nil && rapid.IntRange(0, 3).Draw(t, "queue") == 0 {
		status.Serin.Queue = &flaggerv1.QueuePlace{Since: *since, Aside: rapid.Bool().Draw(t, "aside")}
	}
	for i, of := range []**flaggerv1.UnreadyWorkload{&status.Serin.CanaryUnready, &status.Serin.PrimaryUnready} {
		name := []string{"canary-unready", "primary-unready"}[i]
		if since := drawMicroTime(t, name); since != nil && rapid.Bool().Draw(t, "is-"+name) {
			available := rapid.Int32Range(0, 3).Draw(t, "available-"+name)
			*of = &flaggerv1.UnreadyWorkload{Since: *since, Updated: available, Ready: available, Available: available}
		}
	}
	if status.Serin.Promoted == "none" && rapid.Bool().Draw(t, "unfinished") {
		status.Serin.Unfinished = &flaggerv1.UnfinishedPrimary{
			Revision: rapid.SampledFrom([]string{"v1", "v2", ""}).Draw(t, "unfinished-revision"), Spec: "hash-v2", Inherited: rapid.Bool().Draw(t, "inherited"),
		}
	}
	if start := drawMicroTime(t, "window"); start != nil {
		status.Serin.Window = &flaggerv1.AnalysisWindow{Start: *start, Unconfirmed: rapid.IntRange(0, 9).Draw(t, "unconfirmed") == 0}
	}
	return status
}

// snapshots are observations of a world, with answers to some of the queries.
func snapshots() *rapid.Generator[canary.Snapshot] {
	return rapid.Custom(func(t *rapid.T) canary.Snapshot {
		w := worlds().Draw(t, "world")
		for range rapid.IntRange(0, 6).Draw(t, "answered") {
			s := w.snapshot()
			w.sendQueries(canary.Next(s).Queries)
			if len(w.pending) == 0 {
				break
			}
			w.answer(rapid.SampledFrom([]string{"good", "bad", "yes", "no:no", "unreachable:away", "no-data:none", "no-data-but-primary-has", "broken:bad"}).Draw(t, "answer"))
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 60, 90}).Draw(t, "later")) * time.Second)
		}
		return w.snapshot()
	})
}

// clone returns a deep copy of a snapshot.
func clone(s canary.Snapshot) canary.Snapshot {
	s.Status = *s.Status.DeepCopy()
	s.Answers = maps.Clone(s.Answers)
	s.MissingReferences, s.MissingAlertProviders = slices.Clone(s.MissingReferences), slices.Clone(s.MissingAlertProviders)
	s.Workload.Configs, s.Workload.FlaggerConfigs = maps.Clone(s.Workload.Configs), maps.Clone(s.Workload.FlaggerConfigs)
	s.Plan.StepWeights, s.Plan.Hooks, s.Plan.Checks = slices.Clone(s.Plan.StepWeights), slices.Clone(s.Plan.Hooks), slices.Clone(s.Plan.Checks)
	s.Plan.ValidationErrors, s.Plan.Warnings = slices.Clone(s.Plan.ValidationErrors), slices.Clone(s.Plan.Warnings)
	return s
}
