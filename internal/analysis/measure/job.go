package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
)

// What is written on the Jobs of runs, and on their pods.
const (
	// RunUIDLabel is the UID of the run.
	RunUIDLabel = "analysisrun.argoproj.io/uid"
	// RunNameAnnotation, RunNamespaceAnnotation and MetricNameAnnotation say whose Job it is.
	RunNameAnnotation      = "analysisrun.argoproj.io/name"
	RunNamespaceAnnotation = "analysisrun.argoproj.io/namespace"
	MetricNameAnnotation   = "analysisrun.argoproj.io/metric-name"
)

// Where a measurement remembers its Job.
const (
	jobNameKey      = "job-name"
	jobNamespaceKey = "job-namespace"
)

// maxJobName is the length of a label's value: Kubernetes labels the pods of a Job with its name.
const maxJobName = 63

// Jobs runs the Jobs of measurements.
type Jobs struct {
	// Client reads Jobs from a cache, and writes; Live reads Jobs and their pods from the API server.
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	// Namespace of all Jobs; empty: that of the run.
	Namespace string
	// Elsewhere is true where the Jobs run in another cluster, in which the runs own nothing.
	Elsewhere bool
}

// measure makes a Job, looks how far it is, or ends it.
func (j *Jobs) measure(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, q analysis.Question) (analysis.Answer, error) {
	if q.Under == nil {
		return j.begin(ctx, run, m, q.Number)
	}
	if q.Terminate {
		_ = j.delete(ctx, run, JobOf(*q.Under)) // what is left of it is swept up with the run, as often as it takes
		return analysis.Answer{Judged: argov1.AnalysisPhaseInconclusive}, nil
	}
	return j.resume(ctx, run, *q.Under)
}

// JobOf is the name of the Job of a measurement; empty: it has none.
func JobOf(m argov1.Measurement) string { return m.Metadata[jobNameKey] }

// namespaceOf is where the Jobs of a run are. What a status says of it does not count: others may have written it.
func (j *Jobs) namespaceOf(run *argov1.AnalysisRun) string { return cmp.Or(j.Namespace, run.Namespace) }

// find is a Job of a run by its name; that of another is none.
func (j *Jobs) find(ctx context.Context, run *argov1.AnalysisRun, name string) (*batchv1.Job, error) {
	job, key := &batchv1.Job{}, client.ObjectKey{Namespace: j.namespaceOf(run), Name: name}
	err := j.Client.Get(ctx, key, job)
	if apierrors.IsNotFound(err) {
		err = j.Live.Get(ctx, key, job)
	}
	if err == nil && job.Labels[RunUIDLabel] != string(run.UID) {
		err = apierrors.NewNotFound(batchv1.Resource("jobs"), name)
	}
	return job, err
}

// begin makes the Job, or finds the one that was made before a crash.
func (j *Jobs) begin(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, number int) (analysis.Answer, error) {
	job := j.job(run, m, number)
	if err := j.Client.Create(ctx, job); err != nil {
		existing := &batchv1.Job{} // also where the answer to its making was lost: the next one would run beside it
		switch found := j.Live.Get(ctx, client.ObjectKeyFromObject(job), existing); {
		case found != nil && apierrors.IsAlreadyExists(err):
			return analysis.Answer{}, fmt.Errorf("get Job %s.%s: %w", job.Name, job.Namespace, found)
		case found != nil:
			return analysis.Answer{}, fmt.Errorf("create Job %s.%s: %w", job.Name, job.Namespace, err)
		case existing.Labels[RunUIDLabel] != string(run.UID):
			return analysis.Answer{}, fmt.Errorf("Job %s.%s is not of this run: remove it", job.Name, job.Namespace) //nolint:staticcheck // a kind
		}
	}
	return analysis.Answer{
		Judged: argov1.AnalysisPhaseRunning, Resume: j.Clock.Now(),
		Metadata: map[string]string{jobNameKey: job.Name, jobNamespaceKey: job.Namespace},
	}, nil
}

// job is the one of a measurement.
func (j *Jobs) job(run *argov1.AnalysisRun, m argov1.Metric, number int) *batchv1.Job {
	namespace := j.namespaceOf(run)
	metadata := m.Provider.Job.Metadata
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: jobName(string(run.UID), m.Name, number),
			Labels: with(metadata.Labels, RunUIDLabel, string(run.UID)),
			Annotations: with(metadata.Annotations,
				RunNameAnnotation, run.Name, RunNamespaceAnnotation, run.Namespace, MetricNameAnnotation, m.Name),
		},
		Spec: *m.Provider.Job.Spec.DeepCopy(),
	}
	job.Spec.Template.Labels = with(job.Spec.Template.Labels, RunUIDLabel, string(run.UID))
	if !j.Elsewhere && namespace == run.Namespace {
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind))}
	}
	return job
}

