package reconciler

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSimultaneousAnswersCauseOneReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := priorityqueue.New[reconcile.Request]("runs") // as controllers use it
		defer inner.ShutDown()
		expect := func(what string, want int) {
			t.Helper()
			synctest.Wait()
			if n := inner.Len(); n != want {
				t.Errorf("%s: %d reconciliations, want %d", what, n, want)
			}
			for range inner.Len() {
				request, _ := inner.Get()
				inner.Done(request)
			}
		}
		var queue Queue
		key := types.NamespacedName{Name: "run"}
		queue.AddAnswered(key, false) // ignored before Start
		queue.AddAnswered(key, true)
		if err := queue.Start(t.Context(), inner); err != nil {
			t.Fatal(err)
		}
		queue.AddAnswered(key, false)
		queue.AddAnswered(key, false)
		expect("before the last answer", 0)
		queue.AddAnswered(key, true)
		expect("after the last answer", 1)
		time.Sleep(batchDelay)
		expect("later", 0)
		queue.AddAnswered(key, false)
		time.Sleep(batchDelay)
		expect("while another query does not end", 1)
	})
}
