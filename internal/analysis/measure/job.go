package measure

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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

// The label and the annotations of the Jobs of runs. The pods of the Jobs have the label too.
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
	// Client reads Jobs from a cache, and writes them. APIReader reads Jobs and their pods from the API server.
	Client    client.Client
	APIReader client.Reader
	Clock     clock.PassiveClock
	// Namespace of all Jobs; empty: each Job is in the namespace of its run.
	Namespace string
	// RemoteCluster is true if the Jobs run in another cluster. A run cannot be the owner of an object there.
	RemoteCluster bool
}

// continueMeasurement checks the Job of a measurement in progress, or deletes it.
func (j *Jobs) continueMeasurement(ctx context.Context, run *argov1.AnalysisRun, q analysis.MeasurementRequest) (analysis.MeasurementResult, error) {
	if q.Terminate {
		_ = j.deleteJob(ctx, run, JobName(*q.InProgress)) // if this fails, ActiveJobsDeleted is repeated until it succeeds
		return analysis.MeasurementResult{Phase: argov1.AnalysisPhaseInconclusive}, nil
	}
	return j.checkJob(ctx, run, *q.InProgress)
}

// JobName returns the name of the Job of a measurement; empty: it has none.
func JobName(m argov1.Measurement) string { return m.Metadata[jobNameKey] }

// jobNamespace returns the namespace of the Jobs of a run. It does not use the namespace in the status, because a user
// may have written that to direct Serin to the Jobs of another namespace.
func (j *Jobs) jobNamespace(run *argov1.AnalysisRun) string {
	return cmp.Or(j.Namespace, run.Namespace)
}

// findJob returns a Job of a run. A Job of another run with this name counts as not found.
func (j *Jobs) findJob(ctx context.Context, run *argov1.AnalysisRun, name string) (*batchv1.Job, error) {
	job, key := &batchv1.Job{}, client.ObjectKey{Namespace: j.jobNamespace(run), Name: name}
	err := j.Client.Get(ctx, key, job)
	if apierrors.IsNotFound(err) {
		err = j.APIReader.Get(ctx, key, job)
	}
	if err == nil && job.Labels[RunUIDLabel] != string(run.UID) {
		err = apierrors.NewNotFound(batchv1.Resource("jobs"), name)
	}
	return job, err
}

// startJob creates the Job, or finds the one that was created before a crash.
func (j *Jobs) startJob(ctx context.Context, run *argov1.AnalysisRun, m argov1.Metric, number int) (analysis.MeasurementResult, error) {
	job := j.newJob(run, m, number)
	if err := j.Client.Create(ctx, job); err != nil {
		existing := &batchv1.Job{} // also if the response to its creation was lost: otherwise, a second Job would run
		switch getErr := j.APIReader.Get(ctx, client.ObjectKeyFromObject(job), existing); {
		case getErr != nil && apierrors.IsAlreadyExists(err):
			return analysis.MeasurementResult{}, fmt.Errorf("get Job %s.%s: %w", job.Name, job.Namespace, getErr)
		case getErr != nil:
			return analysis.MeasurementResult{}, fmt.Errorf("create Job %s.%s: %w", job.Name, job.Namespace, err)
		case existing.Labels[RunUIDLabel] != string(run.UID):
			return analysis.MeasurementResult{}, fmt.Errorf("Job %s.%s exists and does not belong to this AnalysisRun: delete it", job.Name, job.Namespace) //nolint:staticcheck // a kind
		case existing.Annotations[MetricNameAnnotation] != m.Name: // its result would be that of the other metric
			return analysis.MeasurementResult{}, fmt.Errorf("Job %s.%s exists and belongs to another metric: delete it", job.Name, job.Namespace) //nolint:staticcheck // a kind
		}
	}
	return analysis.MeasurementResult{
		Phase: argov1.AnalysisPhaseRunning, ResumeAt: j.Clock.Now(),
		Metadata: map[string]string{jobNameKey: job.Name, jobNamespaceKey: job.Namespace},
	}, nil
}

