// Package pods computes how many pods each revision of a Rollout has: without a router, when the numbers of pods divide
// the requests (rolling.go), with one, when a weight divides them (routed.go), and for revisions that are neither new
// nor stable (scaledown.go). The weights that steps set are in weights.go.
//
// It calculates with values only. It must not know snapshots, statuses, gates, effects or clocks; package rollout
// decides what to compute, and when.
package pods
