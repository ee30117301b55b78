package cluster

import (
	"time"

	"github.com/serin-dev/serin/test/sim/store"
)

// collectGarbageAfter schedules the garbage collector if an object was deleted, is being deleted, or was created after the
// deletion of its owner.
func (c *Cluster) collectGarbageAfter(e *store.Event) {
	meta := e.New.Meta()
	if e.Type == store.Deleted {
		delete(c.alive, meta.UID)
		c.scheduleCollection(c.garbage.Skewed(50*time.Millisecond, 10*time.Second))
		return
	}
	c.alive[meta.UID] = true
	orphan := false
	for _, owner := range meta.OwnerReferences {
		orphan = orphan || !c.alive[owner.UID]
	}
	if orphan || meta.DeletionTimestamp != nil {
		c.scheduleCollection(c.garbage.Skewed(50*time.Millisecond, 10*time.Second))
	}
}

// scheduleCollection schedules one step of the garbage collector, and further steps while there is garbage.
func (c *Cluster) scheduleCollection(wait time.Duration) {
	if c.collecting {
		return
	}
	c.collecting = true
	c.world.After(wait, func() {
		c.collecting = false
		done, err := c.world.Server.Collect("garbage-collector", maxWritesPerStep)
		c.checkWrite("garbage", err)
		if done > 0 {
			c.scheduleCollection(c.garbage.Skewed(10*time.Millisecond, time.Second))
		}
	})
}

// maxWritesPerStep is the maximum number of writes per step: other actors may act between the steps.
const maxWritesPerStep = 2
