// Package rollout decides how a Rollout moves from one revision to the next.
//
// Next turns a Snapshot into a Decision, in stages. Each stage takes the values that it depends on as parameters and
// returns one of its own, so that their order is checked by the compiler:
//
//	observeFacts            facts: a sanitized status, and the role of each ReplicaSet   facts.go
//	planUpkeep              the effects for every Rollout, whatever its release needs    upkeep.go
//	planTraffic             the weights of the router                                    traffic.go, returning.go
//	 planRouterPlugins      part of it: the calls of router plugins, what they confirmed  routerplugin.go
//	planAnalyses            the analyses and the experiment that run now                 analyses.go
//	planStepPlugins         the call of a step plugin, and its recorded answers          plugins.go
//	scaleForCanaryStrategy  the number of pods of each ReplicaSet                        scale.go, package pods
//	advanceCanaryStrategy   abort, pauses, promotion or the next step                    advance.go, step_gates.go
//	fillInDecision          the abort at the deadline, the rest of the status, the gates status.go, conditions.go, gates.go
//
// A blue-green release has planSwitch in place of planTraffic, and functions for its strategy (bluegreen.go). In addition to its value, a stage returns
// an outcome: its effects, gates and events.
//
// View describes the same snapshot to users. The package knows the spec, the status and the observed state, all as
// values. It must not know clients, clocks, contexts, or which router divides the traffic; its reconciler is
// rollout/controller.
//
// # Additions
//
// Every addition has a scenario in testdata/scenarios, and a mutant in test/sim/mutation if an invariant of the
// simulator (test/sim/rollout) has to detect its absence.
//
// A gate: return it in the outcome of the stage that it delays, or add it to evaluateStepGates (step_gates.go) if it
// delays a step. With a router, a delay of a weight belongs in planTraffic (traffic.go): like canaryEndpointsGate, it limits the
// desired split, and is a field of the trafficPlan that newStepState (canary.go) copies into stepState; trafficOutOfSync
// (scale.go) and canaryPromotionReason (advance.go) must know it. PromoteFull bypasses the gates of steps. Without a router,
// planTraffic returns early: the delay belongs in replicaCounts (scale.go), where it limits the next numbers of pods, not the
// desired ones, with which countStepPods completes the step; the field of stepState keeps the step open all the same. Then add it
// to GateKinds (informational if it delays no step, with the command that opens it), and to docs/gates.md: test/borders
// fails until the list, the sources and the page agree. The commands need no change. The progress deadline must not run
// while the release waits for time or for the user (progressDeadline.Time, whose inputs newProgressDeadline sets), and must start
// again when the gate opens, because a weight alone is no progress (madeProgress, as for scaleDownDelayEnds): all in deadline.go.
// View.TimedGatesOpenAt respects the Until of a gate that time opens; stepsOfCanary (upcoming.go) must know it for later
// steps. Random specs reach it only if drawSpec (histories_test.go) and drawCanary (test/sim/rollout/draw.go) draw
// its field. In the simulator (test/sim/rollout): invariants_traffic.go if the gate guards a promise, and longestRun
// (settled.go) if it delays a release.
//
// An effect: its type in effects.go, in the group of outcome in which it is applied, and a case in
// rollout/controller/apply.go: test/borders fails without it. MergeStatusChanges (mergestatus.go) if it may share a status
// write with others, and world_test.go; the cluster of serin plan (internal/cli/plan) if decisions depend on its result.
//
// A condition: its type in api/argoproj/v1alpha1/status.go, fillInConditions (status.go) or the constructor in
// conditions.go, and phaseOf (phase.go) if it changes the phase. Texts that Argo Rollouts writes are constants.
//
// A kind of step: api/argoproj/v1alpha1/steps.go and make generate; evaluateStepGates, DescribeStep (step.go),
// validate_steps.go; the pods and the weight during the step (package pods); docs/rollouts.md; drawSteps in
// test/sim/rollout/draw.go.
//
// A field of the spec: api/argoproj/v1alpha1 with its documentation, a manifest in the testdata of that package, and
// make generate; validate.go; docs/rollouts.md and docs/differences-from-argo-rollouts.md; the draw in
// test/sim/rollout/draw.go.
package rollout
