// Package canary decides how a Canary moves from one revision to the next.
//
// Next turns a Snapshot into a Decision; View shows the same snapshot to users. The package knows the plan, the status and the
// observed state, all as values. It must not know clients, clocks, contexts, or which mesh routes the traffic; its reconciler
// is canary/controller.
//
// # Files
//
// The walk goes down this list: a file uses only files that follow it, and test/borders checks that.
//
//	views          view.go, forecast.go
//	Next           machine.go, blockedrelease.go, othercontroller.go
//	a release      idle.go, begin.go, progress.go, window.go, beforetraffic.go, advance.go, promotion.go
//	its way back   replacement.go, rollback.go, rollbackinparts.go, unfinished.go, restart.go
//	either way     adoption.go, ending.go
//	other phases   deletion.go, initialise.go, sanitize.go, refused.go, queue.go, blocked.go
//	all decisions  readyconditions.go, history.go, sources.go, unanswered.go, unreadiness.go, steadystate.go, runstate.go, status.go
//	gates          gatekinds.go, hookgates.go, checkgates.go, nodata.go, notices.go, judge.go, endpoints.go, gates.go, queries.go
//	facts          formertarget.go, deadline.go, revision.go, primary.go, traffic.go, runshape.go, intent.go, commands.go, ids.go
//	values         decision.go, snapshot.go, workload.go, conditions.go, phase.go, effects.go, newplan.go, weights.go, plan.go
//
// # Additions
//
// Every addition has a scenario in testdata/scenarios, and a mutant in test/sim/mutation if an invariant of the simulator
// (test/sim/canary) has to detect its absence.
//
// A gate: its function in gates.go, hookgates.go or checkgates.go, or in the file of the step that it delays; the lists of
// gates that it belongs to: startGates (begin.go), evaluateBeforeTraffic (beforetraffic.go), windowGates (window.go),
// continuePromotion and continueFinalising (promotion.go), continueRollback (rollback.go), finalizeDeletion (deletion.go) or
// initialise (initialise.go). In evaluateWindow, a gate before the checks delays their evaluation, a gate after them only the
// next weight. A gate before each increase of the weight belongs in trafficIncreaseGates (hookgates.go), which both use: for
// weighted releases only, and also before the promotion that follows the last weight. Its second return is for those that the user
// bypasses by command, and that the first weight after mirrored traffic does not have, as in Flagger. The switch of
// evaluateWindow and that of handleClosedGateBeforeTraffic decide what follows while it is closed: by default, the window and its answers
// remain, so a gate that may be closed for long has a case that opens another window (reopenWindow); forecast.go gives up
// after maxDecisions of them. Then a line in GateKinds, and a row in docs/gates.md: test/borders fails until the list, the
// sources and the page agree. The commands need no change. Random specs reach the gate only if drawSpec (generators_test.go,
// and test/sim/canary/releases.go) draws its field. In the simulator (test/sim/canary): expectation.go and
// invariants_checks.go if the gate guards a promise, maxRunDuration (settled.go) if it delays a release, and a story
// (stories.go) with its field: faults between any two writes are tested with the stories only.
//
// A gate that sends a query: in addition a type of query (queries.go), which canary/controller/querysender.go resolves, queryOf
// (gatekinds.go) and PassingAnswer (forecast.go).
//
// A notice, which delays nothing: a message of the plan (Plan.Warnings, newplan.go) or a fact of the snapshot that withNotices
// (notices.go) adds, and a row in docs/gates.md.
//
// An effect: its type in effects.go, and a case in canary/controller/apply.go: test/borders fails without it. withEffect
// (forecast.go) if decisions depend on its result, and the worlds that apply effects in tests (world_test.go).
//
// A condition: its type in api/flagger/v1beta1/status.go, its texts next to the code that sets it with statusEdit.setCondition,
// messageOf (view.go) if users should read it first, and docs/canary.md.
//
// A field of the spec: api/flagger/v1beta1 with its documentation, a manifest in the testdata of that package, and make
// generate; its default and its validation in newplan.go; Plan (plan.go) is all that decisions read; docs/canary.md; drawSpec
// in test/sim/canary. A CustomResourceDefinition of Flagger that does not have the field drops it: then its default applies.
package canary
