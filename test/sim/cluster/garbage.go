package cluster

import (
	"time"

	"github.com/serin-dev/serin/test/sim/store"
)

// collectAfter wakes the collector of garbage where an object went, waits to go, or came too late for its owner.
func (c *Cluster) collectAfter(e *store.Event) {
	meta := e.New.Meta()
	if e.Type == store.Deleted {
		delete(c.alive, meta.UID)
		c.collect(c.garbage.Skewed(50*time.Millisecond, 10*time.Second))
		return
	}
	c.alive[meta.UID] = true
	orphan := false
	for _, owner := range meta.OwnerReferences {
		orphan = orphan || !c.alive[owner.UID]
	}
	if orphan || meta.DeletionTimestamp != nil {
		c.collect(c.garbage.Skewed(50*time.Millisecond, 10*time.Second))
	}
}

// collect plans one step of the collector, and more after it for as long as there is something to do.
func (c *Cluster) collect(wait time.Duration) {
	if c.collecting {
		return
	}
	c.collecting = true
	c.world.After(wait, func() {
		c.collecting = false
		done, err := c.world.Server.Collect("garbage-collector", steps)
		c.wrote("what is garbage", err)
		if done > 0 {
			c.collect(c.garbage.Skewed(10*time.Millisecond, time.Second))
		}
	})
}

// steps of the collector at a time: others may act between them.
const steps = 2
