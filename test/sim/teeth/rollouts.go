package teeth

// Rollouts are the mutations that histories of Rollouts find, in the order of the invariants that they are for.
var Rollouts = []Tooth{
	{
		"a Service moved to pods that are not there",
		"I1",
		"internal/rollout/services.go",
		"guarded && from != rs.Hash && rs.Available < needed {", "guarded && from != rs.Hash && rs.Available < needed && rs.Spec < 0 {", 73,
	},
	{
		"a weight beyond its step",
		"I2",
		"internal/rollout/controller/route.go",
		"Canary: int(e.Weights.Canary.Weight), Total", "Canary: min(int(e.Weights.Canary.Weight)+1, int(e.Most)), Total", 1,
	},
	{
		"an analysis that goes on lets its step pass",
		"I3",
		"internal/rollout/step_gates.go",
		"	default: // Pending, Running, not seen yet, and phases that only a newer controller writes\n\t\tgate.Verdict, gate.Opener = release.Wait, release.ByCluster\n", "	default:\n", 131,
	},
	{
		"a measurement that failed counts twice",
		"I4",
		"internal/analysis/assess.go",
		"r.Failed++", "r.Failed += 2", 2,
	},
	{
		"one failure more than the limit",
		"I4",
		"internal/analysis/assess.go",
		"int(r.Failed) > l.failures:", "int(r.Failed) > l.failures+1:", 2,
	},
	{
		"old pods go at once",
		"I5",
		"internal/rollout/scale.go",
		"Delay: delay(c.ScaleDownDelaySeconds), Most", "Delay: 0, Most", 4,
	},
	{
		"a weight before its pods",
		"I7",
		"internal/rollout/route.go",
		"	case p.step.Pods.reached() != \"\":\n", "	case p.step.Pods.reached() != \"\" && !stepping:\n", 113,
	},
	{
		"labels on the user's Service",
		"I8",
		"internal/rollout/controller/services.go",
		"	annotations[argov1.ManagedByAnnotation] = s.object.Name\n", "	annotations[argov1.ManagedByAnnotation] = s.object.Name\n\tafter.SetLabels(map[string]string{\"managed\": \"true\"})\n", 1,
	},
	{
		"a deadline on pods that are gone",
		"I9",
		"internal/rollout/status.go",
		"e.v.Now.Before(rs.Deadline) && rs.Spec > 0 &&", "rs.Delayed() &&", 1065,
	},
	{
		"nobody looks when a pause is over",
		"I9",
		"internal/rollout/next.go",
		"Gates: p.gates, Events: p.events, Wake: p.gates.Wake(),", "Gates: p.gates, Events: p.events,", 7,
	},
	{
		"a Rollout that is gone is looked up again",
		"I9q",
		"internal/rollout/controller/reconciler.go",
		"		return reconcile.Result{}, r.gone(ctx, key, \"\")", "		_ = r.Reader.Get(ctx, key, object)\n\t\treturn reconcile.Result{RequeueAfter: 10 * time.Minute}, r.gone(ctx, key, \"\")", 18,
	},
	{
		"what a service shows back of a secret",
		"I10",
		"internal/analysis/measure/measure.go",
		"release.Clip(hidden.out(a.Message), maxText), release.Clip(hidden.out(a.Text), maxText)",
		"release.Clip(a.Message, maxText), release.Clip(a.Text, maxText)", 15,
	},
	{
		"a measurement asked for at every look",
		"I11",
		"internal/analysis/run.go",
		"	id := fmt.Sprintf(\"%s/%s/%d\", r.s.UID, m.Name, result.Count+result.Error)\n",
		"	id := fmt.Sprintf(\"%s/%s/%d/%d\", r.s.UID, m.Name, result.Count+result.Error, r.s.Now.UnixMilli())\n", 2,
	},
	{
		"measured as fast as it answers",
		"I11",
		"internal/analysis/run.go",
		"return q, newest.FinishedAt.Add(interval), true", "return q, newest.FinishedAt.Add(interval / 2), true", 2,
	},
	{
		"an Experiment's objects patched without a precondition",
		"I12",
		"internal/experiment/controller/objects.go",
		"jsontree.Pinned(change, read.GetResourceVersion())", "jsontree.MergePatch(map[string]any{}, change)", 9,
	},
	{
		"a Rollout's objects patched without a precondition",
		"I12",
		"internal/rollout/controller/change.go",
		"json.Marshal(jsontree.Pinned(difference, before.GetResourceVersion()))", "json.Marshal(difference)", 1,
	},
	{
		"a generation that was not decided on",
		"I13",
		"internal/rollout/status.go",
		"s.ObservedGeneration = fmt.Sprint(e.v.Generation)", "s.ObservedGeneration = fmt.Sprint(e.v.Generation + 1)", 1,
	},
	{
		"pauses of half their length",
		"I14",
		"internal/rollout/step_gates.go",
		"end := pausedSince(v.Status, *began).Add(time.Duration(length) * time.Second)", "end := pausedSince(v.Status, *began).Add(time.Duration(length) * time.Second / 2)", 8,
	},
	{
		"Services of a Rollout that is gone",
		"I16",
		"internal/rollout/controller/reconciler.go",
		"	if now == \"\" {\n\t\tif err := r.giveBack(", "	if now == \"\" && was.Name == \"\" {\n\t\tif err := r.giveBack(", 18,
	},
	{
		"analyses of the release before",
		"I17",
		"internal/rollout/status.go",
		"	e.status.PromoteFull = false\n	e.forget()\n", "	e.status.PromoteFull = false\n", 30,
	},
	{
		"one pod beyond maxSurge",
		"I18",
		"internal/rollout/limits.go",
		"return clamp(float64(l.Replicas) + float64(l.Surge))", "return clamp(float64(l.Replicas) + float64(l.Surge) + 1)", 17,
	},
	{
		"a workload's pods taken away against its will",
		"I18",
		"internal/rollout/upkeep.go",
		"	case ref.ScaleDown != argov1.ScaleDownOnSuccess && ref.ScaleDown != argov1.ScaleDownProgressively:\n\t\treturn\n", "", 7,
	},
	{
		"a workload's pods taken away before others have come",
		"I18",
		"internal/rollout/upkeep.go",
		"		pods = max(0, p.replicas()-p.new.Ready)\n", "		pods = 0\n", 20,
	},
	{
		"a note on ReplicaSets that never stands",
		"I19",
		"internal/rollout/controller/apply.go",
		"	after := how(before)\n", "	after := how(before)\n\tmetav1.SetMetaDataAnnotation(&after.ObjectMeta, \"seen\", before.ResourceVersion)\n", 1,
	},
	{
		"a Rollout queued at once, for ever",
		"I21",
		"internal/rollout/controller/reconciler.go",
		"RequeueAfter: shell.WakeIn(r.Clock.Now(), shell.Earliest(decision.Wake, explain, s.again))}", "RequeueAfter: min(1, shell.WakeIn(r.Clock.Now(), shell.Earliest(decision.Wake, explain, s.again)))}", 1,
	},
	{
		"a run whose making was not heard of is made again",
		"I22",
		"internal/analysis/new.go",
		"if existing.Status.Phase.Completed() || existing.DeletionTimestamp", "if existing.Name != \"\" || existing.Status.Phase.Completed() || existing.DeletionTimestamp", 154,
	},
	{
		"an aborted release keeps its users",
		"I23",
		"internal/rollout/bluegreen.go",
		"	case p.Status.Abort && p.stable.exists():\n\t\tif active", "	case p.Status.Abort && p.stable.exists() && p.Spec.Paused:\n\t\tif active", 34,
	},
	{
		"an aborted release is promoted",
		"I24",
		"internal/rollout/status.go",
		"case s.Abort || promoted(s) || !p.complete()", "case promoted(s) || !p.complete()", 117,
	},
	{
		"a paused Rollout is scaled",
		"I25",
		"internal/rollout/next.go",
		"	case p.Spec.Paused:\n		return \"spec.paused is true\"", "	case p.Spec.Paused && p.Status.StableRS == \"\":\n		return \"spec.paused is true\"", 136,
	},
	{
		"nobody is told what is waited for",
		"I26",
		"internal/rollout/controller/reconciler.go",
		"for _, gate := range looked[:min(len(looked), maxGates)] {", "for _, gate := range looked[:0] {", 3,
	},
	{
		"routes of steps beyond their release",
		"I27",
		"internal/rollout/route.go",
		"	if w.managed {\n", "	if p.Status.CurrentStepIndex != nil {\n", 77,
	},
	{
		"a ReplicaSet without an owner",
		"I27",
		"internal/rollout/controller/apply.go",
		"	rs := replicaset.New(s.object, s.spec, e)\n", "	rs := replicaset.New(s.object, s.spec, e)\n\trs.OwnerReferences = nil\n", 1,
	},
	{
		"two Rollouts for one Service",
		"I31",
		"internal/rollout/validate_references.go",
		"if service.ManagedBy != \"\" && service.ManagedBy != rollout {", "if service.ManagedBy != \"\" && service.ManagedBy != rollout && rollout == \"\" {", 15,
	},
}

// RolloutsElsewhere are the invariants that no history of Rollouts can break, and what holds them.
var RolloutsElsewhere = map[string]string{
	"I30": "TestEveryCallMayGoWrong in test/sim/rollout",
}
