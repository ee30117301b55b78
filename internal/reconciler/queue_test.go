package reconciler

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSimultaneousAnswersCauseOneReconciliation(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	inner := workqueue.NewTypedRateLimitingQueueWithConfig(RateLimiter(), workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: clk})
	t.Cleanup(inner.ShutDown)
	var queue Queue
	key := types.NamespacedName{Name: "run"}
	queue.AddSoon(key) // ignored before Start
	if err := queue.Start(t.Context(), inner); err != nil {
		t.Fatal(err)
	}
	queue.AddSoon(key)
	queue.AddSoon(key)
	if n := inner.Len(); n != 0 {
		t.Errorf("%d immediate reconciliations", n)
	}
	clk.Step(batchDelay)
	if request, _ := inner.Get(); request.NamespacedName != key {
		t.Errorf("got %v", request)
	}
	if n := inner.Len(); n != 0 {
		t.Errorf("%d more reconciliations", n)
	}
}
