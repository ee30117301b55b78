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

// replicaSet is a ReplicaSet with its pods. For a Deployment, the desired number is stored only here, because no actor reads it
// from the object. For a standalone one it is in the object; see free.go.
type replicaSet struct {
	cluster         *Cluster
	namespace, name string
	uid, owner      types.UID // no owner: it was orphaned
	deployment      string    // the name of its first owner
	hash, version   string
	revision        int
	labels          map[string]any // of its pods
	behaviour       PodBehaviour
	draws           *sim.Stream
	desired         int
	pods            []*pod // the oldest first
	shown           *pod   // the stuck pod that has an object
	shownTrouble    string // the waiting reason in its object
	showing         bool
	standalone      bool // no Deployment created it
	scheduled       bool
	lastMinReady    time.Duration // minReadySeconds at the last reconciliation of a standalone one
}

// newSet creates the ReplicaSet of a template.
func (c *Cluster) newSet(of *store.Version, w deploymentSpec, hash string, revision int) *replicaSet {
	key, unique := of.Key(), hash
	for n := 1; c.world.Server.Peek(replicaSetKind, types.NamespacedName{Namespace: key.Namespace, Name: key.Name + "-" + unique}) != nil; n++ {
		unique = fmt.Sprintf("%s%d", hash, n) // the ReplicaSet of a predecessor still exists
	}
	labels := with(object(w.template, "metadata", "labels"), hashLabel, unique)
	template := shallow(w.template)
	template["metadata"] = with(object(template, "metadata"), "labels", labels)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"namespace": key.Namespace, "name": key.Name + "-" + unique, "labels": labels,
			"annotations":     setAnnotations(of, nil, revision),
			"ownerReferences": []any{controlledBy(of)},
		},
		"spec": map[string]any{
			"replicas": int64(0), "selector": map[string]any{"matchLabels": with(w.selector, hashLabel, unique)}, "template": template,
		},
	}}
	if !c.checkWrite("ReplicaSet "+obj.GetName(), c.workloads.Create(background(), obj)) {
		return nil
	}
	set := &replicaSet{
		cluster: c, namespace: key.Namespace, name: obj.GetName(), uid: obj.GetUID(), owner: of.UID(), deployment: key.Name,
		hash: hash, version: c.versionOf(w.template), revision: revision, labels: labels,
		draws: c.stream("pods", types.NamespacedName{Namespace: key.Namespace, Name: obj.GetName()}),
	}
	set.setBehaviour(w.template)
	c.sets = append(c.sets, set)
	return set
}

// setBehaviour draws how the pods of a template behave.
func (r *replicaSet) setBehaviour(template map[string]any) {
	if r.cluster.options.PodBehaviour != nil {
		r.behaviour = r.cluster.options.PodBehaviour(template)
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

// setsOf returns the ReplicaSets of a Deployment, in the order of their creation.
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
	d := c.deployments.byKey[types.NamespacedName{Namespace: set.namespace, Name: set.deployment}]
	if d == nil || d.uid != set.owner {
		return nil
	}
	return d
}

// replicaSetWritten handles changes of ReplicaSets by other actors: they are orphaned or deleted.
func (c *Cluster) replicaSetWritten(e *store.Event) {
	at := slices.IndexFunc(c.sets, func(set *replicaSet) bool { return set.uid == e.New.UID() })
	if at < 0 {
		c.addStandaloneSet(e)
		return
	}
	set := c.sets[at]
	if e.Type != store.Deleted {
		set.owner = ""
		if owner := metav1.GetControllerOfNoCopy(e.New.Meta()); owner != nil {
			set.owner = owner.UID
		}
		set.scheduleReconcile()
		return
	}
	d := c.ownerOf(set)
	c.sets = slices.Delete(c.sets, at, at+1)
	set.owner = ""
	set.scale(0)
	if d != nil {
		d.scheduleReconcile() // another actor deleted it
	}
}

// adopt makes the Deployment the owner of orphaned ReplicaSets that it selects.
func (c *Cluster) adopt(v *store.Version, w deploymentSpec) {
	for _, set := range c.sets {
		if set.standalone || set.owner != "" || set.namespace != v.Key().Namespace || !matches(w.selector, set.labels) {
			continue
		}
		stored := set.stored()
		if stored == nil || stored.Deleting() {
			continue
		}
		obj := editable(stored)
		object(obj.Object, "metadata")["ownerReferences"] = []any{controlledBy(v)}
		if c.checkWrite("the owner of ReplicaSet "+set.name, c.workloads.Update(background(), obj)) {
			set.owner, set.deployment = v.UID(), v.Key().Name
		}
	}
}

// stored returns the object, or nil if it was deleted.
func (r *replicaSet) stored() *store.Version {
	v := r.cluster.world.Server.Peek(replicaSetKind, types.NamespacedName{Namespace: r.namespace, Name: r.name})
	if v == nil || v.UID() != r.uid {
		return nil
	}
	return v
}

// annotate copies the annotations of the Deployment to the ReplicaSet of the current template, and sets a newer revision if the
// template is current again.
func (r *replicaSet) annotate(of *store.Version, revision int) {
	r.revision = revision
	v := r.stored()
	if v == nil {
		return
	}
	before := object(v.Content(), "metadata", "annotations")
	after := setAnnotations(of, before, revision)
	if jsontree.Equal(before, after) {
		return
	}
	obj := editable(v)
	object(obj.Object, "metadata")["annotations"] = after
	r.cluster.checkWrite("the annotations of ReplicaSet "+r.name, r.cluster.workloads.Update(background(), obj))
}

// setAnnotations returns the annotations of a ReplicaSet: its own, those of its Deployment except for the last applied
// configuration, and its revision.
func setAnnotations(of *store.Version, has map[string]any, revision int) map[string]any {
	all := map[string]any{}
	maps.Copy(all, has)
	maps.Copy(all, object(of.Content(), "metadata", "annotations"))
	delete(all, "kubectl.kubernetes.io/last-applied-configuration")
	all[revisionAnnotation] = strconv.Itoa(revision)
	return all
}

func (r *replicaSet) remove() {
	if v := r.stored(); v != nil {
		r.cluster.checkWrite("ReplicaSet "+r.name, r.cluster.workloads.Delete(background(), editable(v)))
	}
}

func (r *replicaSet) size(w deploymentSpec) size {
	s := size{desired: r.desired}
	for _, p := range r.pods {
		if !p.terminating && p.available(w.minReady) {
			s.available++
		}
	}
	return s
}

// scale starts or terminates pods: first those that are not ready, then the youngest.
func (r *replicaSet) scale(n int) {
	r.desired = n
	var live []*pod
	for _, p := range r.pods {
		if !p.terminating {
			live = append(live, p)
		}
	}
	for range n - len(live) {
		r.startPod()
	}
	if n >= len(live) {
		return
	}
	slices.Reverse(live)
	slices.SortStableFunc(live, func(a, b *pod) int { return removalOrder(a) - removalOrder(b) })
	for _, p := range live[:len(live)-n] {
		p.terminate()
	}
}

// removalOrder determines the order in which pods are terminated.
func removalOrder(p *pod) int {
	if p.ready {
		return 1
	}
	return 0
}
