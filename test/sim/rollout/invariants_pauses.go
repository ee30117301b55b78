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

	began map[types.UID]time.Time // when the status said that the pause of a step is on
}

// ended are facts for I14.
func (c *pauses) ended(event any) []oracle.Period {
	h, ok := event.(rolloutWritten)
	if !ok || h.of == nil || !h.status() {
		return nil
	}
	var ended []oracle.Period
	before, after := stepPause(h.before.Status), stepPause(h.after.Status)
	another := before != nil && after != nil && (!before.StartTime.Equal(&after.StartTime) || !sameStep(h.before.Status, h.after.Status))
	if before != nil && (after == nil || another) && h.BySerin && !h.begins {
		ended = c.pause(h, *before)
	}
	switch {
	case after == nil:
		delete(c.began, h.of.UID)
	case before == nil || another:
		c.began[h.of.UID] = c.Now()
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

// pause is a pause that Serin ended: it lasted for as long as its step says, unless the release went elsewhere.
func (c *pauses) pause(h rolloutWritten, pause argov1.PauseCondition) []oracle.Period {
	r, s, index := h.of, h.after.Status, h.before.Status.CurrentStepIndex
	began, known := c.began[r.UID]
	if !known || index == nil || s.CurrentStepIndex == nil || *s.CurrentStepIndex <= *index || s.Abort || h.before.Status.PromoteFull || s.PromoteFull ||
		r.object.Spec.RollbackWindow != nil || !c.plain(r) || c.alone(h) {
		return nil
	}
	if !c.Clocks.Consistent(began.Add(-c.Lag)) {
		return nil
	}
	from, slack := pause.StartTime.Time, time.Second // whole seconds
	if c.Clocks.Changed {
		from, slack = began, c.latency()+time.Second
	}
	shortest := time.Duration(-1)
	for _, spec := range c.expectedSpecs(r) {
		if length, paused := pauseOf(spec, *index); !paused {
			return nil
		} else if shortest < 0 || length < shortest {
			shortest = length
		}
	}
	return []oracle.Period{{Release: r.Name(), What: fmt.Sprintf("the pause of step %d was over", *index), Began: from, Length: shortest - slack}}
}

// alone is true of a revision that is promoted whatever holds it, because there is no other.
func (c *pauses) alone(h rolloutWritten) bool {
	return h.before.Status.StableRS != h.after.Status.StableRS && c.setOf(h.of, h.before.Status.StableRS) == nil
}

// latency is how long before a write is seen its moment may have been taken.
func (c *pauses) latency() time.Duration {
	if c.SlowCalls {
		return 40 * time.Second
	}
	return time.Second
}

// pauseOf is the length of a pause; false: the step is none, or lasts until a user ends it.
func pauseOf(spec *argov1.RolloutSpec, index int32) (time.Duration, bool) {
	canary := spec.Strategy.Canary
	if canary == nil || int(index) >= len(canary.Steps) || canary.Steps[index].Pause == nil || canary.Steps[index].Pause.Duration == nil {
		return 0, false
	}
	return time.Duration(canary.Steps[index].Pause.Duration.IntValue()) * time.Second, true
}
