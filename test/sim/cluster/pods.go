package cluster

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// pod is one pod. It counts as ready for Kubernetes when it is ready; that it answers requests is the truth.
type pod struct {
	set     *replicaSet
	name    string
	address string
	node    int

	ready, answers bool
	leaving, gone  bool
	lost           bool      // with its node
	pending        bool      // no node has room for it
	readySince     time.Time // zero: it never was
	deaths         int
	trouble        string // why it waits, in the words of Kubernetes
	stored         string // what its object says, where all pods of the ReplicaSet have one; empty: it has none
}

// nodes of the cluster. Pods are spread over them in turn.
const nodes = 3

// Waiting reasons of containers.
const (
	imagePull = "ImagePullBackOff"
	crashLoop = "CrashLoopBackOff"
)

// start makes one pod more.
func (r *replicaSet) start() {
	c := r.cluster
	c.made++
	p := &pod{
		set: r, name: fmt.Sprintf("%s-%05d", r.name, c.made), node: c.made % nodes,
		address: fmt.Sprintf("10.%d.%d.%d", 1+c.made/65536, c.made/256%256, c.made%256),
	}
	r.pods = append(r.pods, p)
	c.pods[p.name] = p
	p.mirror()
	if c.full && c.room <= 0 {
		p.pending = true
		c.queue = append(c.queue, p)
		return
	}
	c.room--
	p.begin()
}

// begin starts a pod that has a node.
func (p *pod) begin() {
	r, c := p.set, p.set.cluster
	wait, slow := r.behaviour.Start(), r.draws.Skewed(30*time.Second, 5*time.Minute)
	if c.world.Faults.Inject(SlowStarts) {
		wait += slow
	}
	if r.behaviour.Never {
		c.world.After(min(wait, 20*time.Second), p.stick)
		return
	}
	c.world.After(wait, p.becomeReady)
}

// settled is true of a pod whose state will not change without a request.
func (p *pod) settled() bool {
	if p.set.behaviour.Never {
		return !p.leaving && p.trouble != ""
	}
	return !p.leaving && p.ready && p.answers
}

// mend makes a waiting pod ready soon, and replaces a lost one.
func (p *pod) mend() {
	c := p.set.cluster
	switch {
	case p.leaving || p.pending || p.set.behaviour.Never || p.ready && p.answers:
	case p.lost:
		c.plan(p.set.draws.Between(time.Second, 30*time.Second), p.replace)
	default:
		c.world.After(p.set.behaviour.Start(), p.becomeReady)
	}
}

func (p *pod) available(minReady time.Duration) bool {
	return p.ready && !p.set.cluster.world.Now().Before(p.readySince.Add(minReady))
}

func (p *pod) becomeReady() {
	if p.leaving || p.ready || p.lost {
		return
	}
	c := p.set.cluster
	p.ready, p.answers, p.trouble = true, true, ""
	p.readySince = c.world.Now()
	p.set.show()
	c.podsChanged(p.set)
	if d := c.ownerOf(p.set); d != nil {
		d.awaitAvailable()
	}
	p.set.awaitAvailable()
	life := p.set.draws.Between(time.Second, 5*time.Minute)
	switch b := p.set.behaviour; {
	case c.quiet:
	case b.Crash > 0 && (b.Flaps || p.deaths == 0):
		c.world.After(b.Crash, p.crash)
	case c.world.Faults.Inject(PodCrashes):
		c.world.After(life, p.crash)
	}
}

// awaitAvailable reconciles again when a pod has been ready for long enough.
func (d *deployment) awaitAvailable() {
	v := d.cluster.world.Server.Peek(deploymentKind, d.key)
	if v == nil {
		return
	}
	if least := wishOf(v.Content()).minReady; least > 0 {
		d.cluster.plan(least, d.wake)
	}
}

// stick is the end of a pod that cannot start.
func (p *pod) stick() {
	if p.leaving {
		return
	}
	p.trouble = imagePull
	p.set.show()
}

// crash is the death of a container. The pod stays, and its container is started again, later each time.
func (p *pod) crash() {
	c := p.set.cluster
	if c.quiet || p.leaving || !p.ready || !p.answers {
		return
	}
	p.die("crash")
	p.ready, p.trouble = false, crashLoop
	p.set.show()
	c.podsChanged(p.set)
	backoff := min(10*time.Second<<min(p.deaths, 5), 5*time.Minute)
	c.world.After(backoff+p.set.behaviour.Start(), p.becomeReady)
}

// die reports that the pod no longer answers, although it was not terminated.
func (p *pod) die(why string) {
	c, r := p.set.cluster, p.set
	p.answers = false
	p.deaths++
	key := types.NamespacedName{Namespace: r.namespace, Name: r.deployment}
	c.died[key] = c.world.Now()
	c.world.Trace("  pod %s fails: %s", p.name, why)
	c.world.Publish(PodDied{Namespace: r.namespace, Deployment: r.deployment, Pod: p.name, Version: r.version, Why: why})
}

// end terminates a pod. One that is ready answers for a while, and others send it
// requests meanwhile, because they do not know yet.
func (p *pod) end() {
	if p.leaving {
		return
	}
	c := p.set.cluster
	wait := time.Duration(0)
	if p.answers {
		wait = p.set.draws.Between(5*time.Second, 30*time.Second)
	}
	p.leaving, p.ready, p.trouble = true, false, ""
	p.set.show()
	c.podsChanged(p.set)
	c.plan(wait, p.vanish)
}

