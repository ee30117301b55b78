package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim/store"
)

// Work is what becomes of a Job. Without anything it is done at once.
type Work struct {
	// Takes is how long its pod runs.
	Takes time.Duration
	// Fails is true of one whose pod ends with an error, Hangs of one whose pod never ends, and Stuck of one whose pod never
	// starts, because its image is not there.
	Fails, Hangs, Stuck bool
}

// jobWritten takes up a Job that someone made. Its controller goes on with it unless it is deleted.
func (c *Cluster) jobWritten(e *store.Event) {
	if e.Type != store.Added {
		return
	}
	j := &job{cluster: c, key: e.Key, uid: e.New.UID()}
	if c.o.Work != nil {
		j.work = c.o.Work(e.New)
	}
	j.deadline = time.Duration(number(object(e.New.Content(), "spec"), "activeDeadlineSeconds", 0)) * time.Second
	c.plan(c.stream("job", e.Key).Skewed(10*time.Millisecond, time.Second), j.begin)
}

// job is a Job and what becomes of it.
type job struct {
	cluster  *Cluster
	key      types.NamespacedName
	uid      types.UID
	work     Work
	deadline time.Duration // zero: it may go on indefinitely
}

// stored is the Job as it is, nil when it is gone, or goes.
func (j *job) stored() *store.Version {
	v := j.cluster.world.Server.Peek(jobKind, j.key)
	if v == nil || v.UID() != j.uid || v.Deleting() {
		return nil
	}
	return v
}

func (j *job) begin() {
	if j.stored() == nil {
		return
	}
	j.report(map[string]any{"active": int64(1), "startTime": j.now()})
	c, endless := j.cluster, j.work.Hangs || j.work.Stuck
	if j.work.Stuck {
		c.plan(5*time.Second, j.stick)
	}
	if late := j.deadline > 0 && (endless || j.work.Takes > j.deadline); late {
		c.plan(j.deadline, func() { j.fail("DeadlineExceeded", "Job was active longer than specified deadline") })
		return
	}
	if !endless {
		c.plan(j.work.Takes, j.end)
	}
}

func (j *job) end() {
	if j.work.Fails {
		j.fail("BackoffLimitExceeded", "Job has reached the specified backoff limit")
		return
	}
	j.over("SuccessCriteriaMet", "Complete", "CompletionsReached", "Reached expected number of succeeded pods", map[string]any{
		"startTime": j.now(), "succeeded": int64(1), "completionTime": j.now(),
	})
}

func (j *job) fail(reason, message string) {
	j.over("FailureTarget", "Failed", reason, message, map[string]any{"startTime": j.now(), "failed": int64(1)})
}

// over says first what the Job will have come to, and that it has once its pod is gone.
func (j *job) over(first, last, reason, message string, status map[string]any) {
	condition := func(of string) any {
		return map[string]any{"type": of, "status": "True", "reason": reason, "message": message, "lastTransitionTime": j.now()}
	}
	j.report(map[string]any{"startTime": j.now(), "active": int64(1), "conditions": []any{condition(first)}})
	status["conditions"] = []any{condition(first), condition(last)}
	j.cluster.plan(time.Second, func() { j.report(status) })
}

func (j *job) now() string { return j.cluster.world.Now().UTC().Format(time.RFC3339) }

func (j *job) report(status map[string]any) {
	v := j.stored()
	if v == nil {
		return
	}
	obj := written(v)
	if old := object(v.Content(), "status"); old["startTime"] != nil {
		status["startTime"] = old["startTime"]
	}
	obj.Object["status"] = status
	j.cluster.wrote("the status of Job "+j.key.Name, j.cluster.workloads.Status().Update(background(), obj))
}

// stick lets the pod of a Job be an object: why it does not start can be read there.
func (j *job) stick() {
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
	if !c.wrote("pod "+name, c.workloads.Create(background(), obj)) {
		return
	}
	var statuses []any
	for _, container := range objects(spec, "containers") {
		statuses = append(statuses, map[string]any{
			"name": text(container, "name"), "image": text(container, "image"), "imageID": "", "ready": false,
			"restartCount": int64(0), "state": map[string]any{"waiting": map[string]any{"reason": imagePull}},
		})
	}
	obj.Object["status"] = map[string]any{"phase": "Pending", "containerStatuses": statuses}
	c.wrote("the status of pod "+name, c.workloads.Status().Update(background(), obj))
}

// jobNameLabel is on the pods of a Job.
const jobNameLabel = "batch.kubernetes.io/job-name"
