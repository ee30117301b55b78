// Package teeth proves that the simulator finds mistakes: it makes one in a copy of Serin, and plays histories until the
// invariant that forbids it is broken.
//
// It knows files and texts. It must not know why a mutation is a mistake; its name says that to people.
package teeth

// Tooth is one mistake that the simulator must find.
type Tooth struct {
	// Name is by which a tooth is chosen, and what a table shows.
	Name string
	// Breaks are the invariants of which one has to be reported. The first is the one that the tooth is for.
	Breaks []string
	// File is the production file, from the root of the repository; Old occurs in it exactly once, and New takes its place.
	File, Old, New string
	// Seed is that of a history in which it was found, and is played first.
	Seed uint64
}

// Teeth are all mutations, in the order of the invariants that they are for.
var Teeth = []Tooth{
	{
		"weight without pods",
		[]string{"I1"},
		"internal/canary/gates.go",
		"if target.Ready && target.Replicas > 0 {", "if true {", 9,
	},
	{
		"weights beyond the plan",
		[]string{"I2"},
		"internal/canary/weights.go",
		"return min(current+p.Step, max(p.Max, current))", "return min(current+p.Step+1, 100)", 1,
	},
	{
		"answers of earlier windows count",
		[]string{"I3"},
		"internal/canary/questions.go",
		"string(check.Source) + \"/\" + s.run() + \"/\" + s.attempt(),\n\t\tSince: s.windowEnd(),",
		"string(check.Source) + \"/\" + s.run(),", 1,
	},
	{
		"window counted from lastTransitionTime",
		[]string{"I4", "I3", "I14"},
		"internal/canary/status.go",
		"return s.serin().Window.Start.Time, true", "return s.Status.LastTransitionTime.Time, true", 1,
	},
	{
		"threshold off by one",
		[]string{"I4"},
		"internal/canary/progress.go",
		"case intent == \"\" && s.Status.FailedChecks >= s.Plan.Threshold:", "case intent == \"\" && s.Status.FailedChecks > s.Plan.Threshold:", 34,
	},
	{
		"failed checks counted twice",
		[]string{"I4"},
		"internal/canary/progress.go",
		"e.status.FailedChecks++\n\tif _, away", "e.status.FailedChecks += 2\n\tif _, away", 1,
	},
	{
		"drain skipped",
		[]string{"I5"},
		"internal/canary/gates.go",
		"return release.WaitsUntil(\"drained\", until, \"until \"+until.UTC().Format(time.TimeOnly))", "return release.Passes(\"drained\", \"\")", 1,
	},
	{
		"pods gone before the route is back",
		[]string{"I5"},
		"internal/canary/rollback.go",
		"e := s.edit().effect(effects...).effect(RouteIs{}).stamp(", "e := s.edit().effect(effects...).effect(DownToZero{}, RouteIs{}).stamp(", 3,
	},
	{
		"primary updated at the start",
		[]string{"I6", "I3", "I28"},
		"internal/canary/machine.go",
		"e := s.edit().effect(standing(s)...).phase(flaggerv1.CanaryPhaseProgressing)",
		"e := s.edit().effect(standing(s, PrimaryExists{ID: s.copyID(), Follow: true})...).phase(flaggerv1.CanaryPhaseProgressing)", 1,
	},
	{
		"status before effects",
		[]string{"I6", "I5", "I27", "I9", "I23", "I3"},
		"internal/canary/controller/reconciler.go",
		"	warnings, failed := r.apply(ctx, s, decision)\n",
		"	if _, err := r.writeStatus(ctx, key, s, &decision, []flaggerv1.GateStatus{}); err != nil {\n\t\treturn reconcile.Result{}, err\n\t}\n\twarnings, failed := r.apply(ctx, s, decision)\n", 15,
	},
	{
		"canary need not be ready",
		[]string{"I7", "I1"},
		"internal/canary/gates.go",
		"if target.Ready && target.Replicas > 0 {", "if target.Replicas > 0 {", 6,
	},
	{
		"labels of the target changed",
		[]string{"I8"},
		"internal/workload/scale.go",
		"	err := d.update(ctx, c, deployment, scaled)\n",
		"	scaled.SetLabels(map[string]string{\"scaled\": \"true\"})\n\terr := d.update(ctx, c, deployment, scaled)\n", 1,
	},
	{
		"no wake-up for a window",
		[]string{"I9", "I26"},
		"internal/canary/machine.go",
		"Probes: gates.Probes(), Wake: gates.Wake()}", "Probes: gates.Probes()}", 18,
	},
	{
		"an answer once given is the answer",
		[]string{"I9", "I21", "I26", "I11"},
		"internal/release/probe.go",
		"answer.Ended.IsZero() || answer.Began.Before(p.Since)", "answer.Ended.IsZero()", 21,
	},
	{
		"a window that began in the future",
		[]string{"I9", "I26"},
		"internal/canary/mend.go",
		"again = serin.Window != nil && (serin.Window.Start.IsZero() || serin.Window.Start.After(s.Now))",
		"again = serin.Window != nil && serin.Window.Start.IsZero()",
		1,
	},
	{
		"a label that never stands",
		[]string{"I9q", "I19", "I9", "I21"},
		"internal/workload/services.go",
		"		desired.SetLabels(leaving(", "		labels[\"seen\"] = existing.GetResourceVersion()\n\t\tdesired.SetLabels(leaving(", 1,
	},
	{
		"address of a hook in a gate",
		[]string{"I10"},
		"internal/canary/gates.go",
		"return hook.Name + \" has not approved: \" + answer.Text", "return hook.URL + \" has not approved: \" + answer.Text", 2,
	},
	{
		"hook key that a crash changes",
		[]string{"I11"},
		"internal/canary/questions.go",
		"Key: digest(s.UID, s.run(), p.ID, string(phase), moment)}", "Key: digest(s.UID, s.run(), p.ID, string(phase), moment, s.Now.String())}", 26,
	},
	{
		"gates asked as fast as they answer",
		[]string{"I11", "I21"},
		"internal/canary/gates.go",
		"again := s.past(answer.Began).Add(s.Plan.Window)\n\t\tif s.Now.Before(again) {\n\t\t\tg := release.WaitsFor(name, release.ByPerson, refusal(hook, answer))",
		"again := s.past(answer.Began).Add(time.Second)\n\t\tif s.Now.Before(again) {\n\t\t\tg := release.WaitsFor(name, release.ByPerson, refusal(hook, answer))", 2,
	},
	{
		"workload patched without a precondition",
		[]string{"I12"},
		"internal/workload/apply.go",
		"json.Marshal(jsontree.Pinned(difference, existing.GetResourceVersion()))", "json.Marshal(difference)", 1,
	},
	{
		"route patched without a precondition",
		[]string{"I12"},
		"internal/traffic/applier.go",
		"json.Marshal(jsontree.Pinned(patch, existing.GetResourceVersion()))", "json.Marshal(patch)", 1,
	},
	{
		"status patched without a precondition",
		[]string{"I12"},
		"internal/canary/controller/reconciler.go",
		"json.Marshal(jsontree.Pinned(map[string]any{\"status\": difference}, version))",
		"json.Marshal(map[string]any{\"status\": difference})", 1,
	},
	{
		"generation of a spec that was not decided on",
		[]string{"I13"},
		"internal/canary/status.go",
		"c.ObservedGeneration = e.s.Generation", "c.ObservedGeneration = e.s.Generation + 1", 1,
	},
	{
		"transition time moves with the message",
		[]string{"I13"},
		"internal/canary/status.go",
		"c.LastTransitionTime, c.LastUpdateTime = old.LastTransitionTime, now", "c.LastTransitionTime, c.LastUpdateTime = now, now", 1,
	},
	{
		"windows of half their length where a clock was set",
		[]string{"I14"},
		"internal/canary/gates.go",
		"length := s.Plan.Window\n",
		"length := s.Plan.Window / 2\n",
		1,
	},
	{
		"apex moved to a primary that is not ready",
		[]string{"I15", "I1"},
		"internal/canary/machine.go",
		"	case !primary.Ready:\n\t\treturn release.WaitsFor(\"primary-ready\", release.ByCluster, s.primaryMessage())\n\tdefault:",
		"	default:", 1,
	},
	{
		"finalizer first",
		[]string{"I16"},
		"internal/canary/leaving.go",
		"		return hold(s, gates, effects...)\n\t}\n\teffects = append(effects, GivenBack{})",
		"		return hold(s, gates, append(effects, HasFinalizer{})...)\n\t}\n\teffects = append(effects, GivenBack{})", 21,
	},
	{
		"counts of the revision before",
		[]string{"I17"},
		"internal/canary/progress.go",
		"	e.zero()\n\te.run()\n", "	e.run()\n", 6,
	},
	{
		"samples of the revision before",
		[]string{"I17"},
		"internal/canary/gates.go",
		"until := s.past(last.Time).Add(s.Plan.oldest())", "until := s.past(last.Time)", 25,
	},
	{
		"pods taken away at rest",
		[]string{"I18"},
		"internal/canary/machine.go",
		"		return hold(s, gates, standing(s)...)\n\t}\n\tfor _, missing", "		return hold(s, gates, standing(s, DownToZero{})...)\n\t}\n\tfor _, missing", 2,
	},
	{
		"selector written at every look",
		[]string{"I19", "I9q", "I9", "I21"},
		"internal/workload/services.go",
		"		desired.SetAnnotations(leaving(", "		annotations[\"seen\"] = existing.GetResourceVersion()\n\t\tdesired.SetAnnotations(leaving(", 1,
	},
	{
		"two questions of one release",
		[]string{"I20"},
		"internal/prober/prober.go",
		"if len(a.queue) == 0 || a.out != \"\" || a.ready {", "if len(a.queue) == 0 || a.ready {", 54,
	},
	{
		"queued at once, for ever",
		[]string{"I21", "I9"},
		"internal/canary/controller/reconciler.go",
		"return max(wake.Sub(now), 1)", "return 1", 1,
	},
	{
		"what failed is tried again",
		[]string{"I23"},
		"internal/canary/machine.go",
		"if revision == s.pinned() && !retry {", "if revision == s.pinned() && s.Status.Phase != flaggerv1.CanaryPhaseFailed {", 1,
	},
	{
		"abort recorded and not carried out",
		[]string{"I24"},
		"internal/canary/progress.go",
		"return e.rollback(reasonAbort).tell(", "return e.tell(", 28,
	},
	{
		"suspension ignored",
		[]string{"I25"},
		"internal/canary/machine.go",
		"	case s.Plan.Suspended:\n", "	case s.Plan.Suspended && s.Status.Phase == \"\":\n", 6,
	},
	{
		"nobody is told what is waited for",
		[]string{"I26"},
		"internal/canary/controller/memory.go",
		"	status = []flaggerv1.GateStatus{}\n	for _, gate := range d.Gates {\n",
		"	status = []flaggerv1.GateStatus{}\n	for _, gate := range d.Gates[:0] {\n",
		1,
	},
	{
		"Services without an owner",
		[]string{"I27", "I8"},
		"internal/workload/services.go",
		"	obj.SetOwnerReferences([]metav1.OwnerReference{ownedBy(c)})\n", "", 1,
	},
	{
		"configuration followed at rest",
		[]string{"I28"},
		"internal/canary/machine.go",
		"effects = append(effects, ScalerExists{})\n\t}", "effects = append(effects, ScalerExists{}, PrimaryExists{ID: s.copyID(), Follow: true})\n\t}", 1,
	},
	{
		"two Canaries for one target",
		[]string{"I31"},
		"internal/canary/controller/observe.go",
		"other.UID != s.object.UID && older(other, s.object)", "other.UID == \"\" && older(other, s.object)", 38,
	},
}

// Elsewhere are the invariants in which timing plays no part, or that one history cannot break, and the tests that hold
// them.
var Elsewhere = map[string]string{
	"I22": "the Canary API has no AnalysisRuns, Experiments or ReplicaSets of its own",
	"I29": "the Canary API has no sequential analysis",
	"I30": "TestEveryCallMayGoWrong in test/sim/canary",
}
