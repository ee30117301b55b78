package controller_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/internal/leaktest"
)

// TestNothingRemainsOfAnalysisRuns measures, completes and deletes two thousand AnalysisRuns. Every third is deleted while its
// measurement may be in progress.
func TestNothingRemainsOfAnalysisRuns(t *testing.T) {
	o, ctx := open(t, ""), log.IntoContext(t.Context(), logr.Discard())
	metric := web(t, "m", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "1") })
	comeAndGo := func(i int) {
		run := analysisRun(metric)
		run.Name, run.UID = fmt.Sprint("run-", i), types.UID(fmt.Sprint(i))
		reconcileRun := func() {
			if _, err := o.reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.client.Create(ctx, run); err != nil {
			t.Fatal(err)
		}
		reconcileRun()
		for i%3 != 0 && !run.Status.Phase.Completed() {
			o.waitForAnswer() // perhaps for a deleted run
			reconcileRun()
			if err := o.client.Get(ctx, client.ObjectKeyFromObject(run), run); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.client.Delete(ctx, run); err != nil {
			t.Fatal(err)
		}
		reconcileRun()
	}
	leaktest.Check(t, o.registry, 2000, func(from, to int) {
		for i := from; i < to; i++ {
			comeAndGo(i)
			if i%50 == 0 { // the cluster's own records of the objects do not count
				if err := o.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(key.Namespace)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	if footprint := o.reconciler.Footprint(); len(footprint) > 0 {
		t.Errorf("the process still has state of %v", footprint)
	}
}
