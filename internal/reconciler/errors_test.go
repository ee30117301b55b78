package reconciler

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Each error needs the user, is rejected by the API server, is a conflict, is too large, or is retried with backoff.
func TestErrorsBelongToOneClass(t *testing.T) {
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for _, test := range []struct {
		err  error
		want string
	}{
		{traffic.ErrNotOwned, "user"},
		{traffic.ErrNotInstalled, "user"},
		{workload.ErrUnusable, "user"},
		{apierrors.NewForbidden(resource, "cart", errors.New("quota")), "rejected"},
		{apierrors.NewInvalid(schema.GroupKind{}, "cart", nil), "rejected"},
		{apierrors.NewConflict(resource, "cart", errors.New("changed")), "conflict"},
		{apierrors.NewAlreadyExists(resource, "cart"), "conflict"},
		{readyourwrites.ErrStale, "conflict"},
		{workload.ErrTargetChanged, "conflict"},
		{traffic.ErrRouteChanged, "conflict"},
		{ErrObjectChanged, "conflict"},
		{apierrors.NewRequestEntityTooLargeError("limit is 3145728"), "too large"},
		{&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "etcdserver: request is too large"}}, "too large"},
		{apierrors.NewInternalError(errors.New("trying to send message larger than max (2097200 vs. 2097152)")), "too large"},
		{apierrors.NewInternalError(errors.New("etcdserver: request timed out")), ""},
		{apierrors.NewNotFound(resource, "cart"), ""},
		{traffic.ErrUnreachable, ""},
		{errors.New("connection refused"), ""},
	} {
		wrapped, got := fmt.Errorf("apply: %w", test.err), ""
		for class, matches := range map[string]func(error) bool{"user": NeedsUser, "rejected": IsRejected, "conflict": IsConflict, "too large": IsTooLarge} {
			if matches(wrapped) {
				got += class
			}
		}
		if got != test.want {
			t.Errorf("%v: got class %q, want %q", test.err, got, test.want)
		}
	}
}
