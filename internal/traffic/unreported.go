package traffic

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// UnreportedParent is a Gateway about which no controller has reported in the status of a route: the Gateway does not exist, or no
// controller serves it.
type UnreportedParent struct {
	Route, Parent Ref
	// Field is the field of the spec that names the parent.
	Field string
	// RouteCreated is when the route was created.
	RouteCreated time.Time
}

// Message describes the missing report. Whether the parent exists is unknown.
func (u UnreportedParent) Message() string { return u.problem() + ": does it exist?" }

func (u UnreportedParent) problem() string {
	return fmt.Sprintf("no controller has reported on %s for %s", u.Route, u.Parent)
}

// DescribeUnreported returns the message about a parent without a report, which depends on whether the parent exists. It sends
// one request, unless Live is nil.
func (a *Applier) DescribeUnreported(ctx context.Context, u UnreportedParent) string {
	if a.APIReader == nil {
		return u.Message()
	}
	parent := &metav1.PartialObjectMetadata{}
	parent.SetGroupVersionKind(u.Parent.GVK)
	switch err := a.APIReader.Get(ctx, types.NamespacedName{Namespace: u.Parent.Namespace, Name: u.Parent.Name}, parent); {
	case err == nil:
		return u.problem() + ", which exists: does the controller of its class run?"
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("%s does not exist, so %s routes no requests from it: create it, or correct %s", u.Parent, u.Route, u.Field)
	default: // no permission, for example
		return u.Message()
	}
}
