package reconciler

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Each error is either the user's to fix, rejected by the API server, overtaken, or retried with backoff.
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
		{apierrors.NewConflict(resource, "cart", errors.New("changed")), "overtaken"},
		{apierrors.NewAlreadyExists(resource, "cart"), "overtaken"},
		{readyourwrites.ErrStale, "overtaken"},
		{workload.ErrChanged, "overtaken"},
		{traffic.ErrChanged, "overtaken"},
		{ErrChanged, "overtaken"},
		{apierrors.NewNotFound(resource, "cart"), ""},
		{traffic.ErrUnreachable, ""},
		{errors.New("connection refused"), ""},
	} {
		wrapped, got := fmt.Errorf("apply: %w", test.err), ""
		for class, is := range map[string]func(error) bool{"user": NeedsUser, "rejected": Rejected, "overtaken": Overtaken} {
			if is(wrapped) {
				got += class
			}
		}
		if got != test.want {
			t.Errorf("%v: got class %q, want %q", test.err, got, test.want)
		}
	}
}
