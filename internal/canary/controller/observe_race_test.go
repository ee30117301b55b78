package controller

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/workload"
)

// changingWorkloads changes a workload once, directly after the first observation.
type changingWorkloads struct {
	*fakeWorkloads
	once   sync.Once
	change func()
}

func (w *changingWorkloads) ForCanary(*flaggerv1.Canary) workload.Workload { return w }

func (w *changingWorkloads) Observe(ctx context.Context, c *flaggerv1.Canary, options ...workload.ObserveOption) (workload.Observation, error) {
	o, err := w.fakeWorkloads.Observe(ctx, c, options...)
	o.Dependencies = []workload.Object{{Kind: deploymentKind, Name: c.Spec.TargetRef.Name}}
	w.once.Do(w.change)
	return o, err
}

// TestAChangeDuringTheFirstObservationIsNotLost: the process has just started and does not know yet which Canaries depend on the
// target when the event arrives, so that the event requeues none.
func TestAChangeDuringTheFirstObservationIsNotLost(t *testing.T) {
	cluster := newTestCluster(t, outbound.Policy{})
	c := cartCanary()
	parts := cluster.reconciler.Parts
	workloads := &changingWorkloads{fakeWorkloads: cluster.workloads}
	parts.Workloads = workloads
	r := New(parts)
	var requests []reconcile.Request
	workloads.change = func() {
		cluster.workloads.deploy(c)
		target := &unstructured.Unstructured{}
		target.SetGroupVersionKind(deploymentKind)
		target.SetNamespace(c.Namespace)
		target.SetName(c.Spec.TargetRef.Name)
		requests = r.AffectedReleases(t.Context(), deploymentKind.GroupKind(), nil, target)
	}
	s, err := r.observeWithMemory(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.snapshot.Workload.Target.Revision; got != "v2" && len(requests) == 0 {
		t.Errorf("observed revision %q, and the event of v2 requeued no release", got)
	}
}
