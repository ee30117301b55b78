package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// blockedReleases returns stories of releases in progress that are blocked, and that no user repairs.
func blockedReleases() []Story {
	return []Story{
		{
			Name: "rollback of a blocked release", Provider: actors.Istio, Spec: useStepWeights, Around: (*Release).addConfig,
			Acts: []Act{
				shipWhenInitialized(actors.BadVersion),
				{When: weightIs(20), After: time.Second, Do: func(p *users, r *Release) { p.UserClient.DeleteOf(r.Key, r.config, actors.ConfigMapKind) }},
			}, End: flaggerv1.CanaryPhaseFailed,
		},
	}
}
