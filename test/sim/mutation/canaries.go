// Package mutation proves that the simulator detects defects: it applies a mutant, a deliberate defect, to a copy of Serin, and
// executes simulation runs until the corresponding invariant is violated.
//
// It knows files and texts. It must not know why a mutant is a defect; the name of the mutant describes that.
package mutation

// Mutant is one defect that the simulator must detect.
type Mutant struct {
	// Name selects a mutant, and appears in the tables of docs/simulator.md.
	Name string
	// Violates is the invariant that has to be reported. A report of another invariant proves nothing about this one.
	Violates string
	// File is the production file, relative to the root of the repository. Old occurs in it exactly once, and is replaced by
	// New.
	File, Old, New string
	// Seed is the seed of a run that detected it, which is executed first. Zero: a story detects it.
	Seed uint64
}

// Canaries are the mutants of the Canary API, in the order of the invariants that they violate.
var Canaries = []Mutant{
	{
		"weight without pods",
		"I1",
		"internal/canary/gates.go",
		"if target.Ready && target.Replicas > 0 {", "if true {", 2,
	},
	{
		"users left without pods at rest",
		"I1",
		"internal/canary/machine.go",
		"return withTrafficRescue(s, withUnavailableSources(s, reconcileIdle(s)))", "return withUnavailableSources(s, reconcileIdle(s))", 67,
	},
	{
		"the weight of a deleted route created again",
		"I1",
		"internal/traffic/applier.go",
		"case observed:", "case false:", 0,
	},
	{
		"swapped Upstreams",
		"I1",
		"internal/traffic/gloo/gloo.go",
		"[]string{primaryUpstream: t.StableService, canaryUpstream: t.CanaryService}", "[]string{primaryUpstream: t.CanaryService, canaryUpstream: t.StableService}", 0,
	},
	{
		"weights beyond the plan",
		"I2",
		"internal/canary/weights.go",
		"return min(current+p.StepWeight, max(p.MaxWeight, current))", "return min(current+p.StepWeight+1, 100)", 1,
	},
	{
		"an HTTPProxy whose weights do not add up",
		"I2",
		"internal/traffic/contour/routes.go",
		"service(t, t.StableService, release.Total-canary)", "service(t, t.StableService, release.Total)", 0,
	},
	{
		"the weight of matching requests applied to all",
		"I2",
		"internal/traffic/traffic.go",
		"return o.Route.Canary > 0 && o.Matched != matched", "return false", 0,
	},
	{
		"answers of earlier windows count",
		"I3",
		"internal/canary/queries.go",
		"string(check.Source) + \"/\" + s.run() + \"/\" + s.currentWindow().attempt(),\n\t\tSince: s.currentWindow().end(),",
		"string(check.Source) + \"/\" + s.run(),", 1,
	},
	{
		"one answer for two hooks with one address",
		"I3",
		"internal/canary/queries.go",
		"if hook.Ordinal == 0 {", "if true {", 329,
	},
	{
		"window counted from lastTransitionTime",
		"I3",
		"internal/canary/snapshot.go",
		"start: window.Start.Time", "start: s.Status.LastTransitionTime.Time", 49,
	},
	{
		"threshold off by one",
		"I4",
		"internal/canary/intent.go",
		"return s.Status.FailedChecks >= s.Plan.Threshold", "return s.Status.FailedChecks > s.Plan.Threshold", 91,
	},
	{
		"failed checks counted twice",
		"I4",
		"internal/canary/window.go",
		"e.status.FailedChecks++\n\tif _, unreachable", "e.status.FailedChecks += 2\n\tif _, unreachable", 1,
	},
	{
		"drain skipped",
		"I5",
		"internal/canary/gates.go",
		"return release.NewTimedGate(\"drained\", until, \"until \"+until.UTC().Format(time.TimeOnly))", "return release.NewPassingGate(\"drained\", \"\")", 1,
	},
	{
		"pods gone before the route is back",
		"I5",
		"internal/canary/rollback.go",
		"e := s.edit().addEffects(effects...).addEffects(trafficEnded(s)...).addStamps(", "e := s.edit().addEffects(effects...).addEffects(TargetScaledToZero{}).addEffects(trafficEnded(s)...).addStamps(", 2,
	},
	{
		"traffic that remains at the previous provider",
		"I5",
		"internal/canary/traffic.go",
		"if previous := s.routingProvider(); previous != \"\" {\n", "if previous := s.routingProvider(); previous != \"\" && s.Deleting {\n", 0,
	},
	{
		"a former provider forgotten after a failed promotion",
		"I5",
		"internal/canary/runstate.go",
		"		unfinished.Provider = e.snapshot.routingProvider()\n", "", 0,
	},
	{
		"primary updated at the start",
		"I6",
		"internal/canary/begin.go",
		"e := s.edit().addEffects(steadyStateEffects(s)...).enterPhase(flaggerv1.CanaryPhaseProgressing)",
		"e := s.edit().addEffects(steadyStateEffects(s, PrimaryExists{ID: s.promotionCopyID(), Follow: true})...).enterPhase(flaggerv1.CanaryPhaseProgressing)", 1,
	},
	{
		"a restored target initialized although its primary is ready",
		"I6",
		"internal/canary/replacement.go",
		"s.Workload.ServicesSelectOther && !isReady {\n\t\treturn initialiseAgain(s)",
		"s.Workload.ServicesSelectOther || !isReady {\n\t\treturn initialise(s)", 9840017476,
	},
	{
		"canary need not be ready",
		"I7",
		"internal/canary/gates.go",
		"if target.Ready && target.Replicas > 0 {", "if target.Replicas > 0 {", 6,
	},
	{
		"labels of the target changed",
		"I8",
		"internal/workload/scale.go",
		"\terr := d.updateObject(ctx, obj, d.templateKind.withReplicas(obj, replicas))\n",
		"\twithReplicas := d.templateKind.withReplicas(obj, replicas)\n\twithReplicas.SetLabels(map[string]string{\"withReplicas\": \"true\"})\n\terr := d.updateObject(ctx, obj, withReplicas)\n", 1,
	},
	{
		"a user's fields in the routes of an HTTPProxy",
		"I8",
		"internal/traffic/contour/contour.go",
		"return role(t, was) == role(t, now)", "return role(t, was) == role(t, now)+\"x\"", 0,
	},
	{
		"status before effects",
		"I9",
		"internal/canary/controller/reconciler.go",
		"	decision, rejected, err := r.effectApplier().applyDecision(ctx, s, decision)\n",
		"\tif _, err := r.writeStatus(ctx, s, decision, reconciler.Explanation{Due: true}); err != nil {\n\t\treturn reconcile.Result{}, err\n\t}\n\tdecision, rejected, err := r.effectApplier().applyDecision(ctx, s, decision)\n", 15,
	},
	{
		"no wake-up for a window",
		"I9",
		"internal/canary/status.go",
		"Queries: gates.Queries(), Wake: gates.Wake()}", "Queries: gates.Queries()}", 1,
	},
	{
		"an answer is never asked for again",
		"I9",
		"internal/release/query.go",
		"answer.Ended.IsZero() || answer.Began.Before(query.Since) && !answer.Since.Equal(query.Since)", "answer.Ended.IsZero()", 1,
	},
	{
		"a window that began in the future",
		"I9",
		"internal/canary/sanitize.go",
		"windowInvalid = serin.Window != nil && (serin.Window.Start.IsZero() || serin.Window.Start.After(s.Now))",
		"windowInvalid = serin.Window != nil && serin.Window.Start.IsZero()",
		0,
	},
	{
		"a blocked release that is not judged",
		"I9",
		"internal/canary/machine.go",
		"if d, ok := continueBlockedRelease(s, gates); ok {", "if d, ok := continueBlockedRelease(s, gates); ok && s.Deleting {", 0,
	},
	{
		"events of observed objects dropped in any version",
		"I9",
		"internal/watching/observed.go",
		"return slices.Contains(o.versions[r.NamespacedName], version)",
		"return slices.ContainsFunc(o.versions[r.NamespacedName], func(v ObjectVersion) bool { return v.Object == version.Object })", 1,
	},
	{
		"a suspended release is fetched again",
		"I9q",
		"internal/canary/controller/reconciler.go",
		"	r.memory.ScheduleWake(key, decision.Wake)\n",
		"	r.memory.ScheduleWake(key, decision.Wake)\n	if s.snapshot.Plan.Suspended {\n		s.podsDue = s.snapshot.Now.Add(10 * time.Minute)\n		_ = r.Reporter.Reader.Get(ctx, key, object)\n	}\n",
		36,
	},
	{
		"address of a hook in a gate",
		"I10",
		"internal/canary/hookgates.go",
		"return hook.Name + \" has not approved: \" + answer.Text", "return hook.URL + \" has not approved: \" + answer.Text", 2,
	},
	{
		"hook key that a crash changes",
		"I11",
		"internal/canary/queries.go",
		"Key: digest(s.UID, s.run(), query.ID, string(phase), moment)}", "Key: digest(s.UID, s.run(), query.ID, string(phase), moment, s.Now.String())}", 2,
	},
	{
		"gates polled as fast as they answer",
		"I11",
		"internal/canary/hookgates.go",
		"nextCall := s.clampToNow(answer.Began).Add(s.Plan.Interval)\n\t\tif s.Now.Before(nextCall) {\n\t\t\tg := release.NewWaitingGate(name, release.ByUser, refusalText(hook, answer))",
		"nextCall := s.clampToNow(answer.Began).Add(time.Second)\n\t\tif s.Now.Before(nextCall) {\n\t\t\tg := release.NewWaitingGate(name, release.ByUser, refusalText(hook, answer))", 2,
	},
	{
		"workload patched without a precondition",
		"I12",
		"internal/workload/apply.go",
		"json.Marshal(jsontree.PinResourceVersion(difference, existing.GetResourceVersion()))", "json.Marshal(difference)", 1,
	},
	{
		"route patched without a precondition",
		"I12",
		"internal/traffic/applier.go",
		"json.Marshal(jsontree.PinResourceVersion(patch, existing.GetResourceVersion()))", "json.Marshal(patch)", 1,
	},
	{
		"status patched without a precondition",
		"I12",
		"internal/reconciler/reconciler.go",
		"json.Marshal(jsontree.PinResourceVersion(map[string]any{\"status\": difference}, version))",
		"json.Marshal(map[string]any{\"status\": difference})", 1,
	},
	{
		"generation of a spec that was not observed",
		"I13",
		"internal/canary/status.go",
		"c.ObservedGeneration = e.snapshot.Generation", "c.ObservedGeneration = e.snapshot.Generation + 1", 1,
	},
	{
		"transition time changes with the message",
		"I13",
		"internal/canary/status.go",
		"c.LastTransitionTime, c.LastUpdateTime = old.LastTransitionTime, now", "c.LastTransitionTime, c.LastUpdateTime = now, now", 1,
	},
	{
		"windows of half their length after a clock change",
		"I14",
		"internal/canary/gates.go",
		"length := s.Plan.Interval\n",
		"length := s.Plan.Interval / 2\n",
		0,
	},
	{
		"apex moved to a primary that is not ready",
		"I15",
		"internal/canary/initialise.go",
		"\tcase !primary.Ready:\n\t\treturn release.NewWaitingGate(primaryReadyGate, release.ByCluster, primaryMessage(s))\n\tdefault:",
		"	default:", 1,
	},
	{
		"target removed while it is behind the apex",
		"I15",
		"internal/canary/endpoints.go",
		"func apexEndpoints(s Snapshot) release.Gate { return formerEndpoints(s, s.Plan.targetName()) }",
		"func apexEndpoints(s Snapshot) release.Gate { return formerEndpoints(Snapshot{Plan: s.Plan}, s.Plan.targetName()) }", 204,
	},
	{
		"Services that select the next primary too early",
		"I15",
		"internal/canary/initialise.go",
		"	if !s.Workload.ServicesSelectOther {\n", "	{\n", 555,
	},
	{
		"primary removed while it is behind the restored apex",
		"I16",
		"internal/canary/endpoints.go",
		"	if !s.Workload.ApexSelectsTarget {\n", "	if s.Workload.ApexSelectsTarget || !s.Workload.ApexSelectsTarget {\n", 461,
	},
	{
		"finalizer removed first",
		"I16",
		"internal/canary/deletion.go",
		"\t\treturn keepStatus(s, gates, effects...)\n\t}\n\teffects = append(effects, UserObjectsRestored{})",
		"\t\treturn keepStatus(s, gates, append(effects, HasFinalizer{Present: false})...)\n\t}\n\teffects = append(effects, UserObjectsRestored{})", 28,
	},
	{
		"counters of the previous revision",
		"I17",
		"internal/canary/restart.go",
		"\te.resetCounters()\n\tbeginRun(e)\n", "\tbeginRun(e)\n", 6,
	},
	{
		"samples of the previous revision",
		"I17",
		"internal/canary/checkgates.go",
		"until := s.clampToNow(last.Time).Add(s.Plan.longestRange())", "until := s.clampToNow(last.Time)", 25,
	},
	{
		"pods removed at rest",
		"I18",
		"internal/canary/idle.go",
		"\t\treturn keepStatus(s, nil, steadyStateEffects(s)...)\n\t}\n\tif revision == s.promotedRevision()", "\t\treturn keepStatus(s, nil, steadyStateEffects(s, TargetScaledToZero{})...)\n\t}\n\tif revision == s.promotedRevision()", 9,
	},
	{
		"more pods than the autoscaler permits",
		"I18",
		"internal/workload/scale.go",
		"				replicas = min(replicas, limit)\n", "", 0,
	},
	{
		"a label that is never written",
		"I19",
		"internal/workload/services.go",
		"\t\tdesired.SetLabels(mergeForeignKeys(", "\t\tlabels[\"seen\"] = existing.GetResourceVersion()\n\t\tdesired.SetLabels(mergeForeignKeys(", 4,
	},
	{
		"selector written in every reconciliation",
		"I19",
		"internal/workload/services.go",
		"\t\tdesired.SetAnnotations(mergeForeignKeys(", "\t\tannotations[\"seen\"] = existing.GetResourceVersion()\n\t\tdesired.SetAnnotations(mergeForeignKeys(", 4,
	},
	{
		"two questions of one release",
		"I20",
		"internal/queryrunner/queryrunner.go",
		"if len(r.queue) > 0 && len(r.inFlight) < p.perRelease {", "if len(r.queue) > 0 {", 26,
	},
	{
		"requeued immediately, indefinitely",
		"I21",
		"internal/reconciler/reconciler.go",
		"return min(max(wake.Sub(now), 1), maxRequeueDelay)", "return 1", 1,
	},
	{
		"a state that the schema drops is not written",
		"I21",
		"internal/canary/controller/statusform.go",
		"status, schema == schemaDrops)", "status, false)", 20,
	},
	{
		"failed revision released again",
		"I23",
		"internal/canary/idle.go",
		"if revision == s.pinnedRevision() && !retry {", "if revision == s.pinnedRevision() && s.Status.Phase != flaggerv1.CanaryPhaseFailed {", 3,
	},
	{
		"abort recorded and not carried out",
		"I24",
		"internal/canary/rollback.go",
		"return e.recordIntent(intentRollback, reasonAbort).addEvents(", "return e.addEvents(", 115,
	},
	{
		"suspension ignored",
		"I25",
		"internal/canary/machine.go",
		"	case s.Plan.Suspended:\n", "	case s.Plan.Suspended && s.Status.Phase == \"\":\n", 6,
	},
	{
		"wait without an explanation",
		"I26",
		"internal/canary/controller/memory.go",
		"	gates := make([]flaggerv1.GateStatus, len(e.Gates))\n	for i, gate := range e.Gates {\n",
		"	gates := []flaggerv1.GateStatus{}\n	for i, gate := range e.Gates[:0] {\n",
		6,
	},
	{
		"Services without an owner",
		"I27",
		"internal/workload/services.go",
		"	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})\n", "", 1,
	},
	{
		"configuration followed at rest",
		"I28",
		"internal/canary/steadystate.go",
		"effects = append(effects, ScalerExists{})\n\t}", "effects = append(effects, ScalerExists{}, PrimaryExists{ID: s.promotionCopyID(), Follow: true})\n\t}", 55,
	},
	{
		"two Canaries for one target",
		"I31",
		"internal/canary/controller/observe.go",
		"if releasing.UID != s.object.UID {", "if releasing == nil {", 72,
	},
	{
		"the age decides about a target that has an owner",
		"I31",
		"internal/canary/controller/observe.go",
		"	case a.owned.Primary != b.owned.Primary:\n\t\treturn a.owned.Primary\n\tcase a.owned.Services != b.owned.Services:\n\t\treturn a.owned.Services\n", "", 8100000040,
	},
	{
		"deadline of the canary counted from the start of the window",
		"I32",
		"internal/canary/deadline.go",
		"return lastProgress(s, s.Workload.Target, s.serin().CanaryUnready).Add(s.Plan.Deadline)",
		"if window := s.currentWindow(); window.open {\n\t\treturn window.start.Add(s.Plan.Deadline)\n\t}\n\treturn lastProgress(s, s.Workload.Target, s.serin().CanaryUnready).Add(s.Plan.Deadline)", 578,
	},
	{
		"progress of the primary does not extend its deadline",
		"I32",
		"internal/canary/deadline.go",
		"return lastProgress(s, s.Workload.Primary, s.serin().PrimaryUnready).Add(s.Plan.Deadline)",
		"if since := s.serin().Since; since != nil {\n\t\treturn since.Add(s.Plan.Deadline)\n\t}\n\treturn lastProgress(s, s.Workload.Primary, s.serin().PrimaryUnready).Add(s.Plan.Deadline)", 367,
	},
	{
		"a promotion that failed stays failed",
		"I33",
		"internal/canary/idle.go",
		"\tcase promotionResumable(s):\n", "\tcase promotionResumable(s) && s.Plan.Deadline == 0:\n", 0,
	},
	{
		"users remain with an unanalysed revision",
		"I33",
		"internal/canary/progress.go",
		"if inheritsTraffic(s) && s.primaryReachable() {", "if inheritsTraffic(s) && s.primaryReachable() && s.Deleting {", 0,
	},
	{
		"a primary that became ready stays unknown",
		"I33",
		"internal/canary/unfinished.go",
		"return s.primaryUnpromoted() && s.serin().Unfinished != nil &&", "return s.primaryUnpromoted() && s.Deleting &&", 0,
	},
	{
		"all traffic to one pod of the primary",
		"I34",
		"internal/canary/rollbackinparts.go",
		"weighted := s.Plan.Strategy == Weighted && !s.Plan.SkipAnalysis", "weighted := s.Plan.Strategy == Weighted && s.Plan.SkipAnalysis", 0,
	},
	{
		"a rollback measured by spec.replicas",
		"I34",
		"internal/canary/rollbackinparts.go",
		"return release.PodsForAllTraffic(s.Workload.Primary.Replicas, carriedBy)", "return release.PodsForAllTraffic(s.Workload.Primary.Replicas, max(carriedBy, s.Workload.Primary.Replicas))", 0,
	},
	{
		"slots are not shared",
		"I35",
		"internal/fairshare/queue.go",
		"t.slotsInUse < maxTenantShare*(free-1)", "t.slotsInUse < maxTenantShare*q.capacity", 1,
	},
	{
		"events of a deleted Canary remembered",
		"I36",
		"internal/canary/controller/report.go",
		"	r.Recorder.Forget(key)\n", "", 2,
	},
	{
		"a suspended process continues to write",
		"I38",
		"internal/fence/fence.go",
		"age >= f.duration {", "age >= 1000*f.duration {", 5,
	},
	{
		"queries without the Lease",
		"I38",
		"internal/queryrunner/queryrunner.go",
		"{ p.permitted = permitted }", "{ _ = permitted }", 11,
	},
	{
		"a first observation that is not repeated",
		"I39",
		"internal/canary/controller/reconciler.go",
		"for err == nil && r.dependents.Set(key, s.dependencies) {", "for err == nil && r.dependents.Set(key, s.dependencies) && s == nil {", 410,
	},
	{
		"a shard that is reconciled after its release",
		"I40",
		"internal/sharding/held.go",
		"	if !h.shards[shard].held {\n", "	if len(h.shards) == 0 {\n", 2,
	},
	{
		"a history that a new run clears",
		"I41",
		"internal/canary/history.go",
		"s.serin().Release.DeepCopy(), s.serin().History", "s.serin().Release.DeepCopy(), s.serin().History[:0]", 1,
	},
	{
		"a cancelled release recorded as superseded",
		"I41",
		"internal/canary/history.go",
		"revision != current.Revision && !isCancelled(s, d) {", "revision != current.Revision {", 19,
	},
	{
		"a new alert provider that is not noticed",
		"I42",
		"internal/canary/controller/observe.go",
		"	for _, alert := range analysisOf(c).Alerts {\n		key := referenceKey", "	for _, alert := range analysisOf(c).Alerts[:0] {\n		key := referenceKey", 782,
	},
	{
		"an old report that counts for the current route",
		"I47",
		"internal/traffic/gatewayapi/read.go",
		"|| condition.ObservedGeneration < obj.GetGeneration() {", "{", 0,
	},
	{
		"an abort that waits for the router",
		"I47",
		"internal/canary/progress.go",
		"case s.hasCommand(CommandAbort):", "case s.hasCommand(CommandAbort) && s.Route.Confirmation != Unconfirmed:", 0,
	},
	{
		"a Gateway without a report that is not noticed",
		"I48",
		"internal/canary/traffic.go",
		"s.Route.Unreported.Message == \"\" {", "s.Route.Unreported.Message != \"\" {", 206,
	},
}

// Elsewhere contains the invariants that no single run of Canaries can violate, and the tests that cover them.
var Elsewhere = map[string]string{
	"I22": "the Canary API has no AnalysisRuns, Experiments or ReplicaSets of its own",
	"I29": "the Canary API has no sequential analysis",
	"I30": "TestStoriesTolerateEachFault and TestStoriesTolerateTwoFaults in test/sim/canary",
}
