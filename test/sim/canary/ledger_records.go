package canary

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// processState is the state of a process from its start to its end. The answers that it received are lost when it ends.
type processState struct {
	answers  map[types.UID]map[string]*query
	inFlight map[types.UID]*query
	lastPoll map[types.UID]map[string]time.Time
	// abandoned are the queries that were in flight when the process lost the shard.
	abandoned []*query
}

// query is a query that reached its receiver.
type query struct {
	record  *record
	process string
	request release.Query
	hook    *canary.HookQuery
	check   *canary.Check
	sent    time.Time
	// content is the content of the target when the query arrived, run the run of the release.
	content string
	run     *run
	// contentUncertain reports whether the content of the target had changed, or the target was deleted, so recently that the
	// process may not have known it, or whether configuration of the target was missing.
	contentUncertain bool
	// answer is set once the query was answered.
	answeredAt time.Time
	answer     release.Answer
}

// approved reports whether a hook approved.
func (q *query) approved() bool { return !q.answeredAt.IsZero() && q.answer.Outcome == release.Yes }

// passed reports whether a check or test passed.
func (q *query) passed() bool {
	switch {
	case q.answeredAt.IsZero():
		return false
	case q.check != nil:
		return q.answer.Outcome == release.Measured && isGood(q.check.Metric, q.answer.Value)
	default:
		return q.answer.Outcome == release.Yes
	}
}

// failed reports whether a check or test counts against the release.
func (q *query) failed() bool { return !q.answeredAt.IsZero() && !q.passed() }

// record is what is known of one Canary, from its creation to its deletion.
type record struct {
	oracle.Release[*expectation]

	kind    schema.GroupKind // the kind of its workload
	created time.Time
	object  *store.Version
	canary  *flaggerv1.Canary
	// targetRef is the target of the release: that of the spec, except while a release of another one has not ended. lastReplaced is
	// when the spec last named another target than that or than before.
	targetRef    flaggerv1.TargetReference
	lastReplaced time.Time
	status       *flaggerv1.CanaryStatus
	target       workloadState
	primary      workloadState
	route        routeState
	former       map[schema.GroupKind]formerRoute // by the kind of the route

	run  *run
	runs int
	// stableContent is the content that the primary is expected to run, because it was promoted last; empty: unknown.
	stableContent string
	// failedContent is the content that was rolled back last.
	failedContent string
	failedAt      time.Time
	// changed is when the Canary was last written, statusChanged when its status was.
	changed time.Time
	// statusOverwritten is when another actor last wrote the status. statusActor is the process that wrote it last; empty:
	// another actor.
	statusChanged, statusOverwritten time.Time
	statusActor                      string
	// configChanged is when the content of the target last changed by its configuration alone.
	configChanged time.Time
	commands      []command
	// promotionFailed is set by a failed promotion until another one succeeds: the primary has a content that could not be
	// promoted.
	promotionFailed bool
	// statusUnreliable is set once a release ended whose status another actor wrote. What the status reports about the primary
	// may be wrong until the next promotion.
	statusUnreliable bool
	// neverStarted is set if the release ended without having started: it was cancelled while it waited for approval.
	neverStarted bool
}

// command is a command of a user for a release.
type command struct {
	verb, run string
	at        time.Time
}

// run is one attempt to bring one revision into service.
type run struct {
	name        string
	began       time.Time
	phaseBefore flaggerv1.CanaryPhase
	// targetContents are the contents of the target around the beginning; the run is about one of them.
	targetContents []string
	// shippedFromWaiting is set for a run that waited for approval and that a user promoted without analysis.
	shippedFromWaiting bool
	// primaryContent is the content of the primary at the beginning.
	primaryContent string
	window         *window
	// weightsByOthers are weights that other actors set during the run.
	weightsByOthers        []int
	previousTrafficRemoved time.Time // when the previous run lost its traffic; zero: it had none
	intent                 string
	intentChanged          time.Time
	// cancelledEarly is set by a cancellation of a process that may have observed an outdated target.
	cancelledEarly bool
	promotedAt     time.Time // when the primary received its content
	// beganWithTraffic is set for a run that began with the traffic of the previous revision, until Serin first changed its
	// weight.
	beganWithTraffic bool
}

// window is one observation window.
type window struct {
	openedAt    time.Time
	statusStart time.Time // in the status
}

// weights are the weights of a route.
type weights struct {
	found, mirrored bool
	canary, primary int
	// matched means that the weight of the canary applies only to requests that match, as in an A/B test.
	matched bool
	// problem describes why the weights are invalid; empty: they are valid.
	problem string
}

// routeState is a route and its history.
type routeState struct {
	weights
	changedByOthers time.Time // when another actor last changed weights
	trafficRemoved  time.Time // when Serin last removed all of the canary's traffic
	// removedWithoutPods reports whether the canary had no pods then, so that no request was in progress.
	removedWithoutPods bool
	changed            time.Time // when the weights last changed
	// outdatedWrite is when a process last set weights that may not have known yet what another process had decided.
	outdatedWrite time.Time
}

// workloadState is the state of the target or the primary.
type workloadState struct {
	oracle.Pods

	version        *store.Version
	content        string // identifies what it runs, see contentOf
	template       any
	contentHistory oracle.Timeline[string]
	// templates are the versions of the workload, one for each template.
	templates oracle.Timeline[*store.Version]

	replicas, available int64
	// ready reports whether enough pods are ready, by the threshold of the spec.
	ready       oracle.TimedBool
	disturbedAt time.Time // when pods failed, or another actor wrote the spec
	// counts are the numbers of updated, ready and available pods, countedAt is when they last changed.
	counts    [3]int64
	countedAt time.Time
	// progressTimes are the times at which one of these numbers rose, readinessLost is when it last stopped being ready.
	progressTimes []time.Time
	readinessLost time.Time
	// exceedsDeadline reports whether Kubernetes reports an exceeded progress deadline, lastExceededDeadline when it last did.
	exceedsDeadline      bool
	lastExceededDeadline time.Time

	created, writtenByOthers, removed time.Time
	scaledToZero                      time.Time // when Serin removed all its pods; zero: it has pods
}
