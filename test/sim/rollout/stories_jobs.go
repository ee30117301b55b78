package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// jobStories are stories of releases that are analysed by Jobs.
func jobStories() []Story {
	short := func(r *Release) { r.judgedByJobs(shortTemplate, 0) }
	beside := func(spec *argov1.RolloutSpec) {
		stepping(weight(40), pause(20))(spec)
		spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: judgedBy(endlessTemplate)}
	}
	hanging := func(template string, seconds int64) func(*Release) {
		return func(r *Release) {
			r.judgedByJobs(template, seconds)
			r.hangs = true
		}
	}
	abort := Act{When: halfway, After: 20 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }}
	return []Story{
		{Name: "by Jobs", Router: actors.Istio, Extra: short, Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by Jobs, failed", Router: actors.Istio, Extra: short, Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by Jobs that never end, beside", Router: actors.Istio, Extra: hanging(endlessTemplate, 0), Spec: beside, Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by Jobs that never end, aborted", Router: actors.Istio, Extra: hanging(shortTemplate, 0), Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by Jobs with a deadline", Router: actors.Istio, Extra: hanging(shortTemplate, 30), Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
	}
}
