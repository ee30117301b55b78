package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim/store"
)

// JobOutcome is the outcome of a Job. The zero value succeeds immediately.
type JobOutcome struct {
	// Duration is how long its pod runs.
	Duration time.Duration
	// Fails means that its pod ends with an error, Hangs that its pod never ends, and Stuck that its pod never starts, because
	// its image does not exist.
	Fails, Hangs, Stuck bool
}

// jobWritten starts a Job that another actor created. It runs unless it is deleted.
func (c *Cluster) jobWritten(e *store.Event) {
	if e.Type != store.Added {
		return
	}
	j := &job{cluster: c, key: e.Key, uid: e.New.UID()}
	if c.options.JobOutcome != nil {
		j.outcome = c.options.JobOutcome(e.New)
	}
	j.deadline = time.Duration(number(object(e.New.Content(), "spec"), "activeDeadlineSeconds", 0)) * time.Second
	c.schedule(c.stream("job", e.Key).Skewed(10*time.Millisecond, time.Second), j.start)
}

// job is a Job and its outcome.
type job struct {
	cluster  *Cluster
	key      types.NamespacedName
	uid      types.UID
	outcome  JobOutcome
	deadline time.Duration // zero: none
}

// stored returns the current Job, or nil if it was deleted or is being deleted.
func (j *job) stored() *store.Version {
	v := j.cluster.world.Server.Peek(jobKind, j.key)
	if v == nil || v.UID() != j.uid || v.Deleting() {
		return nil
	}
	return v
}

func (j *job) start() {
	if j.stored() == nil {
		return
	}
	j.report(map[string]any{"active": int64(1), "startTime": j.now()})
	c, endless := j.cluster, j.outcome.Hangs || j.outcome.Stuck
	if j.outcome.Stuck {
		c.schedule(5*time.Second, j.createStuckPod)
	}
	if late := j.deadline > 0 && (endless || j.outcome.Duration > j.deadline); late {
		c.schedule(j.deadline, func() { j.fail("DeadlineExceeded", "Job was active longer than specified deadline") })
		return
	}
	if !endless {
		c.schedule(j.outcome.Duration, j.complete)
	}
}

func (j *job) complete() {
	if j.outcome.Fails {
		j.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
		return
	}
	j.reportEnd("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods", map[string]any{
		"startTime": j.now(), "succeeded": int64(1), "completionTime": j.now(),
	})
}

func (j *job) fail(reason, message string) {
	j.reportEnd("FailureTarget", "Failed", reason, message, map[string]any{"startTime": j.now(), "failed": int64(1)})
}

// reportEnd reports the outcome of the Job first, and its end once its pod is gone.
func (j *job) reportEnd(first, last, reason, message string, status map[string]any) {
	condition := func(of string) any {
		return map[string]any{"type": of, "status": "True", "reason": reason, "message": message, "lastTransitionTime": j.now()}
	}
	j.report(map[string]any{"startTime": j.now(), "active": int64(1), "conditions": []any{condition(first)}})
	status["conditions"] = []any{condition(first), condition(last)}
	j.cluster.schedule(time.Second, func() { j.report(status) })
}

func (j *job) now() string { return j.cluster.world.Now().UTC().Format(time.RFC3339) }

func (j *job) report(status map[string]any) {
	v := j.stored()
	if v == nil {
		return
	}
	obj := editable(v)
	if old := object(v.Content(), "status"); old["startTime"] != nil {
		status["startTime"] = old["startTime"]
	}
	obj.Object["status"] = status
	j.cluster.checkWrite("the status of Job "+j.key.Name, j.cluster.workloads.Status().Update(background(), obj))
}

// createStuckPod creates the object of a pod that does not start, so that its reason can be read.
func (j *job) createStuckPod() {
	v := j.stored()
	if v == nil {
		return
	}
	c, name := j.cluster, j.key.Name+"-pod"
	spec := object(v.Content(), "spec", "template", "spec")
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": j.key.Namespace, "name": name, "labels": map[string]any{"job-name": j.key.Name, jobNameLabel: j.key.Name},
			"ownerReferences": []any{controlledBy(v)},
		},
		"spec": spec,
	}}
	if !c.checkWrite("pod "+name, c.workloads.Create(background(), obj)) {
		return
	}
	var statuses []any
	for _, container := range objects(spec, "containers") {
		statuses = append(statuses, map[string]any{
			"name": text(container, "name"), "image": text(container, "image"), "imageID": "", "ready": false,
			"restartCount": int64(0), "state": map[string]any{"waiting": map[string]any{"reason": imagePullBackOff}},
		})
	}
	obj.Object["status"] = map[string]any{"phase": "Pending", "containerStatuses": statuses}
	c.checkWrite("the status of pod "+name, c.workloads.Status().Update(background(), obj))
}

// jobNameLabel is a label of the pods of a Job.
const jobNameLabel = "batch.kubernetes.io/job-name"
