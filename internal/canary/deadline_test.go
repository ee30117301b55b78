package canary

import (
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/release"
)

func TestReadinessTrackRecordsItsOwnObservations(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return start.Add(time.Duration(minute) * time.Minute) }
	workloadWith := func(replicas, updated, ready, available int32) WorkloadState {
		return WorkloadState{
			Found: true, Replicas: replicas, Updated: updated, ReadyPods: ready, Available: available, Ready: available >= replicas,
			Endpoints: release.Endpoints{Ready: available},
		}
	}
	ready := workloadWith(4, 4, 4, 4)
	replaced := func(c WorkloadState) WorkloadState { // with another template
		c.ID = "new"
		return c
	}
	unpublished := ready
	unpublished.Endpoints = release.Endpoints{}
	type observation struct {
		minute              int
		copy                WorkloadState
		unready, progressed int // minutes; -1: never
	}
	for name, observations := range map[string][]observation{
		"the first observation starts the time":           {{1, workloadWith(4, 4, 3, 3), 1, -1}, {2, workloadWith(4, 4, 3, 3), 1, -1}},
		"losing readiness":                                {{1, ready, -1, -1}, {2, workloadWith(4, 4, 3, 3), 2, 2}, {3, workloadWith(4, 4, 3, 3), 2, 2}},
		"being scaled up":                                 {{1, ready, -1, -1}, {2, workloadWith(8, 4, 4, 4), 2, 2}},
		"more updated pods":                               {{1, workloadWith(4, 1, 3, 3), 1, -1}, {2, workloadWith(4, 2, 3, 3), 1, 2}},
		"more ready pods":                                 {{1, workloadWith(4, 4, 2, 2), 1, -1}, {2, workloadWith(4, 4, 3, 2), 1, 2}},
		"more available pods":                             {{1, workloadWith(4, 4, 3, 2), 1, -1}, {2, workloadWith(4, 4, 3, 3), 1, 2}},
		"fewer pods are no progress":                      {{1, workloadWith(4, 4, 3, 3), 1, -1}, {2, workloadWith(4, 4, 2, 2), 1, -1}},
		"pods that come back are progress":                {{1, workloadWith(4, 4, 3, 3), 1, -1}, {2, workloadWith(4, 4, 2, 2), 1, -1}, {3, workloadWith(4, 4, 3, 3), 1, 3}},
		"ready, but no endpoint is published yet":         {{1, workloadWith(4, 4, 3, 3), 1, -1}, {2, unpublished, 2, 2}, {3, ready, -1, 3}},
		"a new template that the status does not know of": {{1, workloadWith(1, 1, 0, 0), 1, -1}, {2, replaced(workloadWith(1, 1, 0, 0)), 1, 2}, {3, replaced(workloadWith(1, 0, 0, 0)), 1, 2}},
		"a clock that is set back":                        {{5, workloadWith(4, 4, 3, 3), 5, -1}, {6, workloadWith(4, 4, 4, 3), 5, 6}, {2, workloadWith(4, 4, 4, 3), 2, 2}},
	} {
		var track ReadinessTrack
		for _, o := range observations {
			track = track.Observe(o.copy, at(o.minute))
			for what, moments := range map[string]struct {
				got  time.Time
				want int
			}{"unready": {track.UnreadySince, o.unready}, "progressed": {track.LastProgress, o.progressed}} {
				want := time.Time{}
				if moments.want >= 0 {
					want = at(moments.want)
				}
				if !moments.got.Equal(want) {
					t.Errorf("%s, minute %d: %s is %s, want %s", name, o.minute, what, moments.got, want)
				}
			}
		}
	}
}
