package cluster

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	hashLabel          = "pod-template-hash"
)

// deployment is the state that the controller retains for one name between reconciliations.
type deployment struct {
	cluster   *Cluster
	key       types.NamespacedName
	draws     *sim.Stream
	scheduled bool

	uid               types.UID
	observed          int64
	template          map[string]any
	hash              string
	replicas          int // desired replicas at the last reconciliation
	counts            counts
	progressing       condition
	available         condition
	nextDeadlineCheck time.Time // when the next check of the deadline is scheduled
}

func (c *Cluster) deploymentWritten(e *store.Event) {
	d := c.deployments.get(e.Key, func() *deployment {
		return &deployment{cluster: c, key: e.Key, draws: c.stream("deployment", e.Key)}
	})
	if e.Type == store.Deleted {
		return // its ReplicaSets are deleted by the garbage collector
	}
	if e.Type == store.Added || e.New.Generation() != e.Old.Generation() {
		d.scheduleReconcile()
	}
	c.scaleTargetWritten(e)
}

// scheduleReconcile schedules a reconciliation, in most cases soon.
func (d *deployment) scheduleReconcile() {
	if d.scheduled {
		return
	}
	d.scheduled = true
	d.cluster.schedule(d.draws.Skewed(5*time.Millisecond, 1500*time.Millisecond), func() {
		d.scheduled = false
		d.reconcile()
	})
}

// reconcile reconciles the Deployment once.
func (d *deployment) reconcile() {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	if v.UID() != d.uid {
		*d = deployment{cluster: d.cluster, key: d.key, draws: d.draws, uid: v.UID()}
	}
	w := readSpec(v.Content())
	if !jsontree.Equal(w.template, d.template) {
		d.template, d.hash = w.template, hashOf(w.template)
	}
	if !v.Deleting() {
		d.cluster.adopt(v, w)
		d.reconcileSets(v, w)
	}
	d.observed = v.Generation()
	if !d.scheduled { // otherwise the next reconciliation reports the result
		d.writeStatus(w)
	}
}

// reconcileSets creates and scales ReplicaSets.
func (d *deployment) reconcileSets(v *store.Version, w deploymentSpec) {
	sets := d.cluster.setsOf(d.uid)
	if d.recordPause(w); w.paused {
		d.applyReplicas(w, sets)
		return
	}
	fresh := d.newestSet(v, w, sets)
	if fresh == nil {
		return
	}
	if d.applyReplicas(w, sets) {
		return
	}
	old := others(sets, fresh)
	switch {
	case !w.recreate:
		fresh.scale(w.nextNewSize(fresh.size(w), sizesOf(w, old)))
		for i, n := range w.nextOldSizes(fresh.size(w), sizesOf(w, old)) {
			old[i].scale(n)
		}
		fresh.scale(w.nextNewSize(fresh.size(w), sizesOf(w, old))) // the freed pods may be replaced at once
	default:
		for _, set := range old {
			set.scale(0)
		}
		if !slices.ContainsFunc(old, func(set *replicaSet) bool { return len(set.pods) > 0 }) {
			fresh.scale(w.replicas)
		}
	}
	d.replicas = w.replicas
	d.pruneHistory(w, old)
}

// applyReplicas applies a change of replicas since the last reconciliation, and reports whether there was one.
func (d *deployment) applyReplicas(w deploymentSpec, sets []*replicaSet) bool {
	var active []*replicaSet
	var sizes []int
	for _, set := range sets {
		if set.desired > 0 {
			active, sizes = append(active, set), append(sizes, set.desired)
		}
	}
	before := d.replicas
	d.replicas = w.replicas
	switch {
	case before == w.replicas || len(active) == 0 && !w.paused || len(active) > 1 && before == 0:
		return false
	case len(active) == 0:
		if len(sets) > 0 {
			sets[len(sets)-1].scale(w.replicas)
		}
	case len(active) == 1:
		active[0].scale(w.replicas)
	case w.recreate:
		return false
	default:
		for i, n := range w.proportionalSizes(sizes, before) {
			active[i].scale(n)
		}
	}
	d.scheduleReconcile() // the rollout continues from there
	return true
}

func (d *deployment) recordPause(w deploymentSpec) {
	now := d.cluster.world.Now()
	switch p := &d.progressing; {
	case w.deadline == 0 || p.reason == exceeded:
	case w.paused && p.reason != stopped:
		p.set(now, "Unknown", stopped)
	case !w.paused && p.reason == stopped:
		p.set(now, "Unknown", resumed)
	}
}

// newestSet returns the ReplicaSet of the current template, which is created if there is none.
func (d *deployment) newestSet(v *store.Version, w deploymentSpec, sets []*replicaSet) *replicaSet {
	now := d.cluster.world.Now()
	newest := 0
	for _, set := range sets {
		newest = max(newest, set.revision)
	}
	at := slices.IndexFunc(sets, func(set *replicaSet) bool { return set.hash == d.hash })
	if at < 0 {
		set := d.cluster.newSet(v, w, d.hash, newest+1)
		if set == nil {
			return nil
		}
		if w.deadline > 0 {
			d.progressing.set(now, "True", created)
		}
		d.annotateRevision(set.revision)
		return set
	}
	set := sets[at]
	revision := set.revision
	if revision < newest {
		revision = newest + 1
	}
	set.annotate(v, revision)
	if revision > newest {
		d.annotateRevision(revision)
	}
	if w.deadline > 0 && d.progressing.reason == "" {
		d.progressing.set(now, "True", found)
	}
	return set
}

