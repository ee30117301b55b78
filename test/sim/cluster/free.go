package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim/store"
)

// A ReplicaSet that no Deployment created is standalone: its object contains the desired number of pods, its status the actual
// one, and each of its pods is an object.

// addStandaloneSet adds a ReplicaSet that another actor created.
func (c *Cluster) addStandaloneSet(e *store.Event) {
	if e.Type != store.Added || e.Actor == deploymentController {
		return
	}
	template := object(e.New.Content(), "spec", "template")
	set := &replicaSet{
		cluster: c, namespace: e.Key.Namespace, name: e.Key.Name, uid: e.New.UID(), standalone: true,
		version: c.versionOf(template), labels: object(template, "metadata", "labels"), draws: c.stream("pods", e.Key),
	}
	if owner := metav1.GetControllerOfNoCopy(e.New.Meta()); owner != nil {
		set.owner, set.deployment = owner.UID, owner.Name
	}
	set.setBehaviour(template)
	set.lastMinReady = set.minReady(e.New)
	c.sets = append(c.sets, set)
	set.scheduleReconcile()
}

// scheduleReconcile schedules a reconciliation of a free ReplicaSet.
func (r *replicaSet) scheduleReconcile() {
	if !r.standalone || r.scheduled {
		return
	}
	r.scheduled = true
	r.cluster.schedule(r.draws.Skewed(5*time.Millisecond, time.Second), func() {
		r.scheduled = false
		r.reconcile()
	})
}

// reconcile reconciles the ReplicaSet once.
func (r *replicaSet) reconcile() {
	v := r.stored()
	if v == nil || v.Deleting() {
		return
	}
	spec := object(v.Content(), "spec")
	r.scale(number(spec, "replicas", 1))
	if least := r.minReady(v); least != r.lastMinReady {
		r.lastMinReady = least
		r.scheduleAvailable() // minReadySeconds was changed
	}
	status := map[string]any{"observedGeneration": v.Generation(), "replicas": int64(0)}
	for _, p := range r.pods {
		if p.terminating {
			continue
		}
		add(status, "replicas")
		add(status, "fullyLabeledReplicas")
		if p.ready {
			add(status, "readyReplicas")
		}
		if p.available(r.minReady(v)) {
			add(status, "availableReplicas")
		}
	}
	if jsontree.Equal(status, object(v.Content(), "status")) {
		return
	}
	obj := editable(v)
	obj.Object["status"] = status
	r.cluster.checkWrite("the status of ReplicaSet "+r.name, r.cluster.workloads.Status().Update(background(), obj))
}

func add(counts map[string]any, field string) {
	n, _ := counts[field].(int64)
	counts[field] = n + 1
}

func (r *replicaSet) minReady(v *store.Version) time.Duration {
	return time.Duration(number(object(v.Content(), "spec"), "minReadySeconds", 0)) * time.Second
}

// scheduleAvailable schedules a reconciliation for the time at which a pod becomes available.
func (r *replicaSet) scheduleAvailable() {
	if !r.standalone {
		return
	}
	if v := r.stored(); v != nil && r.minReady(v) > 0 {
		r.cluster.schedule(r.minReady(v), r.scheduleReconcile)
	}
}

// updateObject updates the object of a pod. Pods of a Deployment have none; see schedulePodObject.
func (p *pod) updateObject() {
	r, c := p.set, p.set.cluster
	if !r.standalone {
		return
	}
	key := types.NamespacedName{Namespace: r.namespace, Name: p.name}
	switch is := p.state(); {
	case p.terminating && p.objectState != "":
		p.objectState = ""
		if v := c.world.Server.Peek(podKind, key); v != nil {
			c.checkWrite("pod "+p.name, c.workloads.Delete(background(), editable(v)))
		}
	case p.terminating || is == p.objectState:
	case p.objectState == "":
		p.create()
		p.objectState = is
	default:
		p.objectState = is
		if v := c.world.Server.Peek(podKind, key); v != nil {
			obj := editable(v)
			obj.Object["status"] = p.status()
			c.checkWrite("the status of pod "+p.name, c.workloads.Status().Update(background(), obj))
		}
	}
}

// state returns a text that changes whenever the object of a pod has to be updated.
func (p *pod) state() string {
	if p.ready {
		return "ready"
	}
	return "waits " + p.waitingReason
}

func (p *pod) create() {
	r, c := p.set, p.set.cluster
	owner := r.stored()
	if owner == nil {
		return
	}
	template := object(owner.Content(), "spec", "template")
	metadata := map[string]any{
		"namespace": r.namespace, "name": p.name, "labels": object(template, "metadata", "labels"), "ownerReferences": []any{controlledBy(owner)},
	}
	if annotations := object(template, "metadata", "annotations"); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": object(template, "spec"),
	}}
	c.checkWrite("pod "+p.name, c.workloads.Create(background(), obj))
}

// status returns the status of a pod as its node reports it.
func (p *pod) status() map[string]any {
	is := "False"
	if p.ready {
		is = "True"
	}
	status := map[string]any{"phase": "Running", "conditions": []any{map[string]any{
		"type": "Ready", "status": is, "lastTransitionTime": stamp(p.set.cluster.world.Now()),
	}}}
	if p.waitingReason != "" {
		status["containerStatuses"] = []any{map[string]any{
			"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": int64(p.deaths),
			"state": map[string]any{"waiting": map[string]any{"reason": p.waitingReason}},
		}}
	}
	return status
}

// podWritten terminates a pod whose object another actor deleted.
func (c *Cluster) podWritten(e *store.Event) {
	p := c.pods[e.Key.Name]
	if p == nil || !p.set.standalone || e.Type != store.Deleted || p.terminating {
		return
	}
	p.objectState = ""
	p.terminate()
	p.set.scheduleReconcile()
}

// PodCounts are the actual pods of a ReplicaSet.
type PodCounts struct {
	// Desired is the desired number. Live pods are not terminating, Ready pods are ready for Kubernetes, and Answering pods
	// actually answer, including terminating ones.
	Desired, Live, Ready, Answering int
}

// PodsOf returns the pods of a ReplicaSet.
func (c *Cluster) PodsOf(namespace, name string) PodCounts {
	var s PodCounts
	for _, set := range c.sets {
		if set.namespace != namespace || set.name != name {
			continue
		}
		s.Desired = set.desired
		for _, p := range set.pods {
			if p.answers {
				s.Answering++
			}
			if !p.terminating {
				s.Live++
				if p.ready {
					s.Ready++
				}
			}
		}
	}
	return s
}
