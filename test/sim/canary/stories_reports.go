package canary

import (
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// silentGateways returns stories of releases whose Gateway is without a controller while a weight is set.
func silentGateways() []Story {
	stop := Act{When: weightIs(20), After: time.Second, Do: func(p *users, _ *Release) { p.Gateway.FallSilent(cluster.ControllerStopped) }}
	restart := Act{After: 3 * time.Minute, Do: func(p *users, _ *Release) { p.Gateway.Report() }}
	return []Story{
		{
			Name: "gateway without a controller", Provider: actors.GatewayAPI, Spec: useStepWeights,
			Acts: []Act{shipWhenInitialized(actors.GoodVersion), stop, restart}, End: flaggerv1.CanaryPhaseSucceeded,
		},
		{
			Name: "rollback with a gateway without a controller", Provider: actors.GatewayAPI, Spec: useStepWeights,
			Acts: []Act{
				shipWhenInitialized(actors.GoodVersion), stop,
				{After: time.Minute, Do: func(p *users, r *Release) {
					p.updateSpec(r, func(c *flaggerv1.Canary) {
						c.Annotations[canary.CommandAnnotation] = canary.NewCommand(canary.CommandAbort, string(c.UID), c.Status)
					})
				}},
				restart,
			}, End: flaggerv1.CanaryPhaseFailed,
		},
	}
}
