package cluster

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/test/sim"
)

// pod is one pod. ready is its state for Kubernetes, answers whether it actually answers requests.
type pod struct {
	set     *replicaSet
	name    string
	address string
	node    int

	ready, answers    bool
	terminating, gone bool
	lost              bool      // lost with its node
	pending           bool      // no node has room for it
	readySince        time.Time // zero: it was never ready
	deaths            int
	waitingReason     string // the waiting reason of its container
	objectState       string // the state that its object reports, in a standalone ReplicaSet; empty: it has no object
}

// nodes is the number of nodes. Pods are distributed over them round robin.
const nodes = 3

// Waiting reasons of containers.
const (
	imagePullBackOff = "ImagePullBackOff"
	crashLoopBackOff = "CrashLoopBackOff"
)

// startPod creates a further pod.
func (r *replicaSet) startPod() {
	c := r.cluster
	c.podCount++
	p := &pod{
		set: r, name: fmt.Sprintf("%s-%05d", r.name, c.podCount), node: c.podCount % nodes,
		address: fmt.Sprintf("10.%d.%d.%d", 1+c.podCount/65536, c.podCount/256%256, c.podCount%256),
	}
	r.pods = append(r.pods, p)
	c.pods[p.name] = p
	p.updateObject()
	if c.full && c.freeSlots <= 0 {
		p.pending = true
		c.pendingPods = append(c.pendingPods, p)
		return
	}
	c.freeSlots--
	p.startContainer()
}

// startContainer starts a pod that was assigned to a node.
func (p *pod) startContainer() {
	r, c := p.set, p.set.cluster
	wait, slow := r.behaviour.Start(), r.draws.Skewed(30*time.Second, 5*time.Minute)
	if c.world.Faults.Inject(SlowStarts) {
		wait += slow
	}
	if r.behaviour.NeverReady {
		c.world.After(min(wait, 20*time.Second), p.becomeStuck)
		return
	}
	c.world.After(wait, p.becomeReady)
}

// settled reports whether the state of a pod will not change without a request.
func (p *pod) settled() bool {
	if p.set.behaviour.NeverReady {
		return !p.terminating && p.waitingReason != ""
	}
	return !p.terminating && p.ready && p.answers
}

// recover makes a waiting pod ready soon, and replaces a lost one.
func (p *pod) recover() {
	c := p.set.cluster
	switch {
	case p.terminating || p.pending || p.set.behaviour.NeverReady || p.ready && p.answers:
	case p.lost:
		c.schedule(p.set.draws.Between(time.Second, 30*time.Second), p.replace)
	default:
		c.world.After(p.set.behaviour.Start(), p.becomeReady)
	}
}

func (p *pod) available(minReady time.Duration) bool {
	return p.ready && !p.set.cluster.world.Now().Before(p.readySince.Add(minReady))
}

func (p *pod) becomeReady() {
	if p.terminating || p.ready || p.lost {
		return
	}
	c := p.set.cluster
	p.ready, p.answers, p.waitingReason = true, true, ""
	p.readySince = c.world.Now()
	p.set.schedulePodObject()
	c.podsChanged(p.set)
	if d := c.ownerOf(p.set); d != nil {
		d.scheduleAvailable()
	}
	p.set.scheduleAvailable()
	life := p.set.draws.Between(time.Second, 5*time.Minute)
	switch b := p.set.behaviour; {
	case c.quiesced:
	case b.Crash > 0 && (b.Flaps || p.deaths == 0):
		c.world.After(b.Crash, p.crash)
	case c.world.Faults.Inject(PodCrashes):
		c.world.After(life, p.crash)
	}
}

// scheduleAvailable schedules a reconciliation for the time at which a pod becomes available.
func (d *deployment) scheduleAvailable() {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	if least := readSpec(v.Content()).minReady; least > 0 {
		d.cluster.schedule(least, d.scheduleReconcile)
	}
}

// becomeStuck records that a pod cannot start.
func (p *pod) becomeStuck() {
	if p.terminating {
		return
	}
	p.waitingReason = imagePullBackOff
	p.set.schedulePodObject()
}

