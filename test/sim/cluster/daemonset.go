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

// daemonSet is what the controller of DaemonSets keeps of one name between its looks. There is a pod on each node; no node
// has labels, so that one with a node selector runs nowhere. Pods of another template are replaced one after the other: a
// DaemonSet whose strategy asks for more, and one with minReadySeconds, are not simulated.
type daemonSet struct {
	cluster *Cluster
	key     types.NamespacedName
	draws   *sim.Stream
	waking  bool
	uid     types.UID
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
		d.wake()
	}
}

// wake plans a look.
func (d *daemonSet) wake() {
	if d.waking {
		return
	}
	d.waking = true
	d.cluster.plan(d.draws.Skewed(5*time.Millisecond, 1500*time.Millisecond), func() {
		d.waking = false
		d.look()
	})
}

// look is one pass of the controller.
func (d *daemonSet) look() {
	v := d.cluster.world.Server.Peek(daemonSetKind, d.key)
	if v == nil || v.Deleting() {
		return
	}
	d.uid = v.UID()
	template := object(v.Content(), "spec", "template")
	fresh := d.fresh(v, template)
	if fresh == nil {
		return
	}
	wanted := nodes
	if len(object(template, "spec", "nodeSelector")) > 0 {
		wanted = 0
	}
	d.replace(fresh, others(d.cluster.setsOf(d.uid), fresh), wanted)
	d.report(v, fresh, wanted)
}

// replace brings the pods of the current template up and those of others down. One that is ready goes only while all nodes
// have one that is; on its node the next one starts when it is gone.
func (d *daemonSet) replace(fresh *replicaSet, old []*replicaSet, wanted int) {
	all := tally(append(old, fresh)...)
	there := 0
	for _, set := range old {
		n := tally(set)
		goes := n.live - n.ready
		if all.ready >= wanted && n.ready > 0 {
			goes++
			all.ready--
		}
		if wanted == 0 {
			goes = n.live
		}
		set.scale(n.live - goes)
		there += n.total
	}
	fresh.scale(max(wanted-there, 0))
}

// tallied counts pods: all, those that are not terminating, and those of them that are ready.
type tallied struct{ total, live, ready int }

func tally(sets ...*replicaSet) tallied {
	var n tallied
	for _, set := range sets {
		for _, p := range set.pods {
			n.total++
			if !p.leaving {
				n.live++
			}
			if p.ready {
				n.ready++
			}
		}
	}
	return n
}

// fresh are the pods of the template as it is now. Each template is a ControllerRevision, which is numbered anew when it is
// the current one again.
func (d *daemonSet) fresh(v *store.Version, template map[string]any) *replicaSet {
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
		return d.begin(v, template, hash, newest+1)
	case set.revision < newest:
		key := types.NamespacedName{Namespace: set.namespace, Name: set.name}
		if past := c.world.Server.Peek(revisionKind, key); past != nil {
			set.revision = newest + 1
			obj := written(past)
			obj.Object["revision"] = int64(set.revision)
			c.wrote("ControllerRevision "+set.name, c.workloads.Update(background(), obj))
		}
	}
	return set
}

func (d *daemonSet) begin(v *store.Version, template map[string]any, hash string, revision int) *replicaSet {
	c, labels := d.cluster, with(object(template, "metadata", "labels"), "controller-revision-hash", hash)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": revisionKind.Kind,
		"metadata": map[string]any{
			"namespace": d.key.Namespace, "name": fmt.Sprintf("%s-%s-%s", d.key.Name, hash, tag(d.uid)), "labels": labels,
			"ownerReferences": []any{controlledBy(v)},
		},
		"data":     map[string]any{"spec": map[string]any{"template": with(template, "$patch", "replace")}},
		"revision": int64(revision),
	}}
	if !c.wrote("ControllerRevision "+obj.GetName(), c.workloads.Create(background(), obj)) {
		return nil
	}
	set := &replicaSet{
		cluster: c, namespace: d.key.Namespace, name: obj.GetName(), uid: obj.GetUID(), owner: d.uid, deployment: d.key.Name,
		hash: hash, version: c.versionOf(template), revision: revision, labels: labels,
		draws: c.stream("pods", types.NamespacedName{Namespace: d.key.Namespace, Name: obj.GetName()}),
	}
	set.behave(template)
	c.sets = append(c.sets, set)
	return set
}

// report writes the status, if it says something new. Pods that run where there shall be none are misscheduled until they
// are gone.
func (d *daemonSet) report(v *store.Version, fresh *replicaSet, wanted int) {
	all, updated := tally(d.cluster.setsOf(d.uid)...), tally(fresh)
	status := map[string]any{
		"observedGeneration": v.Generation(), "desiredNumberScheduled": int64(wanted), "numberMisscheduled": int64(all.total),
		"currentNumberScheduled": int64(0), "numberReady": int64(0),
	}
	if wanted > 0 {
		status["numberMisscheduled"], status["currentNumberScheduled"] = int64(0), int64(min(all.total, wanted))
		for field, n := range map[string]int{
			"updatedNumberScheduled": updated.live, "numberReady": all.ready, "numberAvailable": all.ready,
			"numberUnavailable": wanted - all.ready,
		} {
			if n > 0 || field == "numberReady" {
				status[field] = int64(n)
			}
		}
	}
	if jsontree.Equal(status, object(v.Content(), "status")) {
		return
	}
	obj := written(v)
	obj.Object["status"] = status
	d.cluster.wrote("the status of DaemonSet "+d.key.Name, d.cluster.workloads.Status().Update(background(), obj))
}
