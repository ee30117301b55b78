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

// The label and the annotations of the Jobs of runs. Their pods have the label too.
const (
	// RunUIDLabel is the UID of the run.
	RunUIDLabel = "analysisrun.argoproj.io/uid"
	// RunNameAnnotation, RunNamespaceAnnotation and MetricNameAnnotation identify the run and the metric of a Job.
	RunNameAnnotation      = "analysisrun.argoproj.io/name"
	RunNamespaceAnnotation = "analysisrun.argoproj.io/namespace"
	MetricNameAnnotation   = "analysisrun.argoproj.io/metric-name"
)

// The keys of the metadata in which a measurement records its Job.
const (
	jobNameKey      = "job-name"
	jobNamespaceKey = "job-namespace"
)

// maxJobName is the maximum length of the value of a label: Kubernetes labels the pods of a Job with its name.
const maxJobName = 63

// Jobs creates, checks and deletes the Jobs of measurements.
type Jobs struct {
	// Client reads Jobs from a cache, and writes them. Live reads Jobs and their pods from the API server.
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	// Namespace of all Jobs; empty: each Job is in the namespace of its run.
	Namespace string
	// Elsewhere is true if the Jobs run in another cluster. A run cannot be the owner of an object there.
	Elsewhere bool
}

// measure creates a Job, checks it, or deletes it.
func (j *Jobs) measure(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, q analysis.Question) (analysis.Answer, error) {
	if q.Under == nil {
		return j.begin(ctx, run, m, q.Number)
	}
	if q.Terminate {
		_ = j.delete(ctx, run, JobOf(*q.Under)) // Sweep deletes it if this fails, and is repeated until it succeeds
		return analysis.Answer{Judged: argov1.AnalysisPhaseInconclusive}, nil
	}
	return j.resume(ctx, run, *q.Under)
}

// JobOf returns the name of the Job of a measurement; empty: it has none.
func JobOf(m argov1.Measurement) string { return m.Metadata[jobNameKey] }

// namespaceOf returns the namespace of the Jobs of a run. It does not use the namespace in the status, because a user
// may have written that to direct Serin to the Jobs of another namespace.
func (j *Jobs) namespaceOf(run *argov1.AnalysisRun) string { return cmp.Or(j.Namespace, run.Namespace) }

// find returns a Job of a run. A Job of another run with this name counts as not found.
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

// begin creates the Job, or finds the one that was created before a crash.
func (j *Jobs) begin(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, number int) (analysis.Answer, error) {
	job := j.job(run, m, number)
	if err := j.Client.Create(ctx, job); err != nil {
		existing := &batchv1.Job{} // also if the answer to its creation was lost: otherwise a second Job would run beside it
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

// job returns the Job of a measurement.
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

// with returns a copy of a map with additional entries. more contains keys and values alternately.
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

// jobName returns a name that consists of the run, the metric and the number. The metric is truncated if the name would
// be too long.
func jobName(run, metric string, number int) string {
	if room := maxJobName - len(fmt.Sprintf("%s..%d", run, number)); len(metric) > room {
		metric = metric[:max(room, 0)]
	}
	return fmt.Sprintf("%s.%s.%d", run, metric, number)
}

// resume checks a Job. The interval until the next check grows with the square root of the age of the Job.
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

// ended returns the phase of a Job, and the message of a failed one.
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

// Ended reports whether a Job is complete or has failed.
func Ended(job *batchv1.Job) bool {
	phase, _ := ended(job)
	return phase.Completed()
}

// hopeless are the reasons for which a container waits although it will never start.
var hopeless = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}

// stuck returns a message about a container of a Job that will never start; empty: none is known.
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

// Forget deletes the Jobs of measurements that the status of the run no longer contains.
func (j *Jobs) Forget(ctx context.Context, run *argov1.AnalysisRun, measurements []argov1.Measurement) error {
	var failed []error
	for _, m := range measurements {
		if name := JobOf(m); name != "" {
			failed = append(failed, j.delete(ctx, run, name))
		}
	}
	return errors.Join(failed...)
}

// Sweep deletes the active Jobs of a run.
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

// GoOn reports whether a Job of a run is active, according to the cache.
func (j *Jobs) GoOn(ctx context.Context, run *argov1.AnalysisRun) (bool, error) {
	jobs, err := j.Of(ctx, run)
	return slices.ContainsFunc(jobs, func(job batchv1.Job) bool { return goesOn(&job) }), err
}

func goesOn(job *batchv1.Job) bool { return !Ended(job) && job.DeletionTimestamp == nil }

// Of returns the Jobs of a run, according to the cache.
func (j *Jobs) Of(ctx context.Context, run *argov1.AnalysisRun) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := j.Client.List(ctx, jobs, client.MatchingLabels{RunUIDLabel: string(run.UID)}); err != nil {
		return nil, fmt.Errorf("list the Jobs of AnalysisRun %s.%s: %w", run.Name, run.Namespace, err)
	}
	return jobs.Items, nil
}

// delete deletes a Job of a run after its pods. It succeeds if the Job does not exist.
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

// Over reports whether the Job of a measurement has ended, or does not exist.
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