// crash ends the container of a pod, which is restarted with an increasing backoff.
func (p *pod) crash() {
	c := p.set.cluster
	if c.quiesced || p.terminating || !p.ready || !p.answers {
		return
	}
	p.recordFailure("crash")
	p.ready, p.waitingReason = false, crashLoopBackOff
	p.set.schedulePodObject()
	c.podsChanged(p.set)
	backoff := min(10*time.Second<<min(p.deaths, 5), 5*time.Minute)
	c.world.After(backoff+p.set.behaviour.Start(), p.becomeReady)
}

// recordFailure records that the pod no longer answers, although it was not terminated.
func (p *pod) recordFailure(why string) {
	c, r := p.set.cluster, p.set
	p.answers = false
	p.deaths++
	key := types.NamespacedName{Namespace: r.namespace, Name: r.deployment}
	c.died[key] = c.world.Now()
	c.world.Trace("  pod %s fails: %s", p.name, why)
	c.world.Publish(PodDied{Namespace: r.namespace, Deployment: r.deployment, Pod: p.name, Version: r.version, Why: why})
}

// terminate terminates a pod. A ready pod answers for a while, and still receives requests from clients that do not know it
// yet.
func (p *pod) terminate() {
	if p.terminating {
		return
	}
	c := p.set.cluster
	wait := time.Duration(0)
	if p.answers {
		wait = p.set.draws.Between(5*time.Second, 30*time.Second)
	}
	p.terminating, p.ready, p.waitingReason = true, false, ""
	p.set.schedulePodObject()
	c.podsChanged(p.set)
	c.schedule(wait, p.remove)
}

func (p *pod) remove() {
	if p.gone {
		return
	}
	p.gone, p.answers = true, false
	p.set.pods = slices.DeleteFunc(p.set.pods, func(o *pod) bool { return o == p })
	c := p.set.cluster
	delete(c.pods, p.name)
	if p.pending {
		c.pendingPods = slices.DeleteFunc(c.pendingPods, func(o *pod) bool { return o == p })
	} else {
		c.freeSlots++
		c.schedulePending()
	}
	c.wakeOwner(p.set)
	p.set.scheduleReconcile()
	c.publishFor(p.set, (*service).scheduleCleanup)
	c.notifyWatchers(p.set.namespace)
}

// scheduleNoRoom schedules periods in which other workloads occupy the cluster.
func (c *Cluster) scheduleNoRoom() {
	t := c.world.Faults
	if !t.Has(NoRoom) {
		return
	}
	s := t.Stream(NoRoom)
	c.world.After(s.Between(time.Minute, 10*time.Minute), func() {
		c.fills++
		room, duration := s.Int(0, 2), s.Between(2*time.Minute, 15*time.Minute)
		if !c.quiesced && t.Has(NoRoom) && t.Admit(fmt.Sprintf("%s#%d", NoRoom, c.fills)) {
			c.LimitRoom(room)
			c.world.After(duration, c.RestoreRoom)
		}
		if !c.quiesced {
			c.scheduleNoRoom()
		}
	})
}

// LimitRoom leaves room for the given number of further pods until RestoreRoom is called.
func (c *Cluster) LimitRoom(room int) {
	c.world.Trace("the cluster has room for %d more pods", room)
	c.full, c.freeSlots = true, room
	c.schedulePending()
}

// RestoreRoom ends a shortage of room.
func (c *Cluster) RestoreRoom() {
	if c.full {
		c.world.Trace("the cluster has room again")
	}
	c.full = false
	c.schedulePending()
}

// schedulePending starts the pods that wait for room.
func (c *Cluster) schedulePending() {
	for len(c.pendingPods) > 0 && (!c.full || c.freeSlots > 0) {
		p := c.pendingPods[0]
		c.pendingPods = c.pendingPods[1:]
		p.pending = false
		c.freeSlots--
		p.startContainer()
	}
}

// DetectionTime returns how long Kubernetes may consider a pod ready in this run although its node is lost.
func DetectionTime(w *sim.World) time.Duration {
	if !w.Faults.Has(NodeLosses) {
		return 0
	}
	return LossDetection
}

// scheduleNodeLosses schedules the losses of nodes.
func (c *Cluster) scheduleNodeLosses() {
	t := c.world.Faults
	if !t.Has(NodeLosses) {
		return
	}
	s := t.Stream(NodeLosses)
	c.world.After(s.Between(time.Minute, 15*time.Minute), func() {
		c.losses++
		node, noticed, replaced := s.Int(0, nodes-1), s.Between(10*time.Second, LossDetection), s.Between(30*time.Second, 5*time.Minute)
		if !c.quiesced && t.Has(NodeLosses) && t.Admit(fmt.Sprintf("%s#%d", NodeLosses, c.losses)) {
			c.loseNode(node, noticed, noticed+replaced)
		}
		if !c.quiesced {
			c.scheduleNodeLosses()
		}
	})
}

