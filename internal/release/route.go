package release

import (
	"fmt"
	"strings"
)

// Total is the sum of the weights of a route, unless a plan sets another one.
const Total = 100

// Route is the desired traffic split as one value. Its sides are the stable side (Canary API: primary) and the canary;
// providers know which Services or subsets belong to them.
type Route struct {
	// Canary is the share of requests that the canary receives, from 0 to Total; the stable side receives the rest.
	Canary int
	// Total is the sum of all weights; zero means 100.
	Total int
	// Others are further destinations (experiments), whose weights are subtracted from that of the stable side.
	Others []Destination
	// Mirror copies requests to the canary, whose responses are discarded.
	Mirror Mirror
	// Matches, if not empty, limit the weight of the canary to requests that match one of them. All other requests go
	// to the stable side.
	Matches []Match
	// Sticky assigns each client to the side that answered its first request.
	Sticky *Sticky
	// HeaderRoutes are managed routes that send matching requests to the canary, highest precedence first.
	HeaderRoutes []HeaderRoute
	// MirrorRoutes are managed routes that mirror a share of the matching requests to the canary.
	MirrorRoutes []MirrorRoute
}

// Destination is an additional receiver of traffic.
type Destination struct {
	// Service is the name of its Service, in the namespace of the release.
	Service string
	Weight  int
	// Revision is the hash of the template of its pods, for routers that select pods by label.
	Revision string
}

// Mirror is the share of requests that are copied.
type Mirror struct {
	Enabled bool
	// Percent is from 1 to 100; zero: the default of the router, which copies all requests.
	Percent int
}

// Match is a set of conditions on a request, all of which must be met.
type Match struct {
	Headers      map[string]StringMatch
	QueryParams  map[string]StringMatch
	SourceLabels map[string]string
	// Path and Method are used by managed routes.
	Path, Method *StringMatch
}

// ServiceMatch is what a provider uses of the matches of a Canary's service. The rest is ignored, as in Flagger, with a warning.
type ServiceMatch int

// The parts of the matches of a service.
const (
	MatchIgnored ServiceMatch = iota
	MatchPrefix               // one prefix of a path
	MatchWhole                // what the provider cannot express is refused
)

// StringMatch has exactly one field set.
type StringMatch struct{ Exact, Prefix, Suffix, Regex string }

// Sticky is session affinity by cookie. The values are chosen before rendering and are stored in the status.
type Sticky struct {
	// Canary is the cookie that assigns a client to the canary, Primary the one that assigns it to the stable side. A
	// cookie with an empty Name is not set.
	Canary, Primary Cookie
	// Previous is the canary cookie of the previous release, which clients must delete.
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

// HeaderRoute is a managed route that matches headers.
type HeaderRoute struct {
	Name  string
	Match []Match
}

// MirrorRoute is a managed route that mirrors requests.
type MirrorRoute struct {
	Name    string
	Match   []Match
	Percent int
}

// Stable returns the weight of the stable side.
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

// String returns the route as traces show it: "canary=20 primary=80".
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
