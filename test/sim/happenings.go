package sim

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/serin-dev/serin/test/sim/store"
)

// Wrote tells a write that was committed, whoever made it.
type Wrote struct{ *store.Event }

// Called tells a request of Serin to the API server, reads from its cache apart.
type Called struct {
	Instance string
	Call     store.Call
}

// Faulted tells that such a request went wrong on purpose.
type Faulted struct {
	Call store.Call
	How  string
}

// Passed tells that a pass of a controller is over.
type Passed struct {
	Instance string
	Release  types.NamespacedName
	Result   reconcile.Result
	Err      error
}

// Started tells that a process began.
type Started struct{ Instance string }

// Crashed tells that a process died.
type Crashed struct{ Instance string }

// Jumped tells that the clock of a process was set.
type Jumped struct{ Instance string }
