package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/store"
)

// jobStories returns stories of releases that are analysed by Jobs.
func jobStories() []Story {
	short := func(r *Release) { r.useJobs(shortTemplate, 0) }
	background := func(spec *argov1.RolloutSpec) {
		withSteps(weightStep(40), pauseStep(20))(spec)
		spec.Strategy.Canary.Analysis = &argov1.RolloutAnalysisBackground{RolloutAnalysis: analysisWith(endlessTemplate)}
	}
	hanging := func(template string, seconds int64) func(*Release) {
		return func(r *Release) {
			r.useJobs(template, seconds)
			r.jobsHang = true
		}
	}
	crash := Act{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) {
		p.UserClient.DuringWrite(store.Create, actors.JobKind, true, p.crash)
		p.ship(r, r.Add(actors.GoodVersion))
	}}
	abort := Act{When: hasHalfTheWeight, After: 20 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }}
	return []Story{
		{Name: "by Jobs", Router: actors.Istio, Extra: short, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by Jobs, failed", Router: actors.Istio, Extra: short, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by Jobs that never end, background", Router: actors.Istio, Extra: hanging(endlessTemplate, 0), Spec: background, Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by Jobs that never end, aborted", Router: actors.Istio, Extra: hanging(shortTemplate, 0), Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by Jobs with a deadline", Router: actors.Istio, Extra: hanging(shortTemplate, 30), Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		// The Job is running when the process starts again, and the status does not contain it.
		{Name: "by Jobs, crash after a creation", Router: actors.Istio, Extra: hanging(shortTemplate, 60), Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{crash}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
	}
}
