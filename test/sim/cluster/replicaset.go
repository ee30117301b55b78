package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// replicaSet is an object of that kind with its pods. How many there shall be of a Deployment's is kept here only: no one
// reads it from the object. Of one that someone else made, the object says it; see free.go.
type replicaSet struct {
	cluster         *Cluster
	namespace, name string
	uid, owner      types.UID // no owner: it was left behind
	deployment      string    // the name of its first owner
	hash, version   string
	revision        int
	labels          map[string]any // of its pods
	behaviour       Pods
	draws           *sim.Stream
	wanted          int
	pods            []*pod // the oldest first
	shown           *pod   // the one that is an object, being in trouble
	shownTrouble    string // its fault then
	showing         bool
	free            bool // no Deployment made it
	waking          bool
	least           time.Duration // minReadySeconds at the last look at a free one
}

// newSet makes the ReplicaSet of a template.
func (c *Cluster) newSet(of *store.Version, w wish, hash string, revision int) *replicaSet {
	key, unique := of.Key(), hash
	for n := 1; c.world.Server.Peek(replicaSetKind, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-" + unique}) != nil; n++ {
		unique = fmt.Sprintf("%s%d", hash, n) // that of a predecessor is not collected yet
	}
	labels := with(object(w.template, "metadata", "labels"), hashLabel, unique)
	template := shallow(w.template)
	template["metadata"] = with(object(template, "metadata"), "labels", labels)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name + "-" + unique, "labels": labels,
			"annotations":     inherited(of, nil, revision),
			"ownerReferences": []any{controlledBy(of)},
		},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": with(w.selector, hashLabel, unique)}, "template": template,
		},
	}}
	if !c.wrote("ReplicaSet "+obj.GetName(), c.workloads.Create(background(), obj)) {
		return nil
	}
	set := &replicaSet{
		cluster: c, namespace: key.Namespace, name: obj.GetName(), uid: obj.GetUID(), owner: of.UID(), deployment: key.Name,
		hash: hash, version: c.versionOf(w.template), revision: revision, labels: labels,
		draws: c.stream("pods", types.NamespacedName{Namespace: key.Namespace, Name: obj.GetName()}),
	}
	set.behave(w.template)
	c.sets = append(c.sets, set)
	return set
}

// behave draws how the pods of a template fare.
func (r *replicaSet) behave(template map[string]any) {
	if r.cluster.o.Behaviour != nil {
		r.behaviour = r.cluster.o.Behaviour(template)
	}
	if r.behaviour.Start == nil {
		usual := r.draws.Between(time.Second, 12*time.Second) // pods of one version need about the same time
		r.behaviour.Start = func() time.Duration { return usual + r.draws.Skewed(0, 3*time.Second) }
	}
}

func controlledBy(v *store.Version) map[string]any {
	return map[string]any{
		"apiVersion": v.Content()["apiVersion"], "kind": v.Kind().Kind, "name": v.Key().Name, "uid": string(v.UID()),
		"controller": true, "blockOwnerDeletion": true,
	}
}

// setsOf are the ReplicaSets of a Deployment, in the order in which they were made.
func (c *Cluster) setsOf(owner types.UID) []*replicaSet {
	var found []*replicaSet
	for _, set := range c.sets {
		if set.owner == owner {
			found = append(found, set)
		}
	}
	return found
}

func (c *Cluster) ownerOf(set *replicaSet) *deployment {
	d := c.deployments.found[types.NamespacedName{Namespace: set.namespace, Name: set.deployment}]
	if d == nil || d.uid != set.owner {
		return nil
	}
	return d
}

// setWritten follows what others do to ReplicaSets: they lose their owners, and are deleted.
func (c *Cluster) setWritten(e *store.Event) {
	at := slices.IndexFunc(c.sets, func(set *replicaSet) bool { return set.uid == e.New.UID() })
	if at < 0 {
		c.freeSet(e)
		return
	}
	set := c.sets[at]
	if e.Type != store.Deleted {
		set.owner = ""
		if owner := metav1.GetControllerOfNoCopy(e.New.Meta()); owner != nil {
			set.owner = owner.UID
		}
		set.wake()
		return
	}
	d := c.ownerOf(set)
	c.sets = slices.Delete(c.sets, at, at+1)
	set.owner = ""
	set.scale(0)
	if d != nil {
		d.wake() // someone deleted it whose business it was not
	}
}

// adopt gives ReplicaSets that were left behind to the Deployment that selects them.
func (c *Cluster) adopt(v *store.Version, w wish) {
	for _, set := range c.sets {
		if set.free || set.owner != "" || set.namespace != v.Key().Namespace || !matches(w.selector, set.labels) {
			continue
		}
		stored := set.stored()
		if stored == nil || stored.Deleting() {
			continue
		}
		obj := written(stored)
		object(obj.Object, "metadata")["ownerReferences"] = []any{controlledBy(v)}
		if c.wrote("the owner of ReplicaSet "+set.name, c.workloads.Update(background(), obj)) {
			set.owner, set.deployment = v.UID(), v.Key().Name
		}
	}
}

// stored is the object; nil when it is gone.
func (r *replicaSet) stored() *store.Version {
	v := r.cluster.world.Server.Peek(replicaSetKind, types.NamespacedName{Namespace: r.namespace, Name: r.name})
	if v == nil || v.UID() != r.uid {
		return nil
	}
	return v
}

// annotate gives the ReplicaSet of the current template what its Deployment says, and the number of a newer revision where
// its template is the newest again.
func (r *replicaSet) annotate(of *store.Version, revision int) {
	r.revision = revision
	v := r.stored()
	if v == nil {
		return
	}
	before := object(v.Content(), "metadata", "annotations")
	after := inherited(of, before, revision)
	if jsontree.Equal(before, after) {
		return
	}
	obj := written(v)
	object(obj.Object, "metadata")["annotations"] = after
	r.cluster.wrote("the annotations of ReplicaSet "+r.name, r.cluster.workloads.Update(background(), obj))
}

// inherited are the annotations of a ReplicaSet: those that it has, those of its Deployment but for what a tool last
// applied to that, and its revision.
func inherited(of *store.Version, has map[string]any, revision int) map[string]any {
	all := map[string]any{}
	maps.Copy(all, has)
	maps.Copy(all, object(of.Content(), "metadata", "annotations"))
	delete(all, "kubectl.kubernetes.io/last-applied-configuration")
	all[revisionAnnotation] = strconv.Itoa(revision)
	return all
}

func (r *replicaSet) remove() {
	if v := r.stored(); v != nil {
		r.cluster.wrote("ReplicaSet "+r.name, r.cluster.workloads.Delete(background(), written(v)))
	}
}

func (r *replicaSet) size(w wish) size {
	s := size{wanted: r.wanted}
	for _, p := range r.pods {
		if !p.leaving && p.available(w.minReady) {
			s.available++
		}
	}
	return s
}

// scale makes pods or lets some end: those first that are not ready, then the youngest.
func (r *replicaSet) scale(n int) {
	r.wanted = n
	var live []*pod
	for _, p := range r.pods {
		if !p.leaving {
			live = append(live, p)
		}
	}
	for range n - len(live) {
		r.start()
	}
	if n >= len(live) {
		return
	}
	slices.Reverse(live)
	slices.SortStableFunc(live, func(a, b *pod) int { return rank(a) - rank(b) })
	for _, p := range live[:len(live)-n] {
		p.end()
	}
}

// rank is the order in which pods are given up.
func rank(p *pod) int {
	if p.ready {
		return 1
	}
	return 0
}
