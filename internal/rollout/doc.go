// Package rollout decides how a Rollout moves from one revision to the next.
//
// Next turns a Snapshot into a Decision, in stages. Each stage takes the values of those before it as parameters and returns one
// of its own, so that their order is checked by the compiler:
//
//	observe        facts: a sanitized status, and the role of each ReplicaSet      facts.go
//	maintain       what holds for every Rollout                                    upkeep.go
//	planTraffic    the weights of the router                                       traffic.go, returning.go
//	planAnalyses   the analyses and the experiment that run now                    analyses.go
//	scaleCanary    the number of pods of each ReplicaSet                           scale.go, package pods
//	advanceCanary  abort, pauses, promotion or the next step                       advance.go, step_gates.go
//	conclude       the rest of the status, and the gates in order                  status.go, conditions.go, gates.go
//
// A blue-green release has planSwitch in place of planTraffic (bluegreen.go). Beside its value, a stage returns an outcome: its
// effects, gates and events.
//
// To add a gate, return it in the outcome of the stage that it holds back, or add it to StepGates, and describe it in
// docs/gates.md; to add an effect, declare it in effects.go and apply it in rollout/controller; to add a kind of step, see
// StepGates, stepText and validate_steps.go.
//
// The package knows the spec, the status and what was observed, all as values. It must not know clients, clocks, contexts, or
// which router divides the traffic; its reconciler is rollout/controller.
package rollout
