package rollout

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

// oneJob is I22 of Jobs: each measurement has one, whose name is always the same. A process creates it once. After it died or
// slept, its successor may create it again where it has been deleted since, and so may a former leader that was about to
// create it when it fell asleep: the Job is then deleted because its run is over (I27).
func (c *oneOfEach) oneJob(h wrote) {
	if !h.ours || h.Kind != jobKind || h.Type != store.Added {
		return
	}
	if c.jobs == nil {
		c.jobs, c.jobsBy = map[string]time.Time{}, map[createdJob]time.Time{}
	}
	by := createdJob{job: h.Key.Name, actor: h.Actor}
	if at, again := c.jobsBy[by]; again && !c.started[h.Actor].After(at) {
		c.violate("I22", h.Key.Name, "the Job was made twice by one process")
	}
	c.jobs[h.Key.Name], c.jobsBy[by] = c.now(), c.now()
	if c.failed.After(c.then()) {
		return // of a request that went wrong nobody knows what came of it, until the run is over
	}
	for _, v := range c.world.Server.All(jobKind) {
		same := v.UID() != h.New.UID() && runOf(v) == runOf(h.New) && v.Meta().Annotations[measure.MetricNameAnnotation] == h.New.Meta().Annotations[measure.MetricNameAnnotation]
		born := c.jobs[v.Key().Name]
		if same && jobGoesOn(c.world, v) && !c.failed.After(born) && !c.late(h.Actor) {
			c.violate("I22", h.Key.Name, "the Job was made while %s of the same metric goes on", v.Key().Name)
		}
	}
}

// createdJob is a Job that one process created.
type createdJob struct{ job, actor string }

// runOf is the UID of the AnalysisRun of a Job.
func runOf(v *store.Version) types.UID {
	return types.UID(v.Meta().Labels[measure.RunUIDLabel])
}

// ofRuns is I27 of Jobs: those of a run that is over are over, or were deleted.
func (c *nothingLeft) ofRuns(h wrote) {
	if c.overSince == nil {
		c.overSince = map[types.UID]time.Time{}
	}
	if run := kinds.Typed[*argov1.AnalysisRun](c.world, h.New); h.Kind == runKind && run != nil && run.Status.Phase.Completed() && c.overSince[run.UID].IsZero() {
		c.overSince[run.UID] = c.now()
	}
	job := kinds.Typed[*batchv1.Job](c.world, h.New)
	if h.Kind != jobKind || h.Type != store.Modified || job == nil || job.DeletionTimestamp != nil || !jobOver(job) || jobOver(kinds.Typed[*batchv1.Job](c.world, h.Old)) {
		return
	}
	over, known := c.overSince[runOf(h.New)]
	if known && over.Before(c.then().Add(-triedAgain)) && c.attentive(over) {
		c.violate("I27", h.Key.Name, "the Job went on for %s after its run was over", c.now().Sub(over))
	}
}

// attentive is true where one process has lived since then, and all that it asked for was done.
func (c *nothingLeft) attentive(since time.Time) bool {
	if c.failed.After(since.Add(-c.delta)) {
		return false
	}
	for _, began := range c.started {
		if began.After(since.Add(-c.delta)) {
			return false
		}
	}
	return len(c.world.Instances()) == 1
}

// lastJobs: in the end no Job goes on whose run is over.
func (c *nothingLeft) lastJobs() {
	for _, v := range c.world.Server.All(jobKind) {
		if over, known := c.overSince[runOf(v)]; known && jobGoesOn(c.world, v) {
			c.violate("I27", v.Key().Name, "the Job goes on, and its run has been over for %s", c.now().Sub(over))
		}
	}
}
