package rollout

import (
	"time"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
)

// pingPongStories are stories of releases that tell their revisions apart in another way than by a Service each.
func pingPongStories() []Story {
	turns := func(r *Release) { r.withPingPong() }
	subsetsAlone, subsetsToo := func(r *Release) { r.withSubsets(false) }, func(r *Release) { r.withSubsets(true) }
	abort := Act{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }}
	next := func(stableIs argov1.PingPongType, v actors.Version) Act { // once that Service is the stable one
		return Act{
			When: func(r *Release, s argov1.RolloutStatus) bool {
				return healthyNow(r, s) && s.Canary.StablePingPong == stableIs
			},
			After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(v)) },
		}
	}
	back := Act{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Previous()) }}
	return []Story{
		{Name: "in turns", Router: actors.Istio, Extra: turns, Spec: stepping(weight(40), pause(10)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "in turns, twice", Router: actors.GatewayAPI, Extra: turns, Spec: stepping(weight(50)), Acts: []Act{next(argov1.Ping, actors.GoodVersion), next(argov1.Pong, actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "in turns, aborted", Router: actors.Istio, Extra: turns, Spec: stepping(weight(50), pause(20)), Acts: []Act{shipping(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "in turns, aborted on the other side", Router: actors.Istio, Extra: turns, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			next(argov1.Ping, actors.GoodVersion), next(argov1.Pong, actors.GoodVersion),
			{When: func(r *Release, s argov1.RolloutStatus) bool { return r.Current().Name == "v3" && halfway(r, s) }, After: 5 * time.Second, Do: func(p *users, r *Release) { p.abort(r.Key) }},
		}, End: argov1.RolloutPhaseDegraded, Version: "v2"},
		{Name: "in turns, failed", Router: actors.GatewayAPI, Extra: turns, Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.BadVersion)}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "in turns, back on the way", Router: actors.Istio, Extra: turns, Spec: stepping(weight(50), pause(20)), Acts: []Act{shipping(actors.GoodVersion), back}, End: argov1.RolloutPhaseHealthy, Version: "v1"},
		{Name: "in turns, new revision on the way", Router: actors.Istio, Extra: turns, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "by subsets", Router: actors.Istio, Extra: subsetsAlone, Spec: stepping(weight(20), pause(10), weight(60)), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by subsets, with Services", Router: actors.Istio, Extra: subsetsToo, Spec: stepping(weight(50), analysed()), Acts: []Act{shipping(actors.GoodVersion)}, End: argov1.RolloutPhaseHealthy, Version: "v2"},
		{Name: "by subsets, aborted", Router: actors.Istio, Extra: subsetsAlone, Spec: stepping(weight(50), pause(20)), Acts: []Act{shipping(actors.GoodVersion), abort}, End: argov1.RolloutPhaseDegraded, Version: "v1"},
		{Name: "by subsets, new revision on the way", Router: actors.Istio, Extra: subsetsAlone, Spec: stepping(weight(50), pause(20)), Acts: []Act{
			shipping(actors.GoodVersion),
			{When: halfway, After: 5 * time.Second, Do: func(p *users, r *Release) { p.ship(r, r.Add(actors.GoodVersion)) }},
		}, End: argov1.RolloutPhaseHealthy, Version: "v3"},
		{Name: "by subsets, deletion", Router: actors.Istio, Extra: subsetsAlone, Acts: []Act{
			{When: healthyNow, After: 5 * time.Second, Do: func(p *users, r *Release) { p.userClient.DeleteOf(r.Key, r.Key.Name, rolloutKind) }},
		}},
	}
}