// with is a map with more in it: keys and values in turn.
func with(old map[string]string, more ...string) map[string]string {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]string{}
	}
	for pair := range slices.Chunk(more, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// jobName is run, metric and number; the metric is shortened where that would be too long.
func jobName(run, metric string, number int) string {
	if room := maxJobName - len(fmt.Sprintf("%s..%d", run, number)); len(metric) > room {
		metric = metric[:max(room, 0)]
	}
	return fmt.Sprintf("%s.%s.%d", run, metric, number)
}

// resume looks how far a Job is.
func (j *Jobs) resume(ctx context.Context, run *argov1.AnalysisRun, under argov1.Measurement) (analysis.Answer, error) {
	job, err := j.find(ctx, run, JobOf(under))
	if err != nil {
		return analysis.Answer{}, fmt.Errorf("get Job %s.%s: %w", JobOf(under), j.namespaceOf(run), err)
	}
	if phase, message := ended(job); phase.Completed() {
		return analysis.Answer{Judged: phase, Message: message}, nil
	}
	problem, err := j.stuck(ctx, client.ObjectKeyFromObject(job))
	switch {
	case err != nil:
		return analysis.Answer{}, err
	case problem != "":
		return analysis.Answer{Judged: argov1.AnalysisPhaseInconclusive, Message: problem}, nil
	}
	now, elapsed := j.Clock.Now(), 0.0
	if under.StartedAt != nil {
		elapsed = max(now.Sub(under.StartedAt.Time).Seconds(), 0)
	}
	return analysis.Answer{Judged: argov1.AnalysisPhaseRunning, Resume: now.Add(time.Duration(math.Sqrt(2*elapsed) * float64(time.Second)))}, nil
}

// ended is what a Job has come to, or that it goes on.
func ended(job *batchv1.Job) (phase argov1.AnalysisPhase, message string) {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			return argov1.AnalysisPhaseSuccessful, ""
		case c.Type == batchv1.JobFailed:
			return argov1.AnalysisPhaseFailed, c.Message
		}
	}
	return argov1.AnalysisPhaseRunning, ""
}

// Ended is true of a Job that is over.
func Ended(job *batchv1.Job) bool {
	phase, _ := ended(job)
	return phase.Completed()
}

// hopeless are the reasons of a container that never starts.
var hopeless = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}

// stuck says which container of a Job never starts; empty: none is known.
func (j *Jobs) stuck(ctx context.Context, key client.ObjectKey) (string, error) {
	pods := &corev1.PodList{}
	if err := j.Live.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels{batchv1.JobNameLabel: key.Name}); err != nil {
		return "", fmt.Errorf("list the pods of Job %s.%s: %w", key.Name, key.Namespace, err)
	}
	for _, pod := range pods.Items {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && slices.Contains(hopeless, w.Reason) {
				return fmt.Sprintf("Pod %s, container %s has terminal error (%s): %s", pod.Name, c.Name, w.Reason, w.Message), nil
			}
		}
	}
	return "", nil
}

// Forget deletes the Jobs of measurements that are kept no longer.
func (j *Jobs) Forget(ctx context.Context, run *argov1.AnalysisRun, measurements []argov1.Measurement) error {
	var failed []error
	for _, m := range measurements {
		if name := JobOf(m); name != "" {
			failed = append(failed, j.delete(ctx, run, name))
		}
	}
	return errors.Join(failed...)
}

// Sweep deletes the Jobs of a run that go on.
func (j *Jobs) Sweep(ctx context.Context, run *argov1.AnalysisRun) error {
	jobs, err := j.Of(ctx, run)
	if err != nil {
		return err
	}
	var failed []error
	for i := range jobs {
		if goesOn(&jobs[i]) {
			failed = append(failed, j.delete(ctx, run, jobs[i].Name))
		}
	}
	return errors.Join(failed...)
}

// GoOn is true while a Job of a run goes on, as far as the cache knows.
func (j *Jobs) GoOn(ctx context.Context, run *argov1.AnalysisRun) (bool, error) {
	jobs, err := j.Of(ctx, run)
	return slices.ContainsFunc(jobs, func(job batchv1.Job) bool { return goesOn(&job) }), err
}

func goesOn(job *batchv1.Job) bool { return !Ended(job) && job.DeletionTimestamp == nil }

// Of are the Jobs of a run, as far as the cache has them.
func (j *Jobs) Of(ctx context.Context, run *argov1.AnalysisRun) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := j.Client.List(ctx, jobs, client.MatchingLabels{RunUIDLabel: string(run.UID)}); err != nil {
		return nil, fmt.Errorf("list the Jobs of AnalysisRun %s.%s: %w", run.Name, run.Namespace, err)
	}
	return jobs.Items, nil
}

// delete deletes a Job of a run after its pods. One that is gone is fine.
func (j *Jobs) delete(ctx context.Context, run *argov1.AnalysisRun, name string) error {
	job, err := j.find(ctx, run, name)
	if err == nil {
		err = j.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &job.UID})
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s.%s: %w", name, j.namespaceOf(run), err)
	}
	return nil
}

// Over is true where the Job of a measurement is over, or gone.
func (j *Jobs) Over(ctx context.Context, run *argov1.AnalysisRun, m argov1.Measurement) (bool, error) {
	job := &batchv1.Job{}
	err := j.Client.Get(ctx, client.ObjectKey{Namespace: j.namespaceOf(run), Name: JobOf(m)}, job)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get Job %s.%s: %w", JobOf(m), j.namespaceOf(run), err)
	default:
		return Ended(job), nil
	}
}
