package release

import (
	"fmt"
	"strings"
)

// Total is what the weights of a route add up to unless a plan says otherwise.
const Total = 100

// Route is the desired traffic split as one value. The two roles are the stable side (Canary API: primary)
// and the canary; providers know which Services or subsets carry them.
type Route struct {
	// Canary is the share of requests that go to the canary, 0 to Total; the stable side gets the rest.
	Canary int
	// Total is what all weights add up to; zero means 100.
	Total int
	// Others are further destinations with a weight of their own (experiments), taken from the stable side.
	Others []Destination
	// Mirror copies requests to the canary, whose responses are discarded.
	Mirror Mirror
	// Matches, when not empty, limit the canary's weight to requests that match one of them; all other requests go to
	// the stable side.
	Matches []Match
	// Sticky keeps a client on the side it was sent to first.
	Sticky *Sticky
	// HeaderRoutes are managed routes that send matching requests to the canary, highest precedence first.
	HeaderRoutes []HeaderRoute
	// MirrorRoutes are managed routes that mirror a share of matching requests to the canary.
	MirrorRoutes []MirrorRoute
}

// Destination is one more receiver of traffic.
type Destination struct {
	// Service is its name in the namespace of the release.
	Service string
	Weight  int
	// Revision is the hash of the template of its pods, for routers that know pods by label.
	Revision string
}

// Mirror is a share of requests that are copied.
type Mirror struct {
	Enabled bool
	// Percent is 1 to 100; zero leaves it to the router, which copies all.
	Percent int
}

// Match is a set of conditions on a request, all of which must hold.
type Match struct {
	Headers      map[string]StringMatch
	QueryParams  map[string]StringMatch
	SourceLabels map[string]string
	// Path and Method are used by managed routes.
	Path, Method *StringMatch
}

// StringMatch has exactly one field set.
type StringMatch struct{ Exact, Prefix, Suffix, Regex string }

// Sticky is session affinity by cookie. Values are decided before rendering and live in the status.
type Sticky struct {
	// Canary is the cookie that keeps a client on the canary, Primary the one that keeps it on the stable side; each is
	// absent when its Name is empty.
	Canary, Primary Cookie
	// Previous is the canary cookie of the run before, which clients must drop.
	Previous Cookie
}

// Cookie is one cookie with its attributes.
type Cookie struct {
	Name, Value string
	// MaxAge in seconds.
	MaxAge                        int
	Domain, Path, SameSite        string
	HTTPOnly, Secure, Partitioned bool
}

// HeaderRoute is a managed route by header.
type HeaderRoute struct {
	Name  string
	Match []Match
}

// MirrorRoute is a managed route that mirrors.
type MirrorRoute struct {
	Name    string
	Match   []Match
	Percent int
}

// Stable is the weight of the stable side.
func (r Route) Stable() int {
	total := r.Total
	if total == 0 {
		total = Total
	}
	total -= r.Canary
	for _, d := range r.Others {
		total -= d.Weight
	}
	return total
}

// String is how a history shows the route: "canary=20 primary=80".
func (r Route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "canary=%d primary=%d", r.Canary, r.Stable())
	if r.Mirror.Enabled {
		b.WriteString(" mirror")
		if r.Mirror.Percent > 0 {
			fmt.Fprintf(&b, "=%d", r.Mirror.Percent)
		}
	}
	if len(r.Matches) > 0 {
		fmt.Fprintf(&b, " matches=%d", len(r.Matches))
	}
	return b.String()
}