// newJob returns the Job of a measurement.
func (j *Jobs) newJob(run *argov1.AnalysisRun, m argov1.Metric, number int) *batchv1.Job {
	namespace := j.jobNamespace(run)
	metadata := m.Provider.Job.Metadata
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: newJobName(string(run.UID), m.Name, number),
			Labels: addEntries(metadata.Labels, RunUIDLabel, string(run.UID)),
			Annotations: addEntries(metadata.Annotations,
				RunNameAnnotation, run.Name, RunNamespaceAnnotation, run.Namespace, MetricNameAnnotation, m.Name),
		},
		Spec: *m.Provider.Job.Spec.DeepCopy(),
	}
	job.Spec.Template.Labels = addEntries(job.Spec.Template.Labels, RunUIDLabel, string(run.UID))
	if !j.RemoteCluster && namespace == run.Namespace {
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, argov1.SchemeGroupVersion.WithKind(argov1.AnalysisRunKind))}
	}
	return job
}

// addEntries returns a copy of a map with additional entries. more contains keys and values alternately.
func addEntries(old map[string]string, added ...string) map[string]string {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]string{}
	}
	for pair := range slices.Chunk(added, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// newJobName returns a name that consists of the run, the metric and the number. If the name would be too long, a hash replaces
// the end of the metric: metrics of one run that differ only there have different Jobs.
func newJobName(run, metric string, number int) string {
	if maxLength := maxJobName - len(fmt.Sprintf("%s..%d", run, number)); len(metric) > maxLength {
		sum := sha256.Sum256([]byte(metric))
		hash := hex.EncodeToString(sum[:4])
		// A label of a domain name ends with a letter or digit; "x.-hash" would contain one that does not.
		beginning := strings.TrimRight(metric[:max(maxLength-len(hash)-1, 0)], ".-")
		metric = strings.TrimLeft(beginning+"-"+hash, "-")
	}
	return fmt.Sprintf("%s.%s.%d", run, metric, number)
}

// checkJob checks a Job. A Job that cannot be read remains in progress: the end of its measurement would start another Job while
// the first is running.
func (j *Jobs) checkJob(ctx context.Context, run *argov1.AnalysisRun, inProgress argov1.Measurement) (analysis.MeasurementResult, error) {
	job, err := j.findJob(ctx, run, JobName(inProgress))
	switch {
	case apierrors.IsNotFound(err):
		return analysis.MeasurementResult{}, fmt.Errorf("get Job %s.%s: %w", JobName(inProgress), j.jobNamespace(run), err)
	case err != nil:
		return j.stillRunning(inProgress, fmt.Sprintf("get Job %s.%s: %v", JobName(inProgress), j.jobNamespace(run), err)), nil
	}
	if phase, message := jobPhase(job); phase.Completed() {
		return analysis.MeasurementResult{Phase: phase, Message: message}, nil
	}
	problem, err := j.findStuckContainer(ctx, client.ObjectKeyFromObject(job))
	switch {
	case err != nil:
		return j.stillRunning(inProgress, err.Error()), nil
	case problem != "":
		return analysis.MeasurementResult{Phase: argov1.AnalysisPhaseInconclusive, Message: problem}, nil
	}
	return j.stillRunning(inProgress, ""), nil
}

// stillRunning returns the result of a measurement whose Job is in progress. The interval until the next check grows with the
// square root of the age of the Job.
func (j *Jobs) stillRunning(inProgress argov1.Measurement, message string) analysis.MeasurementResult {
	now, elapsed := j.Clock.Now(), 0.0
	if inProgress.StartedAt != nil {
		elapsed = max(now.Sub(inProgress.StartedAt.Time).Seconds(), 0)
	}
	return analysis.MeasurementResult{
		Phase: argov1.AnalysisPhaseRunning, Message: message, ResumeAt: now.Add(time.Duration(math.Sqrt(2*elapsed) * float64(time.Second))),
	}
}

// jobPhase returns the phase of a Job, and the message of a failed one.
func jobPhase(job *batchv1.Job) (phase argov1.AnalysisPhase, message string) {
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

// IsEnded reports whether a Job is complete or has failed.
func IsEnded(job *batchv1.Job) bool {
	phase, _ := jobPhase(job)
	return phase.Completed()
}

// terminalWaitingReasons are the reasons for which a container waits although it will never start.
var terminalWaitingReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}

// findStuckContainer returns a message about a container of a Job that will never start; empty: none is known.
func (j *Jobs) findStuckContainer(ctx context.Context, key client.ObjectKey) (string, error) {
	pods := &corev1.PodList{}
	if err := j.APIReader.List(ctx, pods, client.InNamespace(key.Namespace), client.MatchingLabels{batchv1.JobNameLabel: key.Name}); err != nil {
		return "", fmt.Errorf("list the pods of Job %s.%s: %w", key.Name, key.Namespace, err)
	}
	for _, pod := range pods.Items {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && slices.Contains(terminalWaitingReasons, w.Reason) {
				return fmt.Sprintf("Pod %s, container %s has terminal error (%s): %s", pod.Name, c.Name, w.Reason, w.Message), nil
			}
		}
	}
	return "", nil
}