// loseNode makes all pods of a node fail. Kubernetes considers them ready until it detects the loss, and replaces them later.
func (c *Cluster) loseNode(node int, noticed, replaced time.Duration) {
	c.world.Trace("node %d is lost", node)
	for _, set := range c.sets {
		for _, p := range set.pods {
			if p.node == node && p.answers && !p.terminating {
				p.recordFailure("node")
				p.lost = true
				c.world.After(noticed, p.becomeUnready)
				c.world.After(replaced, p.replace)
			}
		}
	}
	for _, set := range c.sets {
		c.notifyWatchers(set.namespace)
	}
}

// becomeUnready records that Kubernetes has detected the loss of the pod's node.
func (p *pod) becomeUnready() {
	if !p.terminating {
		p.ready = false
		p.updateObject()
		p.set.cluster.podsChanged(p.set)
	}
}

// replace terminates a lost pod and starts another one.
func (p *pod) replace() {
	if !p.terminating {
		p.terminate()
		p.set.scale(p.set.desired)
	}
}

// schedulePodObject schedules the creation of an object for the oldest pod that cannot start, so that its reason can be read.
// Other pods have the same reason.
func (r *replicaSet) schedulePodObject() {
	if r.standalone {
		for _, p := range r.pods {
			p.updateObject()
		}
		return
	}
	if r.showing {
		return
	}
	stuck := r.firstStuckPod()
	if stuck == r.shown && (stuck == nil || stuck.waitingReason == r.shownTrouble) {
		return
	}
	r.showing = true
	r.cluster.schedule(r.draws.Skewed(10*time.Millisecond, time.Second), func() {
		r.showing = false
		r.updatePodObject(r.firstStuckPod())
	})
}

func (r *replicaSet) firstStuckPod() *pod {
	at := slices.IndexFunc(r.pods, func(p *pod) bool { return p.waitingReason != "" && !p.terminating })
	if at < 0 {
		return nil
	}
	return r.pods[at]
}

func (r *replicaSet) updatePodObject(p *pod) {
	c := r.cluster
	if old := r.shown; old != nil && (old != p || old.waitingReason != r.shownTrouble) {
		key := types.NamespacedName{Namespace: r.namespace, Name: old.name}
		if v := c.world.Server.Peek(podKind, key); v != nil {
			c.checkWrite("pod "+old.name, c.workloads.Delete(background(), editable(v)))
		}
		r.shown = nil
	}
	owner := r.stored()
	if p == nil || p == r.shown || owner == nil {
		return
	}
	spec := object(owner.Content(), "spec", "template", "spec")
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"namespace": r.namespace, "name": p.name, "labels": r.labels, "ownerReferences": []any{controlledBy(owner)},
		},
		"spec": spec,
	}}
	if !c.checkWrite("pod "+p.name, c.workloads.Create(background(), obj)) {
		return
	}
	container := map[string]any{}
	if containers := objects(spec, "containers"); len(containers) > 0 {
		container = containers[0]
	}
	obj.Object["status"] = map[string]any{
		"phase": "Pending",
		"containerStatuses": []any{map[string]any{
			"name": text(container, "name"), "image": text(container, "image"), "imageID": "", "ready": false,
			"restartCount": int64(p.deaths), "state": map[string]any{"waiting": map[string]any{"reason": p.waitingReason}},
		}},
	}
	c.checkWrite("the status of pod "+p.name, c.workloads.Status().Update(background(), obj))
	r.shown, r.shownTrouble = p, p.waitingReason
}

// podsSelected returns the pods of a namespace that a selector matches, in the order of their creation.
func (c *Cluster) podsSelected(namespace string, selector map[string]any) iter.Seq[*pod] {
	return func(yield func(*pod) bool) {
		for _, set := range c.sets {
			if set.namespace != namespace || !matches(selector, set.labels) {
				continue
			}
			for _, p := range set.pods {
				if !yield(p) {
					return
				}
			}
		}
	}
}
