package cluster

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

var (
	daemonSetKind = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	revisionKind  = schema.GroupKind{Group: "apps", Kind: "ControllerRevision"}
)

// daemonSet is the state that the controller of DaemonSets retains for one name between reconciliations. Each node has one pod.
// No node has labels, so that a DaemonSet with a node selector has no pods. Pods of another template are replaced one at a
// time: other strategies and minReadySeconds are not simulated.
type daemonSet struct {
	cluster   *Cluster
	key       types.NamespacedName
	draws     *sim.Stream
	scheduled bool
	uid       types.UID
}

func (c *Cluster) daemonSetWritten(e *store.Event) {
	d := c.daemonSets.get(e.Key, func() *daemonSet {
		return &daemonSet{cluster: c, key: e.Key, draws: c.stream("daemonset", e.Key)}
	})
	switch {
	case e.Type == store.Deleted:
		for _, set := range c.setsOf(e.New.UID()) {
			set.scale(0)
		}
	case e.Type == store.Added || e.New.Generation() != e.Old.Generation():
		d.scheduleReconcile()
	}
}

// scheduleReconcile schedules a reconciliation.
func (d *daemonSet) scheduleReconcile() {
	if d.scheduled {
		return
	}
	d.scheduled = true
	d.cluster.schedule(d.draws.Skewed(5*time.Millisecond, 1500*time.Millisecond), func() {
		d.scheduled = false
		d.reconcile()
	})
}

// reconcile reconciles the DaemonSet once.
func (d *daemonSet) reconcile() {
	v := d.cluster.world.Server.Peek(daemonSetKind, d.key)
	if v == nil || v.Deleting() {
		return
	}
	d.uid = v.UID()
	template := object(v.Content(), "spec", "template")
	current := d.currentSet(v, template)
	if current == nil {
		return
	}
	desired := nodes
	if len(object(template, "spec", "nodeSelector")) > 0 {
		desired = 0
	}
	d.replace(current, others(d.cluster.setsOf(d.uid), current), desired)
	d.writeStatus(v, current, desired)
}

// replace starts the pods of the current template and terminates the others. A ready pod is terminated only while all nodes
// have a ready pod; the next pod on its node starts once it is gone.
func (d *daemonSet) replace(current *replicaSet, old []*replicaSet, desired int) {
	all := tally(append(old, current)...)
	existing := 0
	for _, set := range old {
		n := tally(set)
		removed := n.live - n.ready
		if all.ready >= desired && n.ready > 0 {
			removed++
			all.ready--
		}
		if desired == 0 {
			removed = n.live
		}
		set.scale(n.live - removed)
		existing += n.total
	}
	current.scale(max(desired-existing, 0))
}

// podTally counts all pods, those that are not terminating, and those of them that are ready.
type podTally struct{ total, live, ready int }

func tally(sets ...*replicaSet) podTally {
	var n podTally
	for _, set := range sets {
		for _, p := range set.pods {
			n.total++
			if !p.terminating {
				n.live++
			}
			if p.ready {
				n.ready++
			}
		}
	}
	return n
}

// currentSet returns the pods of the current template. Each template has a ControllerRevision, which receives a new number when
// its template becomes current again.
func (d *daemonSet) currentSet(v *store.Version, template map[string]any) *replicaSet {
	c, hash, newest := d.cluster, hashOf(template), 0
	var set *replicaSet
	for _, known := range c.setsOf(d.uid) {
		newest = max(newest, known.revision)
		if known.hash == hash {
			set = known
		}
	}
	switch {
	case set == nil:
		return d.newRevision(v, template, hash, newest+1)
	case set.revision < newest:
		key := types.NamespacedName{Namespace: set.namespace, Name: set.name}
		if past := c.world.Server.Peek(revisionKind, key); past != nil {
			set.revision = newest + 1
			obj := editable(past)
			obj.Object["revision"] = int64(set.revision)
			c.checkWrite("ControllerRevision "+set.name, c.workloads.Update(background(), obj))
		}
	}
	return set
}

func (d *daemonSet) newRevision(v *store.Version, template map[string]any, hash string, revision int) *replicaSet {
	c, labels := d.cluster, with(object(template, "metadata", "labels"), "controller-revision-hash", hash)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": revisionKind.Kind,
		"metadata": map[string]any{
			"namespace": d.key.Namespace, "name": fmt.Sprintf("%s-%s-%s", d.key.Name, hash, shortHash(d.uid)), "labels": labels,
			"ownerReferences": []any{controlledBy(v)},
		},
		"data":     map[string]any{"spec": map[string]any{"template": with(template, "$patch", "replace")}},
		"revision": int64(revision),
	}}
	if !c.checkWrite("ControllerRevision "+obj.GetName(), c.workloads.Create(background(), obj)) {
		return nil
	}
	set := &replicaSet{
		cluster: c, namespace: d.key.Namespace, name: obj.GetName(), uid: obj.GetUID(), owner: d.uid, deployment: d.key.Name,
		hash: hash, version: c.versionOf(template), revision: revision, labels: labels,
		draws: c.stream("pods", types.NamespacedName{Namespace: d.key.Namespace, Name: obj.GetName()}),
	}
	set.setBehaviour(template)
	c.sets = append(c.sets, set)
	return set
}

// writeStatus writes the status if it changed. Pods of a DaemonSet that should have none are misscheduled until they are gone.
func (d *daemonSet) writeStatus(v *store.Version, current *replicaSet, desired int) {
	all, updated := tally(d.cluster.setsOf(d.uid)...), tally(current)
	status := map[string]any{
		"observedGeneration": v.Generation(), "desiredNumberScheduled": int64(desired), "numberMisscheduled": int64(all.total),
		"currentNumberScheduled": int64(0), "numberReady": int64(0),
	}
	if desired > 0 {
		status["numberMisscheduled"], status["currentNumberScheduled"] = int64(0), int64(min(all.total, desired))
		for field, n := range map[string]int{
			"updatedNumberScheduled": updated.live, "numberReady": all.ready, "numberAvailable": all.ready,
			"numberUnavailable": desired - all.ready,
		} {
			if n > 0 || field == "numberReady" {
				status[field] = int64(n)
			}
		}
	}
	if jsontree.Equal(status, object(v.Content(), "status")) {
		return
	}
	obj := editable(v)
	obj.Object["status"] = status
	d.cluster.checkWrite("the status of DaemonSet "+d.key.Name, d.cluster.workloads.Status().Update(background(), obj))
}
