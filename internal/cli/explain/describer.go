package explain

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Describer describes observed releases repeatedly. A description costs a run of the state machine, so it is reused until the
// observation is replaced by another one: a screen of ten thousand releases costs as much as those that change. Time alone opens
// gates, so a description is valid for a limited time. The zero value is ready for use; it is not safe for concurrent use.
type Describer struct {
	// cache contains the last description of each release.
	cache map[Key]cachedDescription
}

// cachedDescription is the description of an observation, and the time until which it is valid.
type cachedDescription struct {
	observed   Observation
	validUntil time.Time
	document   *Release
}

// Describe describes all releases at that time. It returns the same pointer for a release until it describes the release again; the
// documents must not be modified. maxOutdated limits how many descriptions are renewed only because time has passed, those that have
// been outdated for longest first.
func (d *Describer) Describe(observations []Observation, now time.Time, maxOutdated int) []*Release {
	out := make([]*Release, len(observations))
	current := make(map[Key]cachedDescription, len(observations))
	var outdated []int
	describe := func(i int) {
		document := observations[i].Describe(now)
		current[observations[i].Key()] = cachedDescription{observed: observations[i], validUntil: validUntil(&document, now), document: &document}
		out[i] = &document
	}
	for i, observed := range observations {
		key := observed.Key()
		cached, ok := d.cache[key]
		if !ok || cached.observed != observed {
			describe(i)
			continue
		}
		current[key], out[i] = cached, cached.document
		if !now.Before(cached.validUntil) {
			outdated = append(outdated, i)
		}
	}
	if len(outdated) > maxOutdated {
		slices.SortStableFunc(outdated, func(a, b int) int {
			return current[observations[a].Key()].validUntil.Compare(current[observations[b].Key()].validUntil)
		})
		outdated = outdated[:maxOutdated]
	}
	for _, i := range outdated {
		describe(i)
	}
	d.cache = current
	return out
}

// ValidUntil returns the earliest time at which a description changes even if the cluster does not; zero: there are no releases.
func (d *Describer) ValidUntil() time.Time {
	var earliest time.Time
	for _, cached := range d.cache {
		if earliest.IsZero() || cached.validUntil.Before(earliest) {
			earliest = cached.validUntil
		}
	}
	return earliest
}

// validUntil returns the time at which a description changes even if the cluster does not.
func validUntil(r *Release, now time.Time) time.Time {
	first := r.ClosedGate()
	if r.State == release.Idle && first == nil {
		return now.Add(time.Hour)
	}
	if first == nil || first.Opener != string(release.ByTime) || !first.Until.After(now) {
		return now // the times of the next steps depend on the current time
	}
	until := first.Until
	for _, gate := range r.Gates {
		if gate.Until.After(now) && gate.Until.Before(until) {
			until = gate.Until
		}
	}
	return until
}
