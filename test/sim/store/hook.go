package store

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The verbs of calls.
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
	// Key has no name for lists, and may have none if the server generates the name.
	Key         types.NamespacedName
	Subresource string
	// Cached is true for reads that a cache answers, which do not reach the server.
	Cached bool

	resource schema.GroupResource
}

// Read reports whether a call changes nothing.
func (c Call) Read() bool { return c.Verb == Get || c.Verb == List }

func (c Call) String() string {
	where := c.Verb + " " + c.Kind.Kind
	if c.Subresource != "" {
		where += "/" + c.Subresource
	}
	return fmt.Sprintf("%s: %s %s", c.Actor, where, c.Key)
}

// Fault is the failure that is injected into one call. The zero value injects none.
type Fault struct {
	// Err is returned instead of the result. Before the call, the call has no effect; after the call, its effect remains.
	Err error
	// Kill ends the caller: the call panics with Killed.
	Kill bool
}

// Hook is called before and after every call, and determines its failures. During a hook, other actors may run.
type Hook interface {
	// Before is called before the call has any effect.
	Before(Call) Fault
	// After is called with the result of the call, before the caller receives it. Only Err and Kill are used.
	After(Call, error) Fault
}

// Killed is the panic value of a call whose caller was killed during the call.
type Killed struct {
	Call Call
	// Committed reports whether the call took effect.
	Committed bool
}

func (k Killed) String() string {
	if k.Committed {
		return "killed after " + k.Call.String()
	}
	return "killed before " + k.Call.String()
}

// callWithHook executes a call with its faults.
func callWithHook(hook Hook, call Call, do func() error) error {
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

// The following errors are those of a real API server.

// NotFound returns the error for an object that does not exist.
func NotFound(c Call) error { return apierrors.NewNotFound(c.resource, c.Key.Name) }

// Conflict returns the error for a write that names an outdated version.
func Conflict(c Call) error {
	return apierrors.NewConflict(c.resource, c.Key.Name, errModified)
}

// Forbidden returns the error for an actor without the permission.
func Forbidden(c Call) error {
	return apierrors.NewForbidden(c.resource, c.Key.Name, fmt.Errorf("user %q cannot %s resource %q in API group %q in the namespace %q",
		c.Actor, c.Verb, c.resource.Resource, c.resource.Group, c.Key.Namespace))
}

// Denied returns the error of an admission webhook or a quota that rejects the request.
func Denied(c Call, why string) error {
	return apierrors.NewForbidden(c.resource, c.Key.Name, errors.New(why))
}

// TooManyRequests returns the error of an overloaded server.
func TooManyRequests(_ Call, after time.Duration) error {
	return apierrors.NewTooManyRequests("the server is currently unable to handle the request", int(after/time.Second))
}

// Timeout returns the error for a request that took too long, whether or not it took effect.
func Timeout(c Call) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("request did not complete within the allotted timeout: %s", c.Verb), 0)
}

// ServerError returns the error for an internal failure.
func ServerError(Call) error {
	return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// Unavailable returns the error of a server that is starting or stopping.
func Unavailable(Call) error {
	return apierrors.NewServiceUnavailable("apiserver is shutting down")
}

// Broken returns the error of a broken connection: no status, and an unknown outcome.
func Broken(c Call) error {
	return fmt.Errorf("%s: %w", c.Verb, errBroken)
}
