package explain_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// fleet returns one or more releases of each group in the order of urgency.
func fleet(now time.Time) []explain.Release {
	waits := func(name string, opener release.Opener, age time.Duration) []explain.Gate {
		return []explain.Gate{{Name: name, Verdict: string(release.Wait), Opener: string(opener), Since: now.Add(-age)}}
	}
	return []explain.Release{
		{Name: "old-approval", State: release.WaitsForUser, Gates: waits("confirm-rollout", release.ByUser, time.Hour)},
		{Name: "new-approval", State: release.WaitsForUser, Gates: waits("confirm-rollout", release.ByUser, time.Minute)},
		{Name: "unknown-wait", State: release.WaitsForUser},
		{Name: "rolls-back", State: release.RollingBack, Result: release.RolledBack},
		{Name: "slow", State: release.InProgress, Gates: waits("window", release.ByTime, 2*time.Minute)},
		{Name: "quick", State: release.InProgress, Since: now.Add(-time.Minute)},
		{Name: "queued", State: release.InProgress, Gates: waits("turn", release.ByCluster, 3*time.Hour)},
		{Name: "failed", State: release.Idle, Result: release.RolledBack, Since: now.Add(-time.Minute)},
		{Name: "idle-a", State: release.Idle, Result: release.Promoted, Since: now},
		{Name: "idle-b", State: release.Idle, Since: now.Add(-time.Hour)},
	}
}

func TestReleasesAreSortedByUrgency(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	wanted := fleet(now)
	for range 100 {
		got := fleet(now)
		rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		explain.SortByUrgency(got)
		for i := range wanted {
			if got[i].Name != wanted[i].Name {
				t.Fatalf("release %d is %s, want %s", i, got[i].Name, wanted[i].Name)
			}
		}
	}
}

func TestSummaryCountsEachReleaseOnce(t *testing.T) {
	want := explain.Summary{NeedUser: 3, RollingBack: 1, Advancing: 2, Queued: 1, Failed: 1, Idle: 2}
	if got := explain.Summarize(fleet(time.Unix(1_800_000_000, 0))); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := explain.Summarize(nil); got != (explain.Summary{}) {
		t.Errorf("without releases, got %+v", got)
	}
}

// observation is an observation with a fixed description.
type observation struct {
	explain.Observation

	r     explain.Release
	queue *release.QueueState
}

func (o observation) Describe(time.Time) explain.Release { return o.r }
func (observation) Images() explain.Images               { return explain.Images{} }
func (o observation) QueueState() *release.QueueState    { return o.queue }
func (observation) TimedGates() []explain.TimedGate      { return nil }
func (observation) Shared() explain.SharedObservation    { return explain.SharedObservation{} }

func TestTopListsReleasesInProgressAndSortsTheQueueByPlace(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	var all []explain.Observation
	for _, r := range fleet(now) {
		all = append(all, observation{r: r, queue: &release.QueueState{Open: true}})
	}
	for i, name := range []string{"third", "second"} { // "third" has waited longer, but has a lower priority
		r := explain.Release{Name: name, State: release.InProgress, Gates: []explain.Gate{{Name: "turn", Verdict: "wait", Since: now.Add(time.Duration(i-10) * time.Hour)}}}
		all = append(all, observation{r: r, queue: &release.QueueState{Position: 3 - i, Waiting: 3}})
	}
	slices.Reverse(all)
	top := explain.NewTop(all, now)
	var names []string
	for i := range top.Releases {
		names = append(names, top.Releases[i].Name)
	}
	want := []string{"old-approval", "new-approval", "unknown-wait", "rolls-back", "slow", "quick", "second", "third", "queued"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
	if last := top.Releases[len(top.Releases)-2]; last.Place == nil || *last.Place != (explain.Place{Position: 3, Waiting: 3}) {
		t.Errorf("got the place %v of %s, want 3 of 3", last.Place, last.Name)
	}
	if top.Releases[0].Place != nil {
		t.Error("a release that is not in the queue has a place")
	}
	if want := (explain.Summary{NeedUser: 3, RollingBack: 1, Advancing: 2, Queued: 3, Failed: 1, Idle: 2}); top.Summary != want {
		t.Errorf("got %+v, want %+v", top.Summary, want)
	}
}
