package explain

import (
	"slices"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

// Describer describes observed releases repeatedly. Time alone opens gates, so a description is valid for a limited time; until then
// it is reused, so that a screen of a thousand releases costs little. The zero value is ready for use; it is not safe for
// concurrent use.
type Describer struct {
	// cache contains the last description of each release.
	cache map[Key]cachedDescription
}

// cachedDescription is the description of a release with its inputs, and the time until which it is valid.
type cachedDescription struct {
	version    Version
	events     []Event
	validUntil time.Time
	document   Release
}

// Describe describes all releases at that time.
func (d *Describer) Describe(observations []Observation, now time.Time) []Release {
	out := make([]Release, 0, len(observations))
	current := make(map[Key]cachedDescription, len(observations))
	for _, observed := range observations {
		key, version, events := observed.Key(), observed.Version(), observed.Shared().Events
		cached, ok := d.cache[key]
		if !ok || cached.version != version || !slices.Equal(cached.events, events) || !now.Before(cached.validUntil) {
			document := observed.Describe(now)
			cached = cachedDescription{version: version, events: events, validUntil: validUntil(&document, now), document: document}
		}
		current[key] = cached
		out = append(out, cached.document)
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
