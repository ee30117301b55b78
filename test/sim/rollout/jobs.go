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

// Jobs analyse some releases, where others query a service.
const Jobs sim.FaultClass = "job"

// The faults of Jobs, and what users do to them.
const (
	JobHang   sim.FaultClass = "job-hang"  // its pod never ends
	JobImage  sim.FaultClass = "job-image" // its pod never starts
	JobLate   sim.FaultClass = "job-late"
	JobWrong  sim.FaultClass = "job-wrong" // it says the opposite of what is true
	DeleteJob sim.FaultClass = "delete-job"
)

var jobFaults = []sim.FaultClass{JobHang, JobImage, JobLate, JobWrong}

// judgedByJobs lets a template measure by Jobs. seconds bound each of them; 0: nothing does.
func (r *Release) judgedByJobs(template string, seconds int64) {
	for _, object := range r.objects {
		t, ok := object.(*argov1.AnalysisTemplate)
		if !ok || t.Name != template {
			continue
		}
		for i := range t.Spec.Metrics {
			m := &t.Spec.Metrics[i]
			m.SuccessCondition, m.FailureCondition = "", ""
			m.Provider = argov1.MetricProvider{Job: &argov1.JobMetric{Spec: checking(seconds)}}
		}
	}
	r.jobs = true
}

// checking is a Job that checks the version with the hash in its arguments.
func checking(seconds int64) batchv1.JobSpec {
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

// drawJobs draws which templates of a release measure by Jobs.
func (r *Release) drawJobs(s *sim.Stream) {
	short, endless, seconds := s.Chance(0.7), s.Chance(0.5), sim.Pick(s, int64(0), 0, 60)
	if short || !endless {
		r.judgedByJobs(shortTemplate, seconds)
	}
	if endless {
		r.judgedByJobs(endlessTemplate, seconds)
	}
}

// work is what becomes of a Job: what is true of the version that its run is about, unless there is a fault.
func (k *Rollouts) work(v *store.Version) cluster.Work {
	of := v.Meta().Annotations
	run := actors.Typed[*argov1.AnalysisRun](k.world, k.world.Server.Peek(runKind, types.NamespacedName{Namespace: of[measure.RunNamespaceAnnotation], Name: of[measure.RunNameAnnotation]}))
	if run == nil {
		return cluster.Work{}
	}
	k.services.asked[string(run.UID)]++
	s := k.world.Draws.Stream(fmt.Sprintf("job/%s/%s/%d", run.Name, of[measure.MetricNameAnnotation], k.services.asked[string(run.UID)]))
	work := cluster.Work{Takes: s.Skewed(500*time.Millisecond, 30*time.Second), Fails: !k.services.good(run, s, false)}
	late := s.Between(20*time.Second, 4*time.Minute)
	switch actors.DrawFault(k.world, s, measurementFaultRate, jobFaults...) {
	case JobHang:
		work.Hangs = true
	case JobImage:
		work.Stuck = true
	case JobLate:
		work.Takes = late
	case JobWrong:
		work.Fails = !work.Fails
	default: // no fault
	}
	if r := k.releases; k.story != nil && r[0].hangs {
		work.Hangs = true
	}
	return work
}

// deleteJob deletes one of those that there are.
func (p *users) deleteJob(r *Release, s *sim.Stream) {
	var names []string
	for _, v := range p.world.Server.All(actors.JobKind) {
		names = append(names, v.Key().Name)
	}
	if len(names) > 0 {
		p.userClient.DeleteOf(r.Key, sim.Pick(s, names...), actors.JobKind)
	}
}

// endHanging: someone deletes the Jobs that would go on indefinitely, and hold a analysis with them. Those of a run that is over
// no one looks for.
func (p *users) endHanging() {
	for _, v := range p.world.Server.All(actors.JobKind) {
		of := v.Meta().Annotations
		run := actors.Typed[*argov1.AnalysisRun](p.world, p.world.Server.Peek(runKind, types.NamespacedName{Namespace: of[measure.RunNamespaceAnnotation], Name: of[measure.RunNameAnnotation]}))
		if run != nil && !run.Status.Phase.Completed() && jobGoesOn(p.world, v) {
			p.userClient.Delete(v.Key().Name, actors.JobKind)
		}
	}
}

// jobGoesOn is true of a Job that is neither over nor being deleted.
func jobGoesOn(w *sim.World, v *store.Version) bool {
	job := actors.Typed[*batchv1.Job](w, v)
	return job != nil && job.DeletionTimestamp == nil && !jobOver(job)
}

func jobOver(job *batchv1.Job) bool {
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
