package oracle

import "time"

// TrafficShift is a change that sends requests to other pods than before.
type TrafficShift struct {
	Release, What string
	// To are the pods that receive the requests after the change.
	To *Pods
	// OthersAnswer means that other pods of the release could answer all the time.
	OthersAnswer bool
}

// ReadyBackends is the part of I1 about changes: requests are sent to pods that answer, as long as the release has such pods.
func ReadyBackends(l *Ledger, moves func(event any) []TrafficShift) Checker {
	return checkEach(moves, func(m TrafficShift) {
		if m.OthersAnswer && !m.To.AnsweredOnceSince(l.OldestView().Add(-l.LossDetection)) {
			l.Violate("I1", m.Release, "%s, but none of its pods has answered for %s", m.What, l.Lag+l.LossDetection)
		}
	})
}

// WeightChange is a write of a route, with the weight of the new revision before and after it.
type WeightChange struct {
	Release, Phase string
	From, To       int
	// Problem describes why the weights of the route are invalid; empty: they are valid.
	Problem string
	// Allowed means that the plan (I2) or the number of ready pods (I7) allows the weight.
	Allowed bool
}

// PlannedWeights is I2: weights are valid, and change only as planned.
func PlannedWeights(l *Ledger, changes func(event any) []WeightChange) Checker {
	return checkEach(changes, func(w WeightChange) {
		switch {
		case w.Problem != "":
			l.Violate("I2", w.Release, "%s", w.Problem)
		case w.From != w.To && !w.Allowed:
			l.Violate("I2", w.Release, "in phase %q the weight of the canary changed from %d to %d, which is not planned", w.Phase, w.From, w.To)
		}
	})
}

// ReadyBeforeWeight is I7: a weight rises only while the canary has enough ready pods.
func ReadyBeforeWeight(l *Ledger, changes func(event any) []WeightChange) Checker {
	return checkEach(changes, func(w WeightChange) {
		if w.To > w.From && !w.Allowed {
			l.Violate("I7", w.Release, "the weight of the canary rose from %d to %d, but the canary has not had enough ready pods for %s", w.From, w.To, l.Lag)
		}
	})
}

// GradualRollback is a rollback during which traffic returns gradually, at a time at which every process knows the pods.
type GradualRollback struct {
	Release string
	Began   time.Time
	// Share is the weight of the revision that is rolled back, in percent.
	Share int
	// Available is the number of pods that the previous revision has had at all times, Required the number of pods for all
	// traffic.
	Available, Required int
}

// RespectsCapacity is the part of I34 about the remaining traffic: pods of the previous revision receive the share that they
// have capacity for.
func RespectsCapacity(l *Ledger, returns func(event any) []GradualRollback) Checker {
	return checkEach(returns, func(r GradualRollback) {
		if r.Available > 0 && r.Share > 100-CapacityPercent(r.Available, r.Required) {
			l.Violate("I34", r.Release, "it was rolled back %s ago and still has %d percent of the traffic, although the previous revision has had %d pods of the %d that all traffic requires",
				l.Now().Sub(r.Began), r.Share, r.Available, r.Required)
		}
	})
}

// CapacityPercent returns the share of the traffic, in percent, that a number of pods has capacity for if required pods have
// capacity for all traffic.
func CapacityPercent(pods, required int) int {
	if required <= 0 {
		return 100
	}
	return min(100*pods/required, 100)
}
