package explain

import (
	"cmp"
	"math"
	"slices"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// Group is what a release requires from users, in the order of urgency.
type Group string

// The groups, the most urgent one first.
const (
	// NeedsUser: the release continues only after user action.
	NeedsUser Group = "needs-user"
	// GroupRollingBack: all traffic returns to the previous revision.
	GroupRollingBack Group = "rolling-back"
	// Advancing: it continues automatically.
	Advancing Group = "advancing"
	// Queued: it waits until fewer releases are in progress.
	Queued Group = "queued"
	// Failed: the last release was rolled back or aborted, or has exceeded its progress deadline.
	Failed Group = "failed"
	// GroupIdle: it is idle after a success, or no release has started yet.
	GroupIdle Group = "idle"
)

// groups contains all groups in the order of urgency.
var groups = []Group{NeedsUser, GroupRollingBack, Advancing, Queued, Failed, GroupIdle}

// queueGate is the gate that limits the number of concurrent releases.
const queueGate = "turn"

// GroupOf returns the group of a release.
func GroupOf(r *Release) Group {
	first := r.ClosedGate()
	switch {
	case r.State == release.WaitsForUser:
		return NeedsUser
	case r.State == release.RollingBack:
		return GroupRollingBack
	case r.HasFailed():
		return Failed
	case r.State == release.Idle:
		return GroupIdle
	case first != nil && first.Name == queueGate:
		return Queued
	default:
		return Advancing
	}
}

// Images are the images of both revisions of a release; none: unknown.
type Images struct {
	Old []string `json:"old,omitempty"`
	New []string `json:"new,omitempty"`
}

// Place is the place of a release in the queue of those that wait for their start, counted from 1.
type Place struct {
	Position int `json:"position"`
	Waiting  int `json:"waiting"`
}

// TopRelease is a release in progress.
type TopRelease struct {
	Release

	// Group is what the release requires.
	Group Group `json:"group"`
	// Images are those of the revision that serves users, and of the new one.
	Images Images `json:"images,omitzero"`
	// WaitsSince is the time since which the gate is closed that the release waits for; if that is unknown, the time at which it
	// entered its phase.
	WaitsSince time.Time `json:"waitsSince,omitzero"`
	// OverdueSince is the time at which the next step was due, if the controller has recorded nothing since; zero: no step is overdue.
	OverdueSince time.Time `json:"overdueSince,omitzero"`
	// Place in the queue; nil: the release is not in the queue, or its place is unknown.
	Place *Place `json:"place,omitempty"`
}

// Top describes the releases in progress.
type Top struct {
	Summary Summary `json:"summary"`
	// Releases are sorted by urgency.
	Releases []TopRelease `json:"releases"`
}

// Summary counts the releases of each group.
type Summary struct {
	NeedUser    int `json:"needUser"`
	RollingBack int `json:"rollingBack"`
	Advancing   int `json:"advancing"`
	Queued      int `json:"queued"`
	Failed      int `json:"failed"`
	Idle        int `json:"idle"`
}

// Summarize counts the releases of each group.
func Summarize(releases []Release) Summary {
	var s Summary
	for i := range releases {
		s.Count(GroupOf(&releases[i]))
	}
	return s
}

// Count counts one release of a group.
func (s *Summary) Count(group Group) {
	switch group {
	case NeedsUser:
		s.NeedUser++
	case GroupRollingBack:
		s.RollingBack++
	case Advancing:
		s.Advancing++
	case Queued:
		s.Queued++
	case Failed:
		s.Failed++
	case GroupIdle:
		s.Idle++
	}
}

// NewTop describes the observed releases in progress at that time.
func NewTop(observations []Observation, now time.Time) Top {
	top := Top{Releases: []TopRelease{}}
	releases := make([]Release, 0, len(observations))
	for _, observed := range observations {
		r := observed.Describe(now)
		releases = append(releases, r)
		group := GroupOf(&r)
		if group == Failed || group == GroupIdle {
			continue
		}
		one := TopRelease{Release: r, Group: group, Images: observed.Images(), WaitsSince: waitsSince(&r)}
		one.OverdueSince = overdueSince(&r, observed.TimedGates(), observed.Shared().OtherController.Sign != "", now)
		if queue := observed.QueueState(); group == Queued && queue != nil && queue.Position > 0 {
			one.Place = &Place{Position: queue.Position, Waiting: queue.Waiting}
		}
		top.Releases = append(top.Releases, one)
	}
	slices.SortFunc(top.Releases, compareUrgency)
	top.Summary = Summarize(releases)
	return top
}

// SortByUrgency sorts releases as NewTop does, and idle ones behind those in progress.
func SortByUrgency(releases []Release) {
	slices.SortFunc(releases, func(a, b Release) int {
		return compareUrgency(
			TopRelease{Release: a, Group: GroupOf(&a), WaitsSince: waitsSince(&a)}, TopRelease{Release: b, Group: GroupOf(&b), WaitsSince: waitsSince(&b)},
		)
	})
}

// compareUrgency orders by group, then queued releases by their place, then those that have waited longer first. Keys decide
// between others, so that the order is stable.
func compareUrgency(a, b TopRelease) int {
	place := func(r TopRelease) int {
		if r.Place == nil {
			return math.MaxInt
		}
		return r.Place.Position
	}
	since := func(r TopRelease) int64 {
		if r.WaitsSince.IsZero() || r.Group == Failed || r.Group == GroupIdle {
			return math.MaxInt64 // there is no wait, or its beginning is unknown
		}
		return r.WaitsSince.UnixNano()
	}
	return cmp.Or(
		cmp.Compare(slices.Index(groups, a.Group), slices.Index(groups, b.Group)), cmp.Compare(place(a), place(b)), cmp.Compare(since(a), since(b)),
		a.Key().Compare(b.Key()),
	)
}

// waitsSince returns the time since which the gate is closed that the release waits for, or else that of its phase.
func waitsSince(r *Release) time.Time {
	gate := r.UserGate()
	if gate == nil {
		gate = r.ClosedGate()
	}
	if gate != nil && !gate.Since.IsZero() {
		return gate.Since
	}
	return r.Since
}

// Images implements Observation. The status contains those of the release in progress and of past releases.
func (observed *Canary) Images() Images {
	own := observed.Snapshot.Status.Serin
	if own == nil {
		return Images{}
	}
	var out Images
	if own.Release != nil {
		out.New = own.Release.Images
	}
	promoted := func(r flaggerv1.ReleaseRecord) bool {
		return r.Result == string(release.EndingPromoted) || r.Result == string(release.EndingUnanalyzed)
	}
	if i := slices.IndexFunc(own.History, promoted); i >= 0 {
		out.Old = own.History[i].Images
	}
	return out
}

// QueueState implements Observation.
func (observed *Canary) QueueState() *release.QueueState { return observed.Snapshot.Queue }

// QueueEntry implements Observation.
func (observed *Canary) QueueEntry() release.QueueEntry { return canary.QueueEntryOf(observed.Object) }

// Images implements Observation.
func (observed *Rollout) Images() Images {
	s := observed.Snapshot
	out := Images{New: ImagesOf(s.Spec.Template)}
	if s.Status.StableRS != s.Hash {
		out.Old = observed.StableImages
	}
	return out
}

// QueueState implements Observation.
func (observed *Rollout) QueueState() *release.QueueState { return observed.Snapshot.QueueSlot }

// QueueEntry implements Observation.
func (observed *Rollout) QueueEntry() release.QueueEntry {
	return rollout.QueueEntryOf(observed.Object)
}
