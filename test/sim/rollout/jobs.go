package rollout

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis/measure"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// Jobs is the class of releases that are analysed by Jobs instead of metric queries.
const Jobs sim.FaultClass = "job"

// The faults of Jobs, and the actions of users on them.
const (
	JobHang   sim.FaultClass = "job-hang"  // its pod never ends
	JobImage  sim.FaultClass = "job-image" // its pod never starts
	JobLate   sim.FaultClass = "job-late"
	JobWrong  sim.FaultClass = "job-wrong" // it reports the opposite of the true result
	DeleteJob sim.FaultClass = "delete-job"
)

var jobFaults = []sim.FaultClass{JobHang, JobImage, JobLate, JobWrong}

// useJobs makes a template measure by Jobs. seconds is their deadline; 0: none.
func (r *Release) useJobs(template string, seconds int64) {
	r.measureWith(template, argov1.MetricProvider{Job: &argov1.JobMetric{Spec: newJobSpec(seconds)}})
	r.jobs = true
}

// measureWith makes a template measure with a provider that decides about the phase.
func (r *Release) measureWith(template string, provider argov1.MetricProvider) {
	for _, object := range r.objects {
		t, ok := object.(*argov1.AnalysisTemplate)
		if !ok || t.Name != template {
			continue
		}
		for i := range t.Spec.Metrics {
			m := &t.Spec.Metrics[i]
			m.SuccessCondition, m.FailureCondition, m.Provider = "", "", provider
		}
	}
}

// newJobSpec returns a Job that checks the version with the hash in its arguments.
func newJobSpec(seconds int64) batchv1.JobSpec {
	spec := batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "check", Image: "registry.example/check:1", Env: []corev1.EnvVar{{Name: "HASH", Value: "{{args.hash}}"}},
		}},
	}}}
	if seconds > 0 {
		spec.ActiveDeadlineSeconds = &seconds
	}
	return spec
}

// drawJobMetrics draws which templates of a release measure by Jobs.
func (r *Release) drawJobMetrics(s *sim.Stream) {
	short, endless, seconds := s.Chance(0.7), s.Chance(0.5), sim.Pick(s, int64(0), 0, 60)
	if short || !endless {
		r.useJobs(shortTemplate, seconds)
	}
	if endless {
		r.useJobs(endlessTemplate, seconds)
	}
}

// jobOutcome returns the outcome of a Job: the true result for the version that its run analyses, unless a fault is drawn.
func (k *Rollouts) jobOutcome(v *store.Version) cluster.JobOutcome {
	annotations := v.Meta().Annotations
	run := actors.Typed[*argov1.AnalysisRun](k.World, k.World.Server.Peek(runKind, types.NamespacedName{Namespace: annotations[measure.RunNamespaceAnnotation], Name: annotations[measure.RunNameAnnotation]}))
	if run == nil {
		return cluster.JobOutcome{}
	}
	s := k.World.Draws.Stream(fmt.Sprintf("job/%s/%s/%d", run.Name, annotations[measure.MetricNameAnnotation], k.Services.CountCall(string(run.UID))))
	outcome := cluster.JobOutcome{Duration: s.Skewed(500*time.Millisecond, 30*time.Second), Fails: !k.services.appearsGood(run, s, false)}
	late := s.Between(20*time.Second, 4*time.Minute)
	switch actors.DrawFault(k.World, s, measurementFaultRate, jobFaults...) {
	case JobHang:
		outcome.Hangs = true
	case JobImage:
		outcome.Stuck = true
	case JobLate:
		outcome.Duration = late
	case JobWrong:
		outcome.Fails = !outcome.Fails
	default: // no fault
	}
	if r := k.Releases; k.story != nil && r[0].jobsHang {
		outcome.Hangs = true
	}
	return outcome
}

// deleteJob deletes one of the existing Jobs.
func (u *users) deleteJob(r *Release, s *sim.Stream) {
	var names []string
	for _, v := range u.World.Server.All(actors.JobKind) {
		names = append(names, v.Key().Name)
	}
	if len(names) > 0 {
		u.UserClient.DeleteOf(r.Key, sim.Pick(s, names...), actors.JobKind)
	}
}

// deleteHangingJobs deletes the Jobs that would run indefinitely and block an analysis. No user deletes the Jobs of a completed
// run.
func (u *users) deleteHangingJobs() {
	for _, v := range u.World.Server.All(actors.JobKind) {
		annotations := v.Meta().Annotations
		run := actors.Typed[*argov1.AnalysisRun](u.World, u.World.Server.Peek(runKind, types.NamespacedName{Namespace: annotations[measure.RunNamespaceAnnotation], Name: annotations[measure.RunNameAnnotation]}))
		if run != nil && !run.Status.Phase.Completed() && jobIsRunning(u.World, v) {
			u.UserClient.Delete(v.Key().Name, actors.JobKind)
		}
	}
}

// jobIsRunning reports whether a Job has neither ended nor is being deleted.
func jobIsRunning(w *sim.World, v *store.Version) bool {
	job := actors.Typed[*batchv1.Job](w, v)
	return job != nil && job.DeletionTimestamp == nil && !jobEnded(job)
}

func jobEnded(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
