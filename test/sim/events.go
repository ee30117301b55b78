package sim

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// ObjectWritten reports a committed write of any actor.
type ObjectWritten struct{ *store.Event }

// Called reports a request of Serin to the API server. Reads from its cache are none.
type Called struct {
	Instance string
	Call     store.Call
}

// RequestFailed reports that an injected fault made such a request fail.
type RequestFailed struct {
	Call store.Call
	How  string
}

// Reconciled reports that a reconciliation is over.
type Reconciled struct {
	Instance string
	Release  types.NamespacedName
	Result   reconcile.Result
	Err      error
}

// ProcessStarted reports that a process started.
type ProcessStarted struct{ Instance string }

// ProcessCrashed reports that a process crashed.
type ProcessCrashed struct{ Instance string }

// ClockChanged reports that the clock of a process was set.
type ClockChanged struct{ Instance string }
