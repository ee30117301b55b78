package reconciler

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// ErrChanged says that an object is not as the decision saw it. The next reconciliation sees it as it is.
var ErrChanged = errors.New("it has changed since it was looked at")

// Message is the text of an error for users: for an error of the API server, what the server says.
func Message(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.Message
	}
	return err.Error()
}

// NeedsUser reports whether the user must fix the cause of an error; its text says how. A watch notifies of the fix, except for
// definitions that are not installed.
func NeedsUser(err error) bool {
	for _, cause := range []error{
		traffic.ErrNotOwned, traffic.ErrUnsupported, traffic.ErrInvalid, traffic.ErrNotInstalled,
		workload.ErrNotOwned, workload.ErrHistoryGone, workload.ErrNotInstalled, workload.ErrUnusable,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// Rejected reports whether the API server rejects a request, because of permissions, quotas or admission. No watch notifies of a
// change of these.
func Rejected(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) }

// Overtaken reports whether an error only says that an object was changed by another client, or by this process a moment ago: the
// next reconciliation knows it.
func Overtaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, readyourwrites.ErrStale) ||
		errors.Is(err, ErrChanged) || errors.Is(err, workload.ErrChanged) || errors.Is(err, traffic.ErrChanged)
}