func (p *pod) vanish() {
	if p.gone {
		return
	}
	p.gone, p.answers = true, false
	p.set.pods = slices.DeleteFunc(p.set.pods, func(o *pod) bool { return o == p })
	c := p.set.cluster
	delete(c.pods, p.name)
	if p.pending {
		c.queue = slices.DeleteFunc(c.queue, func(o *pod) bool { return o == p })
	} else {
		c.room++
		c.place()
	}
	c.wakeOwner(p.set)
	p.set.wake()
	c.publishFor(p.set, (*service).tidy)
	c.lookedAt(p.set.namespace)
}

// fillUp plans that other workloads take the room of the cluster for a while, again and again.
func (c *Cluster) fillUp() {
	t := c.world.Faults
	if !t.Has(NoRoom) {
		return
	}
	s := t.Stream(NoRoom)
	c.world.After(s.Between(time.Minute, 10*time.Minute), func() {
		c.fills++
		room, lasts := s.Int(0, 2), s.Between(2*time.Minute, 15*time.Minute)
		if !c.quiet && t.Has(NoRoom) && t.TakesPlace(fmt.Sprintf("%s#%d", NoRoom, c.fills)) {
			c.Fill(room)
			c.world.After(lasts, c.Empty)
		}
		if !c.quiet {
			c.fillUp()
		}
	})
}

// Fill leaves room for so many more pods, and not for others, until there is room again.
func (c *Cluster) Fill(room int) {
	c.world.Trace("the cluster has room for %d more pods", room)
	c.full, c.room = true, room
	c.place()
}

// Empty is when there is room for all again.
func (c *Cluster) Empty() {
	if c.full {
		c.world.Trace("the cluster has room again")
	}
	c.full = false
	c.place()
}

// place gives room to the pods that wait for it.
func (c *Cluster) place() {
	for len(c.queue) > 0 && (!c.full || c.room > 0) {
		p := c.queue[0]
		c.queue = c.queue[1:]
		p.pending = false
		c.room--
		p.begin()
	}
}

// loseNodes plans the loss of a node, again and again.
func (c *Cluster) loseNodes() {
	t := c.world.Faults
	if !t.Has(NodeLosses) {
		return
	}
	s := t.Stream(NodeLosses)
	c.world.After(s.Between(time.Minute, 15*time.Minute), func() {
		c.losses++
		node, noticed, replaced := s.Int(0, nodes-1), s.Between(10*time.Second, time.Minute), s.Between(30*time.Second, 5*time.Minute)
		if !c.quiet && t.Has(NodeLosses) && t.TakesPlace(fmt.Sprintf("%s#%d", NodeLosses, c.losses)) {
			c.loseNode(node, noticed, noticed+replaced)
		}
		if !c.quiet {
			c.loseNodes()
		}
	})
}

// loseNode ends all pods of a node at once. Kubernetes takes them for ready until it notices, and replaces them later.
func (c *Cluster) loseNode(node int, noticed, replaced time.Duration) {
	c.world.Trace("node %d is lost", node)
	for _, set := range c.sets {
		for _, p := range set.pods {
			if p.node == node && p.answers && !p.leaving {
				p.die("node")
				p.lost = true
				c.world.After(noticed, p.unreachable)
				c.world.After(replaced, p.replace)
			}
		}
	}
	for _, set := range c.sets {
		c.lookedAt(set.namespace)
	}
}

// unreachable is when Kubernetes notices.
func (p *pod) unreachable() {
	if !p.leaving {
		p.ready = false
		p.mirror()
		p.set.cluster.podsChanged(p.set)
	}
}

// replace gives up a pod that is lost.
func (p *pod) replace() {
	if !p.leaving {
		p.end()
		p.set.scale(p.set.wanted)
	}
}

// show lets one pod that is in trouble, the oldest, be an object: its reason can be read there. The others would say
// the same.
func (r *replicaSet) show() {
	if r.free {
		for _, p := range r.pods {
			p.mirror()
		}
		return
	}
	if r.showing {
		return
	}
	stuck := r.stuck()
	if stuck == r.shown && (stuck == nil || stuck.trouble == r.shownTrouble) {
		return
	}
	r.showing = true
	r.cluster.plan(r.draws.Skewed(10*time.Millisecond, time.Second), func() {
		r.showing = false
		r.expose(r.stuck())
	})
}

func (r *replicaSet) stuck() *pod {
	at := slices.IndexFunc(r.pods, func(p *pod) bool { return p.trouble != "" && !p.leaving })
	if at < 0 {
		return nil
	}
	return r.pods[at]
}

func (r *replicaSet) expose(p *pod) {
	c := r.cluster
	if old := r.shown; old != nil && (old != p || old.trouble != r.shownTrouble) {
		key := types.NamespacedName{Namespace: r.namespace, Name: old.name}
		if v := c.world.Server.Peek(podKind, key); v != nil {
			c.wrote("pod "+old.name, c.workloads.Delete(background(), written(v)))
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
	if !c.wrote("pod "+p.name, c.workloads.Create(background(), obj)) {
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
			"restartCount": int64(p.deaths), "state": map[string]any{"waiting": map[string]any{"reason": p.trouble}},
		}},
	}
	c.wrote("the status of pod "+p.name, c.workloads.Status().Update(background(), obj))
	r.shown, r.shownTrouble = p, p.trouble
}

// behind are the pods of a namespace that a selector means, in the order in which they were made.
func (c *Cluster) behind(namespace string, selector map[string]any) iter.Seq[*pod] {
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
