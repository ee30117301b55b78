package cluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim/store"
)

// A ReplicaSet that no Deployment made is free: its object says how many pods there shall be, its status how many there
// are, and each of its pods is an object.

// freeSet takes up a ReplicaSet that someone else made.
func (c *Cluster) freeSet(e *store.Event) {
	if e.Type != store.Added || e.Actor == deploymentController {
		return
	}
	template := object(e.New.Content(), "spec", "template")
	set := &replicaSet{
		cluster: c, namespace: e.Key.Namespace, name: e.Key.Name, uid: e.New.UID(), free: true,
		version: c.versionOf(template), labels: object(template, "metadata", "labels"), draws: c.stream("pods", e.Key),
	}
	if owner := metav1.GetControllerOfNoCopy(e.New.Meta()); owner != nil {
		set.owner, set.deployment = owner.UID, owner.Name
	}
	set.behave(template)
	set.least = set.minReady(e.New)
	c.sets = append(c.sets, set)
	set.wake()
}

// wake schedules a reconciliation of a free ReplicaSet.
func (r *replicaSet) wake() {
	if !r.free || r.waking {
		return
	}
	r.waking = true
	r.cluster.plan(r.draws.Skewed(5*time.Millisecond, time.Second), func() {
		r.waking = false
		r.look()
	})
}

// look is one pass of the controller of ReplicaSets.
func (r *replicaSet) look() {
	v := r.stored()
	if v == nil || v.Deleting() {
		return
	}
	spec := object(v.Content(), "spec")
	r.scale(number(spec, "replicas", 1))
	if least := r.minReady(v); least != r.least {
		r.least = least
		r.awaitAvailable() // someone edited for how long a pod must be ready
	}
	status := map[string]any{"observedGeneration": v.Generation(), "replicas": int64(0)}
	for _, p := range r.pods {
		if p.leaving {
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
	obj := written(v)
	obj.Object["status"] = status
	r.cluster.wrote("the status of ReplicaSet "+r.name, r.cluster.workloads.Status().Update(background(), obj))
}

func add(counts map[string]any, field string) {
	n, _ := counts[field].(int64)
	counts[field] = n + 1
}

func (r *replicaSet) minReady(v *store.Version) time.Duration {
	return time.Duration(number(object(v.Content(), "spec"), "minReadySeconds", 0)) * time.Second
}

// awaitAvailable reconciles again when a pod has been ready for long enough.
func (r *replicaSet) awaitAvailable() {
	if !r.free {
		return
	}
	if v := r.stored(); v != nil && r.minReady(v) > 0 {
		r.cluster.plan(r.minReady(v), r.wake)
	}
}

// mirror lets the object of a pod say what is true about it. Those of a Deployment have none; see show.
func (p *pod) mirror() {
	r, c := p.set, p.set.cluster
	if !r.free {
		return
	}
	key := types.NamespacedName{Namespace: r.namespace, Name: p.name}
	switch is := p.state(); {
	case p.leaving && p.stored != "":
		p.stored = ""
		if v := c.world.Server.Peek(podKind, key); v != nil {
			c.wrote("pod "+p.name, c.workloads.Delete(background(), written(v)))
		}
	case p.leaving || is == p.stored:
	case p.stored == "":
		p.create()
		p.stored = is
	default:
		p.stored = is
		if v := c.world.Server.Peek(podKind, key); v != nil {
			obj := written(v)
			obj.Object["status"] = p.status()
			c.wrote("the status of pod "+p.name, c.workloads.Status().Update(background(), obj))
		}
	}
}

// state reports apart what the object of a pod may say.
func (p *pod) state() string {
	if p.ready {
		return "ready"
	}
	return "waits " + p.trouble
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
	c.wrote("pod "+p.name, c.workloads.Create(background(), obj))
}

// status is what a node reports of a pod.
func (p *pod) status() map[string]any {
	is := "False"
	if p.ready {
		is = "True"
	}
	status := map[string]any{"phase": "Running", "conditions": []any{map[string]any{
		"type": "Ready", "status": is, "lastTransitionTime": stamp(p.set.cluster.world.Now()),
	}}}
	if p.trouble != "" {
		status["containerStatuses"] = []any{map[string]any{
			"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": int64(p.deaths),
			"state": map[string]any{"waiting": map[string]any{"reason": p.trouble}},
		}}
	}
	return status
}

// podWritten follows those who take pods away.
func (c *Cluster) podWritten(e *store.Event) {
	p := c.pods[e.Key.Name]
	if p == nil || !p.set.free || e.Type != store.Deleted || p.leaving {
		return
	}
	p.stored = ""
	p.end()
	p.set.wake()
}

// Set is what is true of the pods of a ReplicaSet.
type Set struct {
	// Wanted is how many there shall be. Live are those that are not terminating, Ready of them are ready for Kubernetes,
	// and Answering answer in truth, those included that end.
	Wanted, Live, Ready, Answering int
}

// PodsOf are the pods of a ReplicaSet.
func (c *Cluster) PodsOf(namespace, name string) Set {
	var s Set
	for _, set := range c.sets {
		if set.namespace != namespace || set.name != name {
			continue
		}
		s.Wanted = set.wanted
		for _, p := range set.pods {
			if p.answers {
				s.Answering++
			}
			if !p.leaving {
				s.Live++
				if p.ready {
					s.Ready++
				}
			}
		}
	}
	return s
}
