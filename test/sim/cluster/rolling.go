package cluster

import "time"

// deploymentSpec is the spec of a Deployment.
type deploymentSpec struct {
	replicas, surge, unavailable int
	recreate, paused             bool
	minReady, deadline           time.Duration // no deadline: zero
	history                      int
	template, selector           map[string]any
}

// noDeadline is the number of seconds that Kubernetes interprets as no deadline.
const noDeadline = 1<<31 - 1

func readSpec(content map[string]any) deploymentSpec {
	spec := object(content, "spec")
	update := object(spec, "strategy", "rollingUpdate")
	w := deploymentSpec{
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
	w.surge = fraction(orDefault(update["maxSurge"], "25%"), w.replicas, true)
	w.unavailable = min(fraction(orDefault(update["maxUnavailable"], "25%"), w.replicas, false), w.replicas)
	if w.surge == 0 && w.unavailable == 0 {
		w.unavailable = 1 // otherwise no pod could be replaced
	}
	return w
}

func orDefault(value, otherwise any) any {
	if value == nil {
		return otherwise
	}
	return value
}

// size is the desired number of pods of a ReplicaSet, and the number of available ones.
type size struct{ desired, available int }

func total(sizes []size) (wanted, available int) {
	for _, s := range sizes {
		wanted += s.desired
		available += s.available
	}
	return wanted, available
}

// nextNewSize returns the next size of the newest ReplicaSet: as many pods as maxSurge allows in addition to the others.
func (w deploymentSpec) nextNewSize(fresh size, old []size) int {
	if fresh.desired >= w.replicas {
		return w.replicas
	}
	others, _ := total(old)
	room := w.replicas + w.surge - others - fresh.desired
	return min(fresh.desired+max(room, 0), w.replicas)
}

// nextOldSizes returns the next sizes of the older ReplicaSets, the oldest first: first unavailable pods are removed, then
// others as long as enough pods remain available.
func (w deploymentSpec) nextOldSizes(fresh size, old []size) []int {
	next := make([]int, len(old))
	for i, s := range old {
		next[i] = s.desired
	}
	wanted, available := total(old)
	least := w.replicas - w.unavailable
	spare := wanted + fresh.desired - least - (fresh.desired - fresh.available)
	for i, s := range old {
		gone := min(max(spare, 0), max(s.desired-s.available, 0))
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

// proportionalSizes returns the sizes of several ReplicaSets, in the order given, after the Deployment was scaled during a
// rollout: each keeps its share, and the rounding difference is assigned to the newest.
func (w deploymentSpec) proportionalSizes(sizes []int, before int) []int {
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

// counts are the numbers in the status of a Deployment.
type counts struct{ total, updated, ready, available, unavailable int }

// progressed reports whether a rollout made progress.
func (n counts) progressed(was counts) bool {
	return n.updated > was.updated || n.total-n.updated < was.total-was.updated || n.ready > was.ready || n.available > was.available
}

// complete reports whether a rollout is complete.
func (n counts) complete(w deploymentSpec) bool {
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

// set changes a condition. The transition time changes only with the status.
func (c *condition) set(now time.Time, status, reason string) {
	if c.status != status {
		c.transitions = now
	}
	c.status, c.reason, c.updated = status, reason, now
}

// proceed updates the condition Progressing for new counts.
func (c *condition) proceed(now time.Time, w deploymentSpec, n, was counts) {
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

// counting reports whether the deadline is running.
func (c *condition) counting() bool {
	switch c.reason {
	case created, found, updated, resumed:
		return true
	default:
		return false
	}
}
