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

// deployment is what the controller keeps of one name between its looks.
type deployment struct {
	cluster *Cluster
	key     types.NamespacedName
	draws   *sim.Stream
	waking  bool

	uid         types.UID
	observed    int64
	template    map[string]any
	hash        string
	replicas    int // asked for at the last look
	counts      counts
	progressing condition
	available   condition
	alarm       time.Time // when a look for the deadline is planned
}

func (c *Cluster) deploymentWritten(e *store.Event) {
	d := c.deployments.get(e.Key, func() *deployment {
		return &deployment{cluster: c, key: e.Key, draws: c.stream("deployment", e.Key)}
	})
	if e.Type == store.Deleted {
		return // its ReplicaSets wait for the collector of garbage
	}
	if e.Type == store.Added || e.New.Generation() != e.Old.Generation() {
		d.wake()
	}
	c.scaleTargetWritten(e)
}

// wake plans a look. The controller is quick, but not always.
func (d *deployment) wake() {
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
func (d *deployment) look() {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	if v.UID() != d.uid {
		*d = deployment{cluster: d.cluster, key: d.key, draws: d.draws, uid: v.UID()}
	}
	w := wishOf(v.Content())
	if !jsontree.Equal(w.template, d.template) {
		d.template, d.hash = w.template, hashOf(w.template)
	}
	if !v.Deleting() {
		d.cluster.adopt(v, w)
		d.act(v, w)
	}
	d.observed = v.Generation()
	if !d.waking { // else what was done here is seen, and told, in a moment
		d.report(w)
	}
}

// act makes and scales ReplicaSets.
func (d *deployment) act(v *store.Version, w wish) {
	sets := d.cluster.setsOf(d.uid)
	if d.pause(w); w.paused {
		d.rescale(w, sets)
		return
	}
	fresh := d.fresh(v, w, sets)
	if fresh == nil {
		return
	}
	if d.rescale(w, sets) {
		return
	}
	old := others(sets, fresh)
	switch {
	case !w.recreate:
		fresh.scale(w.grown(fresh.size(w), sizesOf(w, old)))
		for i, n := range w.shrunk(fresh.size(w), sizesOf(w, old)) {
			old[i].scale(n)
		}
		fresh.scale(w.grown(fresh.size(w), sizesOf(w, old))) // into the room that this made
	default:
		for _, set := range old {
			set.scale(0)
		}
		if !slices.ContainsFunc(old, func(set *replicaSet) bool { return len(set.pods) > 0 }) {
			fresh.scale(w.replicas)
		}
	}
	d.replicas = w.replicas
	d.forget(w, old)
}

// rescale follows a change of replicas that came since the last look, without a rollout: true when there was one.
func (d *deployment) rescale(w wish, sets []*replicaSet) bool {
	var active []*replicaSet
	var sizes []int
	for _, set := range sets {
		if set.wanted > 0 {
			active, sizes = append(active, set), append(sizes, set.wanted)
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
		for i, n := range w.resized(sizes, before) {
			active[i].scale(n)
		}
	}
	d.wake() // a rollout goes on from there
	return true
}

func (d *deployment) pause(w wish) {
	now := d.cluster.world.Now()
	switch p := &d.progressing; {
	case w.deadline == 0 || p.reason == exceeded:
	case w.paused && p.reason != stopped:
		p.set(now, "Unknown", stopped)
	case !w.paused && p.reason == stopped:
		p.set(now, "Unknown", resumed)
	}
}

// fresh is the ReplicaSet of the template as it is now, made when there is none.
func (d *deployment) fresh(v *store.Version, w wish, sets []*replicaSet) *replicaSet {
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
		d.mark(set.revision)
		return set
	}
	set := sets[at]
	revision := set.revision
	if revision < newest {
		revision = newest + 1
	}
	set.annotate(v, revision)
	if revision > newest {
		d.mark(revision)
	}
	if w.deadline > 0 && d.progressing.reason == "" {
		d.progressing.set(now, "True", found)
	}
	return set
}

// mark writes the number of the revision to the Deployment, as the real controller does.
func (d *deployment) mark(revision int) {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	obj := written(v)
	metadata := object(obj.Object, "metadata")
	metadata["annotations"] = with(object(metadata, "annotations"), revisionAnnotation, strconv.Itoa(revision))
	d.cluster.wrote("the revision of Deployment "+d.key.Name, d.cluster.workloads.Update(background(), obj))
}

// forget deletes ReplicaSets beyond the limit of the run, once a rollout is complete.
func (d *deployment) forget(w wish, old []*replicaSet) {
	if d.progressing.reason != finished {
		return
	}
	var idle []*replicaSet
	for _, set := range old {
		if set.wanted == 0 && len(set.pods) == 0 {
			idle = append(idle, set)
		}
	}
	slices.SortStableFunc(idle, func(a, b *replicaSet) int { return a.revision - b.revision })
	for _, set := range idle[:max(0, len(idle)-w.history)] {
		set.remove()
	}
}

// report writes the status, if it says something new.
func (d *deployment) report(w wish) {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key) // the look itself may have written it
	if v == nil || v.UID() != d.uid {
		return
	}
	now, was := d.cluster.world.Now(), d.counts
	d.counts = d.counted(w)
	d.progressing.proceed(now, w, d.counts, was)
	status, reason := "False", "MinimumReplicasUnavailable"
	if d.counts.available >= w.replicas-w.unavailable {
		status, reason = "True", "MinimumReplicasAvailable"
	}
	if d.available.status != status {
		d.available.set(now, status, reason)
	}
	d.awaitDeadline(w)

	content := d.status()
	if jsontree.Equal(content, object(v.Content(), "status")) {
		return
	}
	obj := written(v)
	obj.Object["status"] = content
	d.cluster.wrote("the status of Deployment "+d.key.Name, d.cluster.workloads.Status().Update(background(), obj))
}

func (d *deployment) counted(w wish) counts {
	var n counts
	wanted := 0
	for _, set := range d.cluster.setsOf(d.uid) {
		wanted += set.wanted
		for _, p := range set.pods {
			if p.leaving {
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

// awaitDeadline plans a look for the moment at which the deadline is over, if nothing happens before.
func (d *deployment) awaitDeadline(w wish) {
	if w.deadline == 0 || !d.progressing.counting() {
		return
	}
	due := d.progressing.updated.Add(w.deadline)
	if !d.alarm.IsZero() && !d.alarm.After(due) {
		return // that look will plan the next
	}
	d.alarm = due
	d.cluster.world.After(due.Sub(d.cluster.world.Now()), func() {
		if d.alarm.Equal(due) {
			d.alarm = time.Time{}
			d.wake()
		}
	})
}

// due is true while a deadline runs: the status will change, one way or the other.
func (d *deployment) due() bool {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	return v != nil && v.UID() == d.uid && !v.Deleting() && d.progressing.counting() && !d.alarm.IsZero()
}

// status is the status as it is written: counts that are zero are left out, as the real API does.
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

// hashOf is the identity of a template.
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

func sizesOf(w wish, sets []*replicaSet) []size {
	sizes := make([]size, len(sets))
	for i, set := range sets {
		sizes[i] = set.size(w)
	}
	return sizes
}