// DeleteJobsOf deletes the Jobs of measurements that the status of the run no longer contains.
func (j *Jobs) DeleteJobsOf(ctx context.Context, run *argov1.AnalysisRun, measurements []argov1.Measurement) error {
	var errs []error
	for _, m := range measurements {
		if name := JobName(m); name != "" {
			errs = append(errs, j.deleteJob(ctx, run, name))
		}
	}
	return errors.Join(errs...)
}

// DeleteActiveJobs deletes the active Jobs of a run.
func (j *Jobs) DeleteActiveJobs(ctx context.Context, run *argov1.AnalysisRun) error {
	jobs, err := j.ListJobs(ctx, run)
	if err != nil {
		return err
	}
	var errs []error
	for i := range jobs {
		if isActive(&jobs[i]) {
			errs = append(errs, j.deleteJob(ctx, run, jobs[i].Name))
		}
	}
	return errors.Join(errs...)
}

// HasActiveJobs reports whether a Job of a run is active, according to the cache.
func (j *Jobs) HasActiveJobs(ctx context.Context, run *argov1.AnalysisRun) (bool, error) {
	jobs, err := j.ListJobs(ctx, run)
	return slices.ContainsFunc(jobs, func(job batchv1.Job) bool { return isActive(&job) }), err
}

func isActive(job *batchv1.Job) bool { return !IsEnded(job) && job.DeletionTimestamp == nil }

// ListJobs returns the Jobs of a run, according to the cache.
func (j *Jobs) ListJobs(ctx context.Context, run *argov1.AnalysisRun) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := j.Client.List(ctx, jobs, client.MatchingLabels{RunUIDLabel: string(run.UID)}); err != nil {
		return nil, fmt.Errorf("list the Jobs of AnalysisRun %s.%s: %w", run.Name, run.Namespace, err)
	}
	return jobs.Items, nil
}

// deleteJob deletes a Job of a run after its pods. It succeeds if the Job does not exist.
func (j *Jobs) deleteJob(ctx context.Context, run *argov1.AnalysisRun, name string) error {
	job, err := j.findJob(ctx, run, name)
	if err == nil {
		// A cache that lists its objects again may never contain the version that a deletion in the foreground creates.
		// Reads must not wait for it; a Job that still seems to exist is deleted again.
		err = j.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &job.UID},
			client.DisableReadYourWritesConsistency)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete Job %s.%s: %w", name, j.jobNamespace(run), err)
	}
	return nil
}

// IsJobEnded reports whether the Job of a measurement has ended, or does not exist.
func (j *Jobs) IsJobEnded(ctx context.Context, run *argov1.AnalysisRun, m argov1.Measurement) (bool, error) {
	job := &batchv1.Job{}
	err := j.Client.Get(ctx, client.ObjectKey{Namespace: j.jobNamespace(run), Name: JobName(m)}, job)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get Job %s.%s: %w", JobName(m), j.jobNamespace(run), err)
	default:
		return IsEnded(job), nil
	}
}
