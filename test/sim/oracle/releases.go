package oracle

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Release is what an observer knows of a release of any API; S is what one spec asks for. The records of the APIs embed it.
type Release[S any] struct {
	Key   types.NamespacedName
	UID   types.UID
	Specs Timeline[S]
	// Suspended is since when the spec suspends or pauses it, Rested since when it is at rest, and Deleted when it was removed;
	// zero: it is not.
	Suspended, Rested, Deleted time.Time
}

// Name of a release in a violation.
func (r *Release[S]) Name() string { return r.Key.Name }

// Gone reports whether the release was removed.
func (r *Release[S]) Gone() bool { return !r.Deleted.IsZero() }

// Releases are the records R of all releases of a run.
type Releases[R comparable] struct {
	ByUID map[types.UID]R
	// ByName are those that exist.
	ByName map[types.NamespacedName]R
	// All are in the order of their creation.
	All []R
}

// NewReleases returns no releases.
func NewReleases[R comparable]() Releases[R] {
	return Releases[R]{ByUID: map[types.UID]R{}, ByName: map[types.NamespacedName]R{}}
}

// Add records a release that was created.
func (s *Releases[R]) Add(key types.NamespacedName, uid types.UID, r R) {
	s.ByUID[uid], s.ByName[key] = r, r
	s.All = append(s.All, r)
}

// Remove records that a release was removed. Another one may already have its name.
func (s *Releases[R]) Remove(key types.NamespacedName, r R) {
	if s.ByName[key] == r {
		delete(s.ByName, key)
	}
}
