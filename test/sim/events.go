package sim

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// ObjectWritten tells a write that was committed, whoever made it.
type ObjectWritten struct{ *store.Event }

// Called tells a request of Serin to the API server, reads from its cache apart.
type Called struct {
	Instance string
	Call     store.Call
}

// RequestFailed tells that such a request went wrong on purpose.
type RequestFailed struct {
	Call store.Call
	How  string
}

// Reconciled tells that a pass of a controller is over.
type Reconciled struct {
	Instance string
	Release  types.NamespacedName
	Result   reconcile.Result
	Err      error
}

// ProcessStarted tells that a process began.
type ProcessStarted struct{ Instance string }

// ProcessCrashed tells that a process died.
type ProcessCrashed struct{ Instance string }

// ClockChanged tells that the clock of a process was set.
type ClockChanged struct{ Instance string }
