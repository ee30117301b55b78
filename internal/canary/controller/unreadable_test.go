package controller

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/traefik"
)

// TestAnUnreadableRouteIsWrittenAgain: the user set both weights to 0, so that no request is served and the route has no share. The
// recorded weight is restored, and the user is notified.
func TestAnUnreadableRouteIsWrittenAgain(t *testing.T) {
	c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart", UID: "cart-uid", Generation: 1}}
	c.Spec.Provider = "traefik"
	c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name = "Deployment", "cart"
	c.Spec.Service.Port = 80
	c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "1m", Threshold: 5, StepWeight: 10, MaxWeight: 50}
	route := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "traefik.io/v1alpha1", "kind": "TraefikService", "metadata": map[string]any{"namespace": "shop", "name": "cart"},
		"spec": map[string]any{"weighted": map[string]any{"services": []any{
			map[string]any{"name": "cart-primary", "namespace": "shop", "port": int64(80), "weight": int64(0)},
			map[string]any{"name": "cart-canary", "namespace": "shop", "port": int64(80), "weight": int64(0)},
		}}},
	}}
	cluster := newTestCluster(t, outbound.Policy{}, route)
	o := cluster.reconciler.Observer
	o.Routers = traffic.Registry{Canary: map[string]traffic.Renderer{"traefik": traefik.New()}}
	now := time.Now()
	observe := func() *observation {
		s, err := o.observe(t.Context(), c, now, canary.OtherController{})
		if err != nil {
			t.Fatalf("a release with an unreadable route cannot be observed: %v", err)
		}
		return s
	}
	s := observe()
	opened := metav1.NewMicroTime(now.Add(-time.Second))
	c.Status = flaggerv1.CanaryStatus{
		Phase: flaggerv1.CanaryPhaseProgressing, CanaryWeight: 20, LastAppliedSpec: "v2", LastPromotedSpec: "v1", LastTransitionTime: metav1.NewTime(now),
		Serin: &flaggerv1.SerinStatus{
			Revision: s.snapshot.Workload.Target.Revision, Promoted: "v1", Run: "run", Started: true,
			Since: &metav1.MicroTime{Time: now}, Window: &flaggerv1.AnalysisWindow{Start: opened},
		},
	}
	a := effectApplier{Observer: &o, reader: cluster.client, memory: cluster.reconciler.memory}
	s = observe()
	s.snapshot.Workload.Target = canary.WorkloadState{
		Found: true, Revision: c.Status.Serin.Revision, Ready: true, Replicas: 1, Total: 1, Available: 1, Endpoints: release.Endpoints{Ready: 1},
	}
	d, _, err := a.applyDecision(t.Context(), s, canary.Next(s.snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Events) == 0 || d.Events[len(d.Events)-1].Message != s.warnings[0].Message {
		t.Errorf("events %v, want a warning about the weights at the end", d.Events)
	}
	if !slices.Contains(d.Stamp, release.StampWindow) {
		t.Errorf("stamps %v, want another window that observes the restored weight", d.Stamp)
	}
	if s = observe(); s.snapshot.Route.Canary != 20 || len(s.warnings) > 0 {
		t.Errorf("the route has weight %d, and warnings %v, want 20 and none", s.snapshot.Route.Canary, s.warnings)
	}
}
