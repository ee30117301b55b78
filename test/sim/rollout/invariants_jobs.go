package rollout

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// checkJob is the part of I22 about Jobs: each measurement has one Job, whose name is always the same. A process creates it
// once. After a crash or a suspension, another process may create it again if it was deleted since. So may a former leader that
// was suspended before it created the Job; the Job is then deleted because its run has ended (I27).
func (c *uniqueObjects) checkJob(h oracle.Write) {
	if !h.BySerin || h.Kind != actors.JobKind || h.Type != store.Added {
		return
	}
	if c.jobs == nil {
		c.jobs, c.jobsBy = map[string]time.Time{}, map[createdJob]time.Time{}
	}
	by := createdJob{job: h.Key.Name, actor: h.Actor}
	if at, again := c.jobsBy[by]; again && !c.Started[h.Actor].After(at) {
		c.Violate("I22", h.Key.Name, "the Job was created twice by one process")
	}
	c.jobs[h.Key.Name], c.jobsBy[by] = c.Now(), c.Now()
	if c.LastFault.After(c.OldestView()) {
		return // the result of a failed request is unknown until the end of the run
	}
	for _, v := range c.World.Server.All(actors.JobKind) {
		same := v.UID() != h.New.UID() && runOf(v) == runOf(h.New) && v.Meta().Annotations[measure.MetricNameAnnotation] == h.New.Meta().Annotations[measure.MetricNameAnnotation]
		born := c.jobs[v.Key().Name]
		if same && jobIsRunning(c.World, v) && !c.LastFault.After(born) {
			c.Violate("I22", h.Key.Name, "the Job was created while %s of the same metric is running", v.Key().Name)
		}
	}
}

// createdJob is a Job and the process that created it.
type createdJob struct{ job, actor string }

// runOf returns the UID of the AnalysisRun of a Job.
func runOf(v *store.Version) types.UID {
	return types.UID(v.Meta().Labels[measure.RunUIDLabel])
}

// jobsOfRuns is the part of I27 about Jobs: the Jobs of a completed run have ended or were deleted.
type jobsOfRuns struct {
	*ledger

	endedAt map[types.UID]time.Time // AnalysisRuns
}

func (c *jobsOfRuns) Observe(event any) {
	h, ok := event.(oracle.Write)
	if !ok {
		return
	}
	if run := actors.Typed[*argov1.AnalysisRun](c.World, h.New); h.Kind == runKind && run != nil && run.Status.Phase.Completed() && c.endedAt[run.UID].IsZero() {
		c.endedAt[run.UID] = c.Now()
	}
	job := actors.Typed[*batchv1.Job](c.World, h.New)
	if h.Kind != actors.JobKind || h.Type != store.Modified || job == nil || job.DeletionTimestamp != nil || !jobEnded(job) || jobEnded(actors.Typed[*batchv1.Job](c.World, h.Old)) {
		return
	}
	over, known := c.endedAt[runOf(h.New)]
	if known && over.Before(c.OldestView().Add(-maxRetryDelay)) && c.wasUndisturbed(over) {
		c.Violate("I27", h.Key.Name, "the Job ran for %s after the end of its run", c.Now().Sub(over))
	}
}

// wasUndisturbed reports whether a single process has been running since then and none of its requests failed.
func (c *jobsOfRuns) wasUndisturbed(since time.Time) bool {
	if c.LastFault.After(since.Add(-c.Lag)) {
		return false
	}
	for _, began := range c.Started {
		if began.After(since.Add(-c.Lag)) {
			return false
		}
	}
	return len(c.World.Instances()) == 1
}

func (c *jobsOfRuns) Finish() {
	for _, v := range c.World.Server.All(actors.JobKind) {
		if over, known := c.endedAt[runOf(v)]; known && jobIsRunning(c.World, v) {
			c.Violate("I27", v.Key().Name, "the Job is running, although its run ended %s ago", c.Now().Sub(over))
		}
	}
}
