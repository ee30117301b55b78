package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is a Kubernetes event about the release.
type Event struct {
	// At is the time of its last occurrence.
	At time.Time `json:"at"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Message string `json:"message"`
	// Count is the number of occurrences.
	Count int `json:"count,omitempty"`
	// FirstAt is the time of the first of several occurrences, possibly in an earlier release: the controller continues to count when
	// a text is repeated.
	FirstAt time.Time `json:"firstAt,omitzero"`
	// ByUser is true for a command of a user.
	ByUser bool `json:"byUser,omitempty"`
}

// Repetitions returns the number of occurrences of a repeated event with their period, in parentheses after a space; empty for a single
// occurrence.
func (e Event) Repetitions() string {
	switch {
	case e.Count <= 1:
		return ""
	case e.FirstAt.IsZero():
		return fmt.Sprintf(" (%d times)", e.Count)
	case e.At.Sub(e.FirstAt) < 24*time.Hour:
		return fmt.Sprintf(" (%d times since %s)", e.Count, timeOfDay(e.FirstAt))
	default:
		return fmt.Sprintf(" (%d times since %s)", e.Count, e.FirstAt.UTC().Format(time.RFC3339))
	}
}

// eventBounds separate the events of a release from those of the previous one.
type eventBounds struct {
	// first is the prefix of the first event of every release; last are those of the event with which it ends.
	first string
	last  []string
	// ends are the ends of past releases, in whole seconds, like the times of events.
	ends []time.Time
}

// eventsOfRelease returns the events since the start of the last release, after the commands of users that led to it, for example a
// retry, an undo, or the approval of its start. The events are sorted; all are returned if none is the start.
//
// A command has the time at which its user recorded it, after the command was sent. Even in the same second, it may be sorted before
// or after what the controller did, because a repeated event has the name of its first occurrence.
func eventsOfRelease(events []Event, bounds eventBounds) []Event {
	start := len(events) - 1
	for start >= 0 && !strings.HasPrefix(events[start].Message, bounds.first) {
		start--
	}
	if start < 0 {
		return slices.Clone(events)
	}
	var ended time.Time // the end of the previous release
	for _, end := range bounds.ends {
		if end.After(ended) && !end.After(events[start].At) {
			ended = end
		}
	}
	var out []Event
	for _, event := range events[:start] {
		switch {
		case event.At.Before(ended):
		case bounds.endsRelease(event):
			out = nil
		case event.ByUser:
			out = append(out, event)
		}
	}
	return append(out, events[start:]...)
}

// endsRelease reports whether an event is about the end of a release: that it has ended, or a command that ends it. What follows may
// belong to the next release.
func (b eventBounds) endsRelease(event Event) bool {
	prefixes := b.last
	if event.ByUser {
		prefixes = []string{"abort ", "deny "}
	}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(event.Message, prefix) })
}
