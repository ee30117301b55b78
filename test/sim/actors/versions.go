package actors

import (
	"fmt"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
)

// Version is one version of a workload with its true properties, which no component of the run knows.
type Version struct {
	// Name is the value of the label version of its template.
	Name string
	// Good versions pass their checks, bad ones fail them. A version with BadFromWeight fails them only once it has that share
	// of the traffic.
	Good          bool
	BadFromWeight int
	// Noise is the probability that a measurement shows the opposite.
	Noise float64
	// Tested means that the webhooks that test the version detect that it is bad.
	Tested bool
	Pods   cluster.PodBehaviour
}

func (v *Version) String() string {
	text := v.Name + " (good"
	switch {
	case !v.Good && v.BadFromWeight > 0:
		text = fmt.Sprintf("%s (bad from weight %d on", v.Name, v.BadFromWeight)
	case !v.Good:
		text = v.Name + " (bad"
	}
	if v.Noise > 0 {
		text += ", noisy"
	}
	if v.Pods.NeverReady {
		text += ", never starts"
	}
	return text + ")"
}

// The versions that stories ship.
var (
	GoodVersion = Version{Good: true, Pods: Healthy}
	BadVersion  = Version{Tested: true, Pods: Healthy}
	NeverReady  = Version{Good: true, Pods: Stuck}
)

// DrawVersion draws a version. good is the probability that it is good, and tested the probability that webhooks test it (zero:
// no draw is made).
func DrawVersion(s *sim.Stream, good, tested float64) Version {
	v := Version{Good: s.Chance(good)}
	if tested > 0 {
		v.Tested = s.Chance(tested)
	}
	v.Pods = DrawPods(s)
	from, noise := sim.Pick(s, 0, 0, 10, 40), s.Chance(0.15)
	if !v.Good {
		v.BadFromWeight = from
	}
	if noise {
		v.Noise = 0.2
	}
	return v
}

// Versions are the versions of one release.
type Versions struct {
	// Known contains all versions by name; Shipped contains the names in the order in which users shipped them.
	Known   map[string]*Version
	Shipped []string
}

// NewVersions returns the versions of a release whose first version is good and already shipped.
func NewVersions() Versions {
	v := Versions{Known: map[string]*Version{}}
	v.Shipped = []string{v.Add(Version{Good: true, Pods: Healthy}).Name}
	return v
}

// Add adds a version, with the next name if it has none.
func (v *Versions) Add(added Version) *Version {
	if added.Name == "" {
		added.Name = fmt.Sprintf("v%d", len(v.Known)+1)
	}
	v.Known[added.Name] = &added
	return &added
}

// Current returns the version that was shipped last.
func (v *Versions) Current() *Version { return v.Known[v.Shipped[len(v.Shipped)-1]] }

// Previous returns the version that was shipped before the current one, or the only one.
func (v *Versions) Previous() *Version { return v.Known[v.Shipped[max(0, len(v.Shipped)-2)]] }
