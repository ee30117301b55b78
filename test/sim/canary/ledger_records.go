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

// life is a process from its start to its end: the answers that it received are lost with it.
type life struct {
	answers map[types.UID]map[string]*question
	out     map[types.UID]*question
	polled  map[types.UID]map[string]time.Time
}

// question is one that reached whom it was put to.
type question struct {
	of    *record
	by    string
	probe release.Query
	hook  *canary.HookQuery
	check *canary.Check
	asked time.Time
	// content is what the target ran when it arrived, run the attempt that the release was in.
	content string
	run     *run
	// fresh is true when the target had only just begun to run that, so that its process could not know.
	fresh bool
	// answer holds once answered.
	answered time.Time
	answer   release.Answer
}

// yes is true of a hook that agreed.
func (q *question) yes() bool { return !q.answered.IsZero() && q.answer.Outcome == release.Yes }

// passed is true of a check or test that the release passed.
func (q *question) passed() bool {
	switch {
	case q.answered.IsZero():
		return false
	case q.check != nil:
		return q.answer.Outcome == release.Measured && good(q.check.Metric, q.answer.Value)
	default:
		return q.answer.Outcome == release.Yes
	}
}

// failed is true of a check or test that counts against the release.
func (q *question) failed() bool { return !q.answered.IsZero() && !q.passed() }

// record is what is known of one Canary, from its creation to its end.
type record struct {
	oracle.Release[*expectation]

	kind    schema.GroupKind // of its workload
	made    time.Time
	aimed   time.Time // since when it names its target
	object  *store.Version
	canary  *flaggerv1.Canary
	status  *flaggerv1.CanaryStatus
	target  workloadState
	primary workloadState
	route   routeState

	run  *run
	runs int
	// stable is what the primary is expected to run, which was promoted last; empty: unknown.
	stable string
	// failed is what was rolled back last.
	failed   string
	failedAt time.Time
	// changed is when the Canary was last written, moved its status,
	changed time.Time
	// tampered when someone else wrote that, and mover is the process that wrote it last; empty: someone else.
	moved, tampered time.Time
	mover           string
	// configured is when what the target runs last changed by its configuration alone.
	configured time.Time
	commands   []command
	// orphaned is true since a promotion failed: the primary has what could not be promoted, until something is.
	orphaned bool
	// misled is true once a release that someone else wrote the status of has ended: what it says of the primary may be
	// wrong, until a promotion makes it right.
	misled bool
	// unbegun is true when it came to its end without having begun: the wait for approval was called off.
	unbegun bool
}

// command is what a user said to a release.
type command struct {
	verb, run string
	at        time.Time
}

// run is one attempt to bring one revision into service.
type run struct {
	name   string
	began  time.Time
	before flaggerv1.CanaryPhase
	// contents are what the target ran around the beginning; one of them is what was taken up.
	contents []string
	// primary is what the primary ran then.
	primary string
	window  *window
	// foreign are weights that someone else set meanwhile.
	foreign  []int
	left     time.Time // when the run before it lost its traffic; zero: it had none
	intent   string
	intended time.Time
	// cancelledEarly is true for a cancellation by a process that may have seen the target as it was before.
	cancelledEarly bool
	promoted       time.Time // when the primary got its content
	// unearned is true of a run that began with the users of the revision before it, until Serin first raised its weight.
	unearned bool
}

// window is one observation.
type window struct {
	opened time.Time
	start  time.Time // as the status says
}

// weights are those of a route.
type weights struct {
	found, mirrored bool
	canary, primary int
	// problem says why the weights are none.
	problem string
}

// routeState is a route and how it came to be.
type routeState struct {
	weights
	foreign time.Time // when someone else last changed weights
	left    time.Time // when Serin last took all of the canary's traffic
	// leftNone is true if the canary had no pods then, so that no request was in progress there.
	leftNone bool
	touched  time.Time // when the weights last changed
	// outpaced is when a process last set weights that need not know yet what another one has decided.
	outpaced time.Time
}

// workloadState is one of the two workloads.
type workloadState struct {
	oracle.Pods

	version  *store.Version
	content  string // names what it runs, see contentOf
	template any
	contents oracle.Timeline[string]

	replicas, available int64
	// ready: enough pods are ready, by the threshold of the spec.
	ready     oracle.Condition
	disturbed time.Time // when pods failed, or someone other than Serin wrote the spec
	// counts are the pods that are updated, ready and available, countedAt is since when.
	counts    [3]int64
	countedAt time.Time
	// progressed are the moments at which one of these numbers rose, lost is when it last was ready and is so no more.
	progressed []time.Time
	lost       time.Time
	// givesUp is true while Kubernetes takes it for one that never comes, gaveUp when that was last so.
	givesUp bool
	gaveUp  time.Time

	created, foreign, removed time.Time
	emptied                   time.Time // when Serin took all its pods away; zero: it has some
}
