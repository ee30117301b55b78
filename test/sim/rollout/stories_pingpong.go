package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// pingPongStories returns stories of releases that do not distinguish their revisions by one Service for each.
func pingPongStories() []Story {
	turns := func(r *Release) { r.usePingPong() }
	subsetsAlone, subsetsToo := func(r *Release) { r.useSubsets(false) }, func(r *Release) { r.useSubsets(true) }
	abort := Act{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }}
	next := func(stableIs argov1.PingPongType, v actors.Version) Act { // once that Service is the stable one
		return Act{
			When: func(r *Release, s argov1.RolloutStatus) bool {
				return isHealthy(r, s) && s.Canary.StablePingPong == stableIs
			},
			After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(v)) },
		}
	}
	back := Act{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Previous()) }}
	// A user removes which of the Services is the stable one, and a process starts with the route in which ping had no traffic yet.
	lost := Act{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) {
		p.crash()
		p.World.OutdateFirstLists(cluster.VirtualServiceKind, 1, time.Second)
		p.patchStatus(r.Key, `{"status":{"canary":null}}`)
		p.ship(r, r.Add(actors.GoodVersion))
	}}
	return []Story{
		{Name: "in turns", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(40), pauseStep(10)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "in turns, twice", Router: actors.GatewayAPI, Extra: turns, Spec: withSteps(weightStep(50)), Acts: []Act{next(argov1.Ping, actors.GoodVersion), next(argov1.Pong, actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "in turns, aborted", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{shipWhenHealthy(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "in turns, aborted on the other side", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			next(argov1.Ping, actors.GoodVersion), next(argov1.Pong, actors.GoodVersion),
			{When: func(r *Release, s argov1.RolloutStatus) bool {
				return r.Current().Name == "v3" && hasHalfTheWeight(r, s)
			}, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
		}, End: argov1.RolloutPhaseDegraded, Version: "v2"},
		{Name: "in turns, failed", Router: actors.GatewayAPI, Extra: turns, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "in turns, back on the way", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{shipWhenHealthy(actors.GoodVersion), back}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "in turns, new revision on the way", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "in turns, after a lost status", Router: actors.Istio, Extra: turns, Spec: withSteps(weightStep(50), pauseStep(10)), Acts: []Act{lost}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by subsets", Router: actors.Istio, Extra: subsetsAlone, Spec: withSteps(weightStep(20), pauseStep(10), weightStep(60)), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by subsets, with Services", Router: actors.Istio, Extra: subsetsToo, Spec: withSteps(weightStep(50), analysisStep()), Acts: []Act{shipWhenHealthy(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by subsets, aborted", Router: actors.Istio, Extra: subsetsAlone, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{shipWhenHealthy(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by subsets, new revision on the way", Router: actors.Istio, Extra: subsetsAlone, Spec: withSteps(weightStep(50), pauseStep(20)), Acts: []Act{
			shipWhenHealthy(actors.GoodVersion),
			{When: hasHalfTheWeight, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "by subsets, deletion", Router: actors.Istio, Extra: subsetsAlone, Acts: []Act{
			{When: isHealthy, After: 5 * time.Second, Do: func(p *users, r *Release) { p.UserClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) }},
		}},
	}
}
