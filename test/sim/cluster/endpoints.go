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

// service is the state that the endpoints controller retains for one name.
type service struct {
	cluster          *Cluster
	key              types.NamespacedName
	draws            *sim.Stream
	scheduled        bool
	cleanupScheduled bool
}

func (c *Cluster) serviceWritten(e *store.Event) {
	s := c.services.get(e.Key, func() *service {
		return &service{cluster: c, key: e.Key, draws: c.stream("endpoints", e.Key)}
	})
	switch {
	case e.Type == store.Modified && !jsontree.Equal(selectorIn(e.New), selectorIn(e.Old)):
		s.schedulePublishAfter(s.selectorDelay())
	case e.Type == store.Added || e.Type == store.Modified && !jsontree.Equal(e.New.Content()["spec"], e.Old.Content()["spec"]):
		s.schedulePublish()
	}
}

// publishFor calls a function for the Services that select the pods of a ReplicaSet.
func (c *Cluster) publishFor(set *replicaSet, do func(*service)) {
	for _, s := range c.services.ordered {
		if s.key.Namespace == set.namespace && matches(c.selectorOf(s.key.Namespace, s.key.Name), set.labels) {
			do(s)
		}
	}
}

// selectorOf returns the selector of a Service, or nil if the Service does not exist or has none.
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

// selectorDelay draws by how much the endpoints follow a changed selector later than usual. Selectors change rarely, so the
// class delays about half of the changes.
func (s *service) selectorDelay() time.Duration {
	faults := s.cluster.world.Faults
	if !faults.Has(LateSelectors) {
		return 0
	}
	occurs, delay := faults.Stream(LateSelectors).Chance(0.5), faults.Stream(LateSelectors).Between(5*time.Second, FaultDelay)
	if occurs && faults.InjectDrawn(LateSelectors) {
		return delay
	}
	return 0
}

func (s *service) schedulePublish() { s.schedulePublishAfter(0) }

// schedulePublishAfter publishes the endpoints after a delay in addition to the usual one, unless they are about to be published.
func (s *service) schedulePublishAfter(delay time.Duration) {
	if s.scheduled {
		return
	}
	s.scheduled = true
	wait, late := s.draws.Skewed(20*time.Millisecond, EndpointsDelay), s.draws.Skewed(time.Second, FaultDelay)
	if s.cluster.world.Faults.Inject(LateEndpoints) {
		delay = max(delay, late)
	}
	s.cluster.schedule(wait+delay, func() {
		s.scheduled = false
		s.publish()
	})
}

// scheduleCleanup publishes later: the endpoints no longer contain the terminated pod as ready.
func (s *service) scheduleCleanup() {
	if s.scheduled || s.cleanupScheduled {
		return
	}
	s.cleanupScheduled = true
	s.cluster.schedule(s.draws.Between(15*time.Second, 40*time.Second), func() {
		s.cleanupScheduled = false
		s.publish()
	})
}

// publish writes the current EndpointSlice of the Service.
func (s *service) publish() {
	c := s.cluster
	of := c.world.Server.Peek(serviceKind, s.key)
	if of == nil || of.Deleting() || len(selectorIn(of)) == 0 {
		return // its slices are deleted with it, or belong to the user who removed the selector
	}
	endpoints := []any{}
	for p := range c.podsSelected(s.key.Namespace, selectorIn(of)) {
		if !p.readySince.IsZero() {
			endpoints = append(endpoints, p.endpoint())
		}
	}
	key := types.NamespacedName{Namespace: s.key.Namespace, Name: s.key.Name + "-" + shortHash(of.UID())}
	v := c.world.Server.Peek(sliceKind, key)
	if v == nil {
		c.checkWrite("EndpointSlice "+key.Name, c.endpoints.Create(background(), &unstructured.Unstructured{Object: map[string]any{
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
	obj := editable(v)
	obj.Object["endpoints"] = endpoints
	c.checkWrite("EndpointSlice "+key.Name, c.endpoints.Update(background(), obj))
}

func (p *pod) endpoint() map[string]any {
	return map[string]any{
		"addresses": []any{p.address},
		"conditions": map[string]any{
			"ready": p.ready && !p.terminating, "serving": p.ready || p.terminating && p.answers, "terminating": p.terminating,
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

// shortHash returns a short hash of a UID.
func shortHash(uid types.UID) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(uid)) // never fails
	return fmt.Sprintf("%05x", sum.Sum32()&0xfffff)
}
