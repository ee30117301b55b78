package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// silentGateways returns stories of releases whose Gateway is without a controller while a weight is set.
func silentGateways() []Story {
	stop := Act{When: isPaused, After: time.Second, Do: func(p *users, _ *Release) { p.Gateway.FallSilent(cluster.ControllerStopped) }}
	restart := Act{After: 3 * time.Minute, Do: func(p *users, _ *Release) { p.Gateway.Report() }}
	return []Story{
		{
			Name: "gateway without a controller", Router: actors.GatewayAPI, Spec: withSteps(weightStep(20), pauseStep(10), weightStep(60), pauseStep(10)),
			Acts: []Act{shipWhenHealthy(actors.GoodVersion), stop, restart}, End: argov1.RolloutPhaseHealthy, Version: "v2",
		},
		{
			Name: "abort with a gateway without a controller", Router: actors.GatewayAPI, Spec: withSteps(weightStep(20), pauseStep(10), weightStep(60), pauseStep(10)),
			Acts: []Act{
				shipWhenHealthy(actors.GoodVersion), stop,
				{When: hasHalfTheWeight, After: time.Minute, Do: func(p *users, r *Release) { p.abort(r.Key) }},
				restart,
			}, End: argov1.RolloutPhaseDegraded, Version: "v1",
		},
	}
}
