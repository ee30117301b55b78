package cluster

import "time"

// wish is what a Deployment asks for.
type wish struct {
	replicas, surge, unavailable int
	recreate, paused             bool
	minReady, deadline           time.Duration // no deadline: zero
	history                      int
	template, selector           map[string]any
}

// noDeadline is the number of seconds that Kubernetes takes for no deadline at all.
const noDeadline = 1<<31 - 1

func wishOf(content map[string]any) wish {
	spec := object(content, "spec")
	update := object(spec, "strategy", "rollingUpdate")
	w := wish{
		replicas: number(spec, "replicas", 1), recreate: text(object(spec, "strategy"), "type") == "Recreate",
		paused: spec["paused"] == true, minReady: time.Duration(number(spec, "minReadySeconds", 0)) * time.Second,
		history: number(spec, "revisionHistoryLimit", 10), template: object(spec, "template"),
		selector: object(spec, "selector", "matchLabels"),
	}
	if seconds := number(spec, "progressDeadlineSeconds", 600); seconds != noDeadline {
		w.deadline = time.Duration(seconds) * time.Second
	}
	if w.recreate {
		w.unavailable = w.replicas
		return w
	}
	w.surge = fraction(or(update["maxSurge"], "25%"), w.replicas, true)
	w.unavailable = min(fraction(or(update["maxUnavailable"], "25%"), w.replicas, false), w.replicas)
	if w.surge == 0 && w.unavailable == 0 {
		w.unavailable = 1 // else nothing could move
	}
	return w
}

func or(value, otherwise any) any {
	if value == nil {
		return otherwise
	}
	return value
}

// size is how many pods a ReplicaSet shall have, and how many of its pods are available.
type size struct{ wanted, available int }

func total(sizes []size) (wanted, available int) {
	for _, s := range sizes {
		wanted += s.wanted
		available += s.available
	}
	return wanted, available
}

// grown is the next size of the newest ReplicaSet: as many pods as there is room for above the others.
func (w wish) grown(fresh size, old []size) int {
	if fresh.wanted >= w.replicas {
		return w.replicas
	}
	others, _ := total(old)
	room := w.replicas + w.surge - others - fresh.wanted
	return min(fresh.wanted+max(room, 0), w.replicas)
}

// shrunk are the next sizes of the older ReplicaSets, the oldest first: pods that are not available go first, others as
// far as enough stay available.
func (w wish) shrunk(fresh size, old []size) []int {
	next := make([]int, len(old))
	for i, s := range old {
		next[i] = s.wanted
	}
	wanted, available := total(old)
	least := w.replicas - w.unavailable
	spare := wanted + fresh.wanted - least - (fresh.wanted - fresh.available)
	for i, s := range old {
		gone := min(max(spare, 0), max(s.wanted-s.available, 0))
		next[i] -= gone
		spare -= gone
	}
	spare = min(spare, available+fresh.available-least)
	for i := range next {
		gone := min(max(spare, 0), next[i])
		next[i] -= gone
		spare -= gone
	}
	return next
}

// resized are the sizes of several ReplicaSets, in the order given, after the Deployment was scaled in the middle of a
// rollout: each keeps its share, and what rounding leaves goes to the last, which is the newest.
func (w wish) resized(sizes []int, before int) []int {
	allowed, sum := 0, 0
	if w.replicas > 0 {
		allowed = w.replicas + w.surge
	}
	next := make([]int, len(sizes))
	for i, n := range sizes {
		if was := before + w.surge; was > 0 {
			next[i] = (2*n*allowed + was) / (2 * was) // rounded
		}
		sum += next[i]
	}
	for i := len(next) - 1; i >= 0 && sum > allowed; i-- {
		gone := min(sum-allowed, next[i])
		next[i] -= gone
		sum -= gone
	}
	if last := len(next) - 1; last >= 0 && sum < allowed {
		grew := allowed > before+w.surge
		if grew {
			next[last] += allowed - sum
		}
	}
	return next
}

// counts are the numbers in a Deployment's status.
type counts struct{ total, updated, ready, available, unavailable int }

// progressed is true when a rollout came further.
func (n counts) progressed(was counts) bool {
	return n.updated > was.updated || n.total-n.updated < was.total-was.updated || n.ready > was.ready || n.available > was.available
}

// complete is true when a rollout is at its end.
func (n counts) complete(w wish) bool {
	return n.updated == w.replicas && n.total == w.replicas && n.available >= w.replicas
}

// Reasons of the condition Progressing.
const (
	created  = "NewReplicaSetCreated"
	found    = "FoundNewReplicaSet"
	updated  = "ReplicaSetUpdated"
	finished = "NewReplicaSetAvailable"
	exceeded = "ProgressDeadlineExceeded"
	stopped  = "DeploymentPaused"
	resumed  = "DeploymentResumed"
)

// condition is one condition of a Deployment.
type condition struct {
	status, reason       string
	updated, transitions time.Time
}

// set changes a condition; the moment of transition moves with the status only.
func (c *condition) set(now time.Time, status, reason string) {
	if c.status != status {
		c.transitions = now
	}
	c.status, c.reason, c.updated = status, reason, now
}

// proceed brings the condition Progressing up to date with new counts.
func (c *condition) proceed(now time.Time, w wish, n, was counts) {
	if w.deadline == 0 || w.paused || n.total == n.updated && c.reason == finished {
		return
	}
	switch {
	case n.complete(w):
		c.set(now, "True", finished)
	case n.progressed(was):
		c.set(now, "True", updated)
	case c.counting() && !now.Before(c.updated.Add(w.deadline)):
		c.set(now, "False", exceeded)
	}
}

// counting is true while the deadline runs.
func (c *condition) counting() bool {
	switch c.reason {
	case created, found, updated, resumed:
		return true
	default:
		return false
	}
}