// annotateRevision writes the number of the revision to the Deployment, as Kubernetes does.
func (d *deployment) annotateRevision(revision int) {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	obj := editable(v)
	metadata := object(obj.Object, "metadata")
	metadata["annotations"] = with(object(metadata, "annotations"), revisionAnnotation, strconv.Itoa(revision))
	d.cluster.checkWrite("the revision of Deployment "+d.key.Name, d.cluster.workloads.Update(background(), obj))
}

// pruneHistory deletes ReplicaSets beyond the history limit once a rollout is complete.
func (d *deployment) pruneHistory(w deploymentSpec, old []*replicaSet) {
	if d.progressing.reason != finished {
		return
	}
	var idle []*replicaSet
	for _, set := range old {
		if set.desired == 0 && len(set.pods) == 0 {
			idle = append(idle, set)
		}
	}
	slices.SortStableFunc(idle, func(a, b *replicaSet) int { return a.revision - b.revision })
	for _, set := range idle[:max(0, len(idle)-w.history)] {
		set.remove()
	}
}

// writeStatus writes the status if it changed.
func (d *deployment) writeStatus(w deploymentSpec) {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key) // the reconciliation itself may have written it
	if v == nil || v.UID() != d.uid {
		return
	}
	now, was := d.cluster.world.Now(), d.counts
	d.counts = d.countPods(w)
	d.progressing.proceed(now, w, d.counts, was)
	status, reason := "False", "MinimumReplicasUnavailable"
	if d.counts.available >= w.replicas-w.unavailable {
		status, reason = "True", "MinimumReplicasAvailable"
	}
	if d.available.status != status {
		d.available.set(now, status, reason)
	}
	d.scheduleDeadline(w)

	content := d.status()
	if jsontree.Equal(content, object(v.Content(), "status")) {
		return
	}
	obj := editable(v)
	obj.Object["status"] = content
	d.cluster.checkWrite("the status of Deployment "+d.key.Name, d.cluster.workloads.Status().Update(background(), obj))
}

func (d *deployment) countPods(w deploymentSpec) counts {
	var n counts
	wanted := 0
	for _, set := range d.cluster.setsOf(d.uid) {
		wanted += set.desired
		for _, p := range set.pods {
			if p.terminating {
				continue
			}
			n.total++
			if set.hash == d.hash {
				n.updated++
			}
			if p.ready {
				n.ready++
			}
			if p.available(w.minReady) {
				n.available++
			}
		}
	}
	n.unavailable = max(0, wanted-n.available)
	return n
}

// scheduleDeadline schedules a reconciliation for the time at which the deadline expires.
func (d *deployment) scheduleDeadline(w deploymentSpec) {
	if w.deadline == 0 || !d.progressing.counting() {
		return
	}
	due := d.progressing.updated.Add(w.deadline)
	if !d.nextDeadlineCheck.IsZero() && !d.nextDeadlineCheck.After(due) {
		return // the scheduled check schedules the next one
	}
	d.nextDeadlineCheck = due
	d.cluster.world.After(due.Sub(d.cluster.world.Now()), func() {
		if d.nextDeadlineCheck.Equal(due) {
			d.nextDeadlineCheck = time.Time{}
			d.scheduleReconcile()
		}
	})
}

// deadlineIsRunning reports whether a deadline is running, so that the status will change.
func (d *deployment) deadlineIsRunning() bool {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	return v != nil && v.UID() == d.uid && !v.Deleting() && d.progressing.counting() && !d.nextDeadlineCheck.IsZero()
}

// status returns the status as it is written: counts of zero are omitted, as by Kubernetes.
func (d *deployment) status() map[string]any {
	content := map[string]any{"observedGeneration": d.observed}
	for field, n := range map[string]int{
		"replicas": d.counts.total, "updatedReplicas": d.counts.updated, "readyReplicas": d.counts.ready,
		"availableReplicas": d.counts.available, "unavailableReplicas": d.counts.unavailable,
	} {
		if n > 0 {
			content[field] = int64(n)
		}
	}
	conditions := []any{d.available.content("Available")}
	if d.progressing.reason != "" {
		conditions = append(conditions, d.progressing.content("Progressing"))
	}
	content["conditions"] = conditions
	return content
}

func (c *condition) content(kind string) map[string]any {
	return map[string]any{
		"type": kind, "status": c.status, "reason": c.reason, "message": "Deployment: " + c.reason + ".",
		"lastUpdateTime": stamp(c.updated), "lastTransitionTime": stamp(c.transitions),
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// hashOf returns the hash of a template.
func hashOf(template map[string]any) string {
	content, err := json.Marshal(template)
	if err != nil {
		panic(fmt.Sprintf("a pod template that was stored has no JSON: %v", err))
	}
	sum := fnv.New32a()
	_, _ = sum.Write(content) // never fails
	return fmt.Sprintf("%08x", sum.Sum32())
}

func others(sets []*replicaSet, fresh *replicaSet) []*replicaSet {
	return slices.DeleteFunc(slices.Clone(sets), func(set *replicaSet) bool { return set == fresh })
}

func sizesOf(w deploymentSpec, sets []*replicaSet) []size {
	sizes := make([]size, len(sets))
	for i, set := range sets {
		sizes[i] = set.size(w)
	}
	return sizes
}
