package canary

import (
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// editedReleases returns stories of releases whose routing users change while the traffic returns to the primary.
func editedReleases() []Story {
	rollsBack := func(_ *Release, s flaggerv1.CanaryStatus) bool { return s.Serin != nil && s.Serin.Intent == "rollback" }
	return []Story{
		{
			Name: "match removed during a promotion", Provider: actors.Istio, Spec: func(spec *flaggerv1.CanarySpec) {
				spec.Analysis.Iterations = 1
				spec.Analysis.Match = []flaggerv1.AnalysisMatch{{Headers: map[string]flaggerv1.HeaderMatch{"x-canary": {Exact: "always"}}}}
			},
			Acts: []Act{
				shipWhenInitialized(actors.GoodVersion),
				{When: phaseIs(flaggerv1.CanaryPhasePromoting), Do: func(p *users, r *Release) { p.changeMatch(r, 1) }},
			}, End: flaggerv1.CanaryPhaseSucceeded,
		},
		{
			Name: "provider changed during a rollback", Provider: actors.Istio, Spec: useStepWeights,
			Acts: []Act{
				shipWhenInitialized(actors.BadVersion),
				{When: rollsBack, Do: func(p *users, r *Release) { p.changeProvider(r, actors.GatewayAPI) }},
			}, End: flaggerv1.CanaryPhaseFailed,
		},
	}
}
