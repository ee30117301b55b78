package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/oracle"
)

// pauses records when pauses began, for I14.
type pauses struct {
	*ledger

	began map[types.UID]time.Time // when the status reported the pause of a step
}

// endedPauses returns the facts for I14.
func (c *pauses) endedPauses(event any) []oracle.Period {
	h, ok := event.(rolloutWritten)
	if !ok || h.Record == nil || !h.StatusChanged() {
		return nil
	}
	var ended []oracle.Period
	before, after := stepPause(h.Before.Status), stepPause(h.After.Status)
	another := before != nil && after != nil && (!before.StartTime.Equal(&after.StartTime) || !sameStep(h.Before.Status, h.After.Status))
	if before != nil && (after == nil || another) && h.BySerin && !h.beginsRun {
		ended = c.endedPause(h, *before)
	}
	switch {
	case after == nil:
		delete(c.began, h.Record.UID)
	case before == nil || another:
		c.began[h.Record.UID] = c.Now()
	}
	return ended
}

func sameStep(a, b argov1.RolloutStatus) bool {
	return equality.Semantic.DeepEqual(a.CurrentStepIndex, b.CurrentStepIndex)
}

func stepPause(s argov1.RolloutStatus) *argov1.PauseCondition {
	i := slices.IndexFunc(s.PauseConditions, func(p argov1.PauseCondition) bool { return p.Reason == argov1.PauseReasonCanaryPauseStep })
	if i < 0 {
		return nil
	}
	return &s.PauseConditions[i]
}

// endedPause returns a pause that Serin ended, unless the release left the step for another reason.
func (c *pauses) endedPause(h rolloutWritten, pause argov1.PauseCondition) []oracle.Period {
	r, s, index := h.Record, h.After.Status, h.Before.Status.CurrentStepIndex
	began, known := c.began[r.UID]
	if !known || index == nil || s.CurrentStepIndex == nil || *s.CurrentStepIndex <= *index || s.Abort || h.Before.Status.PromoteFull || s.PromoteFull ||
		r.object.Spec.RollbackWindow != nil || !c.followsPlan(r) || c.hasNoStable(h) {
		return nil
	}
	if !c.Clocks.Consistent(began.Add(-c.Lag)) {
		return nil
	}
	from, slack := pause.StartTime.Time, time.Second // whole seconds
	if c.Clocks.Changed {
		from, slack = began, c.maxLatency()+time.Second
	}
	shortest := time.Duration(-1)
	for _, spec := range c.expectedSpecs(r) {
		if length, paused := pauseOf(spec, *index); !paused {
			return nil
		} else if shortest < 0 || length < shortest {
			shortest = length
		}
	}
	return []oracle.Period{{Release: r.Name(), What: fmt.Sprintf("the pause of step %d ended", *index), Began: from, Length: shortest - slack}}
}

// hasNoStable reports whether a revision is promoted unconditionally, because no stable ReplicaSet exists.
func (c *pauses) hasNoStable(h rolloutWritten) bool {
	return h.Before.Status.StableRS != h.After.Status.StableRS && c.replicaSetOf(h.Record, h.Before.Status.StableRS) == nil
}

// maxLatency returns how long before a write is observed its time may have been read.
func (c *pauses) maxLatency() time.Duration {
	if c.SlowCalls {
		return 40 * time.Second
	}
	return time.Second
}

// pauseOf returns the length of a pause, or false if the step is not a pause, or lasts until a user ends it.
func pauseOf(spec *argov1.RolloutSpec, index int32) (time.Duration, bool) {
	canary := spec.Strategy.Canary
	if canary == nil || int(index) >= len(canary.Steps) || canary.Steps[index].Pause == nil || canary.Steps[index].Pause.Duration == nil {
		return 0, false
	}
	return time.Duration(canary.Steps[index].Pause.Duration.IntValue()) * time.Second, true
}
