package oracle

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Release is what an observer knows of a release of any API. S is what one spec requests. The records of the APIs embed it.
type Release[S any] struct {
	Key   types.NamespacedName
	UID   types.UID
	Specs Timeline[S]
	// SuspendedSince is when the spec began to suspend or pause the release, IdleSince when the release became idle, and
	// DeletedAt when it was removed. Zero means that this is not the case.
	SuspendedSince, IdleSince, DeletedAt time.Time
}

// Name returns the name of the release for violations.
func (r *Release[S]) Name() string { return r.Key.Name }

// Gone reports whether the release was removed.
func (r *Release[S]) Gone() bool { return !r.DeletedAt.IsZero() }

// SetSuspended records whether the spec suspends or pauses the release.
func (r *Release[S]) SetSuspended(suspended bool, now time.Time) {
	setSince(&r.SuspendedSince, suspended, now)
}

// SetIdle records whether the release is idle.
func (r *Release[S]) SetIdle(idle bool, now time.Time) { setSince(&r.IdleSince, idle, now) }

// setSince records since when something is the case; zero: it is not.
func setSince(since *time.Time, is bool, now time.Time) {
	switch {
	case !is:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	}
}

// Releases contains the records R of all releases of a run.
type Releases[R comparable] struct {
	ByUID map[types.UID]R
	// ByName contains the existing releases.
	ByName map[types.NamespacedName]R
	// All contains all releases in the order of their creation.
	All []R
}

// NewReleases returns an empty set of releases.
func NewReleases[R comparable]() Releases[R] {
	return Releases[R]{ByUID: map[types.UID]R{}, ByName: map[types.NamespacedName]R{}}
}

// Add records a release that was created.
func (s *Releases[R]) Add(key types.NamespacedName, uid types.UID, r R) {
	s.ByUID[uid], s.ByName[key] = r, r
	s.All = append(s.All, r)
}

// Remove records that a release was removed. Its name may already belong to another release.
func (s *Releases[R]) Remove(key types.NamespacedName, r R) {
	if s.ByName[key] == r {
		delete(s.ByName, key)
	}
}
