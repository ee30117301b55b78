package store

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Verbs of calls.
const (
	Get    = "get"
	List   = "list"
	Create = "create"
	Update = "update"
	Patch  = "patch"
	Delete = "delete"
)

// Call is one request of one actor.
type Call struct {
	Actor, Verb string
	Kind        schema.GroupKind
	// Key has no name for lists, and may have none where the server makes one.
	Key         types.NamespacedName
	Subresource string
	// Cached is true for reads that a cache answers: they reach no server.
	Cached bool

	resource schema.GroupResource
}

// Read is true for calls that change nothing.
func (c Call) Read() bool { return c.Verb == Get || c.Verb == List }

func (c Call) String() string {
	where := c.Verb + " " + c.Kind.Kind
	if c.Subresource != "" {
		where += "/" + c.Subresource
	}
	return fmt.Sprintf("%s: %s %s", c.Actor, where, c.Key)
}

// Fault is the failure that is injected into one call. The zero value is none.
type Fault struct {
	// Err is answered instead. Before the call, nothing happens; after it, what happened stays.
	Err error
	// Kill ends the caller, here: the call panics with Killed.
	Kill bool
}

// Hook is asked around every call what shall fail with it, and may do other things meanwhile: it is the point at
// which someone else may run.
type Hook interface {
	// Before is asked when the call was made and nothing happened yet.
	Before(Call) Fault
	// After is asked when it is done, with its result, and before the caller knows. Only Err and Kill count.
	After(Call, error) Fault
}

// Killed is what a call panics with whose caller was killed in it.
type Killed struct {
	Call Call
	// Committed is true when the call took effect.
	Committed bool
}

func (k Killed) String() string {
	if k.Committed {
		return "killed after " + k.Call.String()
	}
	return "killed before " + k.Call.String()
}

// through does a call with its faults around it.
func through(hook Hook, call Call, do func() error) error {
	if hook == nil {
		return do()
	}
	fault := hook.Before(call)
	if fault.Kill {
		panic(Killed{Call: call})
	}
	if fault.Err != nil {
		return fault.Err
	}
	err := do()
	fault = hook.After(call, err)
	if fault.Kill {
		panic(Killed{Call: call, Committed: err == nil && !call.Read()})
	}
	if fault.Err != nil {
		return fault.Err
	}
	return err
}

// Errors of a real API server, for faults.

// NotFound is what is answered for an object that does not exist.
func NotFound(c Call) error { return apierrors.NewNotFound(c.resource, c.Key.Name) }

// Conflict is what is answered to a writer that names an old version.
func Conflict(c Call) error {
	return apierrors.NewConflict(c.resource, c.Key.Name, errModified)
}

// Forbidden is what is answered to someone without the right.
func Forbidden(c Call) error {
	return apierrors.NewForbidden(c.resource, c.Key.Name, fmt.Errorf("user %q cannot %s resource %q in API group %q in the namespace %q",
		c.Actor, c.Verb, c.resource.Resource, c.resource.Group, c.Key.Namespace))
}

// Denied is what is answered when an admission webhook or a quota refuses.
func Denied(c Call, why string) error {
	return apierrors.NewForbidden(c.resource, c.Key.Name, errors.New(why))
}

// TooManyRequests is what is answered by a server that sheds load.
func TooManyRequests(_ Call, after time.Duration) error {
	return apierrors.NewTooManyRequests("the server is currently unable to handle the request", int(after/time.Second))
}

// Timeout is what is answered when the request took too long, whether it took effect or not.
func Timeout(c Call) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within the allotted timeout: %s", c.Verb), 0)
}

// ServerError is what is answered when something broke inside.
func ServerError(Call) error {
	return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// Unavailable is what is answered by a server that is starting or stopping.
func Unavailable(Call) error {
	return apierrors.NewServiceUnavailable("apiserver is shutting down")
}

// Broken is the result of a broken connection: no status, and an unknown outcome.
func Broken(c Call) error {
	return fmt.Errorf("%s: %w", c.Verb, errBroken)
}
