// Package rollout decides how a Rollout moves from one revision to the next.
//
// It knows the spec, the status and what was observed, all as values. It must not know clients, clocks, contexts, or who
// carries the traffic; its shell is rollout/controller.
package rollout
