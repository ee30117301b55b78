package sim

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// ObjectWritten reports a committed write of any actor.
type ObjectWritten struct{ *store.Event }

// RequestSent reports a request of Serin to the API server. Reads from the cache are not reported.
type RequestSent struct {
	Instance string
	Call     store.Call
}

// RequestFailed reports that an injected fault made a request fail.
type RequestFailed struct {
	Call   store.Call
	Reason string
}

// Reconciled reports the end of a reconciliation.
type Reconciled struct {
	Instance string
	Release  types.NamespacedName
	Result   reconcile.Result
	Err      error
	// Skipped means that the process did not hold the shard, so nothing was reconciled.
	Skipped bool
}

// ProcessStarted reports that a process started, or that it acquired the shard: it has no memory of what happened before.
type ProcessStarted struct{ Instance string }

// ProcessCrashed reports that a process crashed.
type ProcessCrashed struct{ Instance string }

// ShardLost reports that a process lost the shard, and with it its memory.
type ShardLost struct{ Instance string }

// ClockChanged reports that the wall clock of a process was set.
type ClockChanged struct{ Instance string }
