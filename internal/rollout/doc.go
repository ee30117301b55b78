// Package rollout decides how a Rollout moves from one revision to the next.
//
// Next goes from a Snapshot to a Decision: a pass over what is known, in the order in which things may happen. What it asks
// for are effects (effects.go); numbers of pods come from arithmetic that stands alone (basic.go, routed.go, drain.go);
// the status in the making is an edit (status.go), and gates say why nothing moves (gates.go, step_gates.go).
//
// It knows the spec, the status and what was observed, all as values. It must not know clients, clocks, contexts, or who
// carries the traffic; its shell is rollout/controller.
package rollout
