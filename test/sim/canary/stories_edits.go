package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim/actors"
)

// editedReleases returns stories of releases whose routing users change while the traffic returns to the primary.
func editedReleases() []Story {
	abortWithProvider := func(p *users, r *Release) {
		p.updateSpec(r, func(c *flaggerv1.Canary) {
			c.Annotations[canary.CommandAnnotation] = canary.NewCommand(canary.CommandAbort, string(c.UID), c.Status)
		})
		p.changeProvider(r, actors.GatewayAPI)
	}
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
				shipWhenInitialized(actors.GoodVersion),
				{When: weightIs(20), After: 5 * time.Second, Do: abortWithProvider},
			}, End: flaggerv1.CanaryPhaseFailed,
		},
	}
}
