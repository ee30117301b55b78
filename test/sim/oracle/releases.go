package oracle

import "k8s.io/apimachinery/pkg/types"

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

// Remove records that a release is gone. Another one may already have its name.
func (s *Releases[R]) Remove(key types.NamespacedName, r R) {
	if s.ByName[key] == r {
		delete(s.ByName, key)
	}
}
