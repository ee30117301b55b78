package reconciler

import (
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// ErrObjectChanged means that an object has changed since the decision was made. The next reconciliation reads its current state.
var ErrObjectChanged = errors.New("it has changed since it was read")

// Message returns the text of an error for users; for an error of the API server, the message of the server.
func Message(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.Message
	}
	return err.Error()
}

// NeedsUser reports whether the user must fix the cause of an error; the text of the error explains how. A watch notifies Serin
// of the fix, except for CRDs that are not installed.
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

// IsRejected reports whether the API server rejected a request because of permissions, quotas or admission. No watch notifies
// Serin when these change.
func IsRejected(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) }

// IsTooLarge reports whether an object was refused because of its size: by the API server, by etcd, or by the client of etcd. Only the
// API server has a reason for it; the others cause an internal error.
func IsTooLarge(err error) bool {
	if apierrors.IsRequestEntityTooLargeError(err) {
		return true
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Code == http.StatusInternalServerError &&
		(strings.Contains(status.ErrStatus.Message, "etcdserver: request is too large") || strings.Contains(status.ErrStatus.Message, "trying to send message larger than max"))
}

// IsConflict reports whether an error only means that another client, or this process itself, has changed an object since it
// was read. The next reconciliation reads the change.
func IsConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, readyourwrites.ErrStale) ||
		errors.Is(err, ErrObjectChanged) || errors.Is(err, workload.ErrTargetChanged) || errors.Is(err, traffic.ErrRouteChanged)
}
