package oracle

import "time"

// Move is a change that leads requests to other pods than before.
type Move struct {
	Release, What string
	// To are the pods.
	To *Pods
	// OthersAnswer: other pods of the release could answer all the time.
	OthersAnswer bool
}

// ReadyBackends is the part of I1 about changes: requests go to pods that answer, as long as the release has some.
func ReadyBackends(l *Ledger, moves func(event any) []Move) Checker {
	return each(moves, func(m Move) {
		if m.OthersAnswer && !m.To.CouldAnswer(l.OldestView()) {
			l.Violate("I1", m.Release, "%s, but none of its pods has answered for %s", m.What, l.Lag)
		}
	})
}

// WeightChange is a write of a route, with the weight that the new revision had and has.
type WeightChange struct {
	Release, Phase string
	From, To       int
	// Problem is why the weights of the route are invalid; empty: they are valid.
	Problem string
	// Allowed: a plan (I2), or the number of ready pods (I7), allows the weight.
	Allowed bool
}

// PlannedWeights is I2: weights are valid, and change only as planned.
func PlannedWeights(l *Ledger, changes func(event any) []WeightChange) Checker {
	return each(changes, func(w WeightChange) {
		switch {
		case w.Problem != "":
			l.Violate("I2", w.Release, "%s", w.Problem)
		case w.From != w.To && !w.Allowed:
			l.Violate("I2", w.Release, "in phase %q the canary's weight went from %d to %d, which is not planned", w.Phase, w.From, w.To)
		}
	})
}

// ReadyBeforeWeight is I7: a weight rises only while the canary has enough ready pods.
func ReadyBeforeWeight(l *Ledger, changes func(event any) []WeightChange) Checker {
	return each(changes, func(w WeightChange) {
		if w.To > w.From && !w.Allowed {
			l.Violate("I7", w.Release, "the canary's weight rose from %d to %d, but it did not have enough ready pods within %s", w.From, w.To, l.Lag)
		}
	})
}

// Return is a rollback during which users return gradually, at a moment at which every process knows the pods.
type Return struct {
	Release string
	Began   time.Time
	// Share is the weight of the revision that is rolled back, in percent.
	Share int
	// Fewest is how many pods the previous revision has had at every moment, Enough how many carry all users.
	Fewest, Enough int
}

// GradualReturn is the part of I34 about the users who wait: pods of the previous revision get the share that they carry.
func GradualReturn(l *Ledger, returns func(event any) []Return) Checker {
	return each(returns, func(r Return) {
		if r.Fewest > 0 && r.Share > 100-Carried(r.Fewest, r.Enough) {
			l.Violate("I34", r.Release, "rolled back %s ago, it still has %d percent of the traffic, although the previous revision has had %d pods, and %d carry everything",
				l.Now().Sub(r.Began), r.Share, r.Fewest, r.Enough)
		}
	})
}

// Carried is the share of the traffic, in percent, that pods carry if that many are enough for all of it.
func Carried(pods, enough int) int {
	if enough <= 0 {
		return 100
	}
	return min(100*pods/enough, 100)
}
