package controller

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
)

// A release that a user promotes by command counts as promoted without analysis; an analysed one has a duration.
func TestReleasesAreCountedAsTheyEnd(t *testing.T) {
	resident := func(name, interval string) *flaggerv1.Canary {
		c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: interval, Iterations: 1, Threshold: 1}
		return c
	}
	commanded, analysed := resident("commanded", "1h"), resident("analysed", "5ms")
	w := newTestCluster(t, outbound.Policy{}, commanded, analysed)
	for _, c := range []*flaggerv1.Canary{commanded, analysed} {
		key := client.ObjectKeyFromObject(c)
		w.waitForPhase(t, key, flaggerv1.CanaryPhaseInitialized)
		w.workloads.deploy(w.canary(t, key))
		w.waitFor(t, "the iteration of "+c.Name, func() (bool, string) {
			seen := w.canary(t, key)
			return seen.Status.Iterations > 0 || seen.Status.Phase == flaggerv1.CanaryPhaseSucceeded, string(seen.Status.Phase)
		})
	}
	key := client.ObjectKeyFromObject(commanded)
	c := w.canary(t, key)
	patch := client.MergeFrom(c.DeepCopy())
	c.Annotations = map[string]string{canary.CommandAnnotation: "promote-full@" + canary.RunOf(string(c.UID), c.Status)}
	if err := w.client.Patch(t.Context(), c, patch); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*flaggerv1.Canary{commanded, analysed} {
		w.waitForPhase(t, client.ObjectKeyFromObject(c), flaggerv1.CanaryPhaseSucceeded)
	}
	for _, want := range []struct{ name, analysis string }{{"commanded", "skipped"}, {"analysed", "completed"}} {
		w.waitFor(t, want.name+" is counted once", func() (bool, string) {
			counted := w.sample(t, "flagger_canary_successes_total", map[string]string{"name": want.name, "analysis_status": want.analysis})
			took := w.sample(t, "flagger_canary_duration_seconds", map[string]string{"name": want.name})
			return counted != nil && counted.GetCounter().GetValue() == 1 && took.GetHistogram().GetSampleCount() > 0, counted.String() + took.String()
		})
	}
	if other := w.sample(t, "flagger_canary_successes_total", map[string]string{"name": "commanded", "analysis_status": "completed"}); other.GetCounter().GetValue() != 0 {
		t.Errorf("a release that was promoted by command counts as analysed: %s", other)
	}
}

// sample returns the sample with these labels; nil if there is none.
func (w *testCluster) sample(t *testing.T, family string, labels map[string]string) *dto.Metric {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
		for _, m := range f.GetMetric() {
			matching := 0
			for _, pair := range m.GetLabel() {
				if labels[pair.GetName()] == pair.GetValue() {
					matching++
				}
			}
			if matching == len(labels) {
				return m
			}
		}
	}
	return nil
}
