package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
)

// TestMatchRemovedWhileThePrimaryIsNotReady: the weight of an A/B test, 100, is that of the matching requests alone. While the test
// is promoted or rolled back and the primary is not ready, a user removes spec.analysis.match.
func TestMatchRemovedWhileThePrimaryIsNotReady(t *testing.T) {
	for name, edit := range map[string]func(*flaggerv1.CanaryStatus){
		"promotion": func(status *flaggerv1.CanaryStatus) { status.Phase = flaggerv1.CanaryPhasePromoting },
		"rollback":  func(status *flaggerv1.CanaryStatus) { status.Serin.Intent = "rollback" },
		"analysis":  func(*flaggerv1.CanaryStatus) {},
		// A process that did not observe the first weight, whose status was not written, restarted the run.
		"restart on an outdated route": func(status *flaggerv1.CanaryStatus) {
			status.CanaryWeight, status.Iterations = 0, 0
			status.Serin.Shape, status.Serin.Started, status.Serin.Window = "canary/istio/Deployment/cart", false, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "cart-uid", Generation: 1}}
			c.Spec.Provider, c.Spec.Service.Port = "istio", 80
			c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name = "Deployment", "cart"
			c.Spec.Analysis = &flaggerv1.CanaryAnalysis{
				Interval: "1m", Threshold: 5, Iterations: 2,
				Match: []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-tester": {Exact: "1"}}}},
			}
			cluster := newTestCluster(t, outbound.Policy{})
			o := cluster.reconciler.Observer
			o.Routers = traffic.Registry{Canary: map[string]traffic.Renderer{"istio": istio.New()}}
			if _, err := o.Applier.Apply(t.Context(), istio.New(), traffic.NewCanaryTarget(c, "istio", "app"), release.Route{Canary: 100, Matches: traffic.Matches(c)}, nil); err != nil {
				t.Fatal(err)
			}
			observe := func() *observation {
				s, err := o.observe(t.Context(), c.DeepCopy(), time.Now(), canary.OtherController{})
				if err != nil {
					t.Fatal(err)
				}
				s.snapshot.Workload.Primary = canary.WorkloadState{Found: true, Replicas: 2, Total: 2, Message: "0 of 2 pods available"}
				s.snapshot.Workload.Target.Ready, s.snapshot.Workload.Target.Found = true, true
				s.snapshot.Workload.Target.Replicas, s.snapshot.Workload.Target.Available = 2, 2
				return s
			}
			before := observe().snapshot
			c.Status = flaggerv1.CanaryStatus{Phase: flaggerv1.CanaryPhaseProgressing, CanaryWeight: 100, Iterations: 2, LastAppliedSpec: "v2", LastPromotedSpec: "v1"}
			c.Status.Serin = &flaggerv1.SerinStatus{
				Revision: before.Workload.Target.Revision, Promoted: "v1", Run: "run", Shape: "ab-testing/istio/Deployment/cart", Started: true,
				Since: &metav1.MicroTime{Time: before.Now}, Window: &flaggerv1.AnalysisWindow{Start: metav1.NewMicroTime(before.Now)},
			}
			edit(&c.Status)
			c.Spec.Analysis.Match = nil
			c.Generation++
			applier := effectApplier{Observer: &o, reader: cluster.client, memory: cluster.reconciler.memory}
			for range 4 {
				s := observe()
				d, rejected, err := applier.applyDecision(t.Context(), s, canary.Next(s.snapshot))
				if err != nil || rejected {
					t.Fatalf("rejected %v, error %v: %v", rejected, err, d.Gates)
				}
				c.Status = d.Status
			}
			route := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService"}}
			if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "cart"}, route); err != nil {
				t.Fatal(err)
			}
			rules, _, err := unstructured.NestedSlice(route.Object, "spec", "http")
			if err != nil || len(rules) != 2 {
				t.Errorf("all requests are routed to the canary, in phase %s: %v, error %v", c.Status.Phase, rules, err)
			}
		})
	}
}
