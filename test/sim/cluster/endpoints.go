package cluster

import (
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

const serviceLabel = "kubernetes.io/service-name"

// service is what the controller of endpoints keeps of one name.
type service struct {
	cluster *Cluster
	key     types.NamespacedName
	draws   *sim.Stream
	waking  bool
	tidying bool
}

func (c *Cluster) serviceWritten(e *store.Event) {
	s := c.services.get(e.Key, func() *service {
		return &service{cluster: c, key: e.Key, draws: c.stream("endpoints", e.Key)}
	})
	if e.Type == store.Added || e.Type == store.Modified && !jsontree.Equal(e.New.Content()["spec"], e.Old.Content()["spec"]) {
		s.wake()
	}
}

// publishFor does something with the Services that select the pods of a ReplicaSet.
func (c *Cluster) publishFor(set *replicaSet, do func(*service)) {
	for _, s := range c.services.ordered {
		if s.key.Namespace == set.namespace && matches(c.selectorOf(s.key.Namespace, s.key.Name), set.labels) {
			do(s)
		}
	}
}

// selectorOf is what a Service selects; nil when there is none, or it selects nothing.
func (c *Cluster) selectorOf(namespace, name string) map[string]any {
	v := c.world.Server.Peek(serviceKind, types.NamespacedName{Namespace: namespace, Name: name})
	if v == nil {
		return nil
	}
	return selectorIn(v)
}

func selectorIn(service *store.Version) map[string]any {
	spec := object(service.Content(), "spec")
	if text(spec, "type") == "ExternalName" {
		return nil
	}
	return object(spec, "selector")
}

func (s *service) wake() {
	if s.waking {
		return
	}
	s.waking = true
	wait, late := s.draws.Skewed(20*time.Millisecond, Published), s.draws.Skewed(time.Second, Late)
	if s.cluster.world.Faults.Inject(LateEndpoints) {
		wait += late
	}
	s.cluster.plan(wait, func() {
		s.waking = false
		s.publish()
	})
}

// tidy publishes later: a pod that was terminated no longer takes requests anyway.
func (s *service) tidy() {
	if s.waking || s.tidying {
		return
	}
	s.tidying = true
	s.cluster.plan(s.draws.Between(15*time.Second, 40*time.Second), func() {
		s.tidying = false
		s.publish()
	})
}

// publish writes the EndpointSlice of the Service as it shall be by now.
func (s *service) publish() {
	c := s.cluster
	of := c.world.Server.Peek(serviceKind, s.key)
	if of == nil || of.Deleting() || len(selectorIn(of)) == 0 {
		return // its slices are deleted with it, or belong to the user who removed the selector
	}
	endpoints := []any{}
	for p := range c.behind(s.key.Namespace, selectorIn(of)) {
		if !p.readySince.IsZero() {
			endpoints = append(endpoints, p.endpoint())
		}
	}
	key := types.NamespacedName{Namespace: s.key.Namespace, Name: s.key.Name + "-" + tag(of.UID())}
	v := c.world.Server.Peek(sliceKind, key)
	if v == nil {
		c.wrote("EndpointSlice "+key.Name, c.endpoints.Create(background(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
			"metadata": map[string]any{
				"namespace": key.Namespace, "name": key.Name, "labels": map[string]any{serviceLabel: s.key.Name},
				"ownerReferences": []any{controlledBy(of)},
			},
			"addressType": "IPv4", "endpoints": endpoints, "ports": ports(of),
		}}))
		return
	}
	if was, _ := v.Content()["endpoints"].([]any); len(was) == 0 && len(endpoints) == 0 || jsontree.Equal(was, endpoints) {
		return
	}
	obj := written(v)
	obj.Object["endpoints"] = endpoints
	c.wrote("EndpointSlice "+key.Name, c.endpoints.Update(background(), obj))
}

func (p *pod) endpoint() map[string]any {
	return map[string]any{
		"addresses": []any{p.address},
		"conditions": map[string]any{
			"ready": p.ready && !p.leaving, "serving": p.ready || p.leaving && p.answers, "terminating": p.leaving,
		},
		"targetRef": map[string]any{"kind": "Pod", "namespace": p.set.namespace, "name": p.name},
	}
}

func ports(of *store.Version) []any {
	out := []any{}
	for _, port := range objects(object(of.Content(), "spec"), "ports") {
		number, ok := port["targetPort"].(int64)
		if !ok {
			number, _ = port["port"].(int64) // a name refers to a port of the pod; its number is not used
		}
		out = append(out, map[string]any{"name": text(port, "name"), "port": number, "protocol": "TCP"})
	}
	return out
}

// tag is a short name made of an identity.
func tag(uid types.UID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid)) // never fails
	return fmt.Sprintf("%05x", sum.Sum32()&0xfffff)
}
