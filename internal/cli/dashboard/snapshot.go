package dashboard

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// snapshot is what is known about all releases at one time. It is immutable.
type snapshot struct {
	// version counts the changes; statusVersion is the version in which the status changed.
	version, statusVersion uint64
	// entries are all releases, sorted by their keys. removed are those that were deleted, with the version in which they were, and
	// removedUntil is the newest version whose removals are forgotten.
	entries      []*entry
	removed      map[explain.Key]uint64
	removedUntil uint64
	status       Status
	// due is the earliest time at which a description changes even if the cluster does not; zero: never.
	due time.Time
}

// entry is one release. It is immutable apart from its memory.
type entry struct {
	key explain.Key
	// version is the version of the snapshot in which the release changed last.
	version  uint64
	observed explain.Observation
	release  *explain.Release
	fleet    explain.FleetRelease
	labels   labels.Set
	memory   *memory
}

// memory is what is remembered about a release while it changes.
type memory struct {
	mu       sync.Mutex
	recorder explain.Recorder

	// detail is the last detail that was read, with what it was read for.
	detailMu      sync.Mutex
	detail        *readDetail
	detailVersion explain.Version
}

// readDetail is the part of a detail that is read from the API server.
type readDetail struct {
	tree    *explain.Tree
	history []explain.PastRelease
	err     error
}

// newEntry returns the entry of a release that was described again, and records what its status contains only for the moment. before
// is its previous entry; nil: there is none, but there may be a recording.
func newEntry(observed explain.Observation, r *explain.Release, before *entry, recording *memory, version uint64, now time.Time) *entry {
	e := &entry{key: observed.Key(), version: version, observed: observed, release: r, fleet: explain.NewFleetRelease(observed, r), labels: labelsOf(observed)}
	if before == nil {
		e.memory = cmp.Or(recording, &memory{})
	} else if e.memory = before.memory; before.observed.Version() == observed.Version() && before.fleet.Equal(e.fleet) && slices.Equal(before.release.Events, r.Events) {
		e.version = before.version
		return e
	}
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	e.memory.recorder.Record(observed, r, now)
	return e
}

// interruptRecordings marks the time in which the releases are not followed.
func (s *snapshot) interruptRecordings() {
	for _, e := range s.entries {
		e.memory.mu.Lock()
		e.memory.recorder.Interrupt()
		e.memory.mu.Unlock()
	}
}

// forgetRemoved bounds the number of removed releases.
func (s *snapshot) forgetRemoved() {
	for len(s.removed) > maxRemoved {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(s.removed)), func(a, b explain.Key) int { return cmp.Compare(s.removed[a], s.removed[b]) })
		s.removedUntil = max(s.removedUntil, s.removed[oldest])
		delete(s.removed, oldest)
	}
}

// forgetRecordings bounds the number of recordings: those of the releases that have not changed for longest are deleted.
func (s *snapshot) forgetRecordings() {
	var recorded []*entry
	for _, e := range s.entries {
		e.memory.mu.Lock()
		if len(e.memory.recorder.Series) > 0 {
			recorded = append(recorded, e)
		}
		e.memory.mu.Unlock()
	}
	if len(recorded) <= maxRecordings {
		return
	}
	slices.SortFunc(recorded, func(a, b *entry) int { return cmp.Compare(a.version, b.version) })
	for _, e := range recorded[:len(recorded)-maxRecordings] {
		e.memory.mu.Lock()
		e.memory.recorder.Series = nil
		e.memory.mu.Unlock()
	}
}
