package traffic

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// RouteKindAnnotation selects, on a Canary, the kind of its route for a provider that supports several: an annotation, because
// Flagger's definition of a Canary would reject a provider, and drop a field, that it does not have.
const RouteKindAnnotation = "serin.dev/route-kind"

// Matches are the requests to which spec.analysis.match limits the canary; nil if there is no limit.
func Matches(c *flaggerv1.Canary) []release.Match {
	analysis := c.Spec.EffectiveAnalysis()
	if analysis == nil || len(analysis.Match) == 0 {
		return nil
	}
	out := make([]release.Match, 0, len(analysis.Match))
	for _, m := range analysis.Match {
		match := release.Match{SourceLabels: m.SourceLabels}
		if len(m.Headers) > 0 {
			match.Headers = make(map[string]release.StringMatch, len(m.Headers))
			for name, h := range m.Headers {
				match.Headers[name] = release.StringMatch{Exact: h.Exact, Prefix: h.Prefix, Suffix: h.Suffix, Regex: h.Regex}
			}
		}
		if len(m.QueryParams) > 0 {
			match.QueryParams = make(map[string]release.StringMatch, len(m.QueryParams))
			for name, q := range m.QueryParams {
				match.QueryParams[name] = release.StringMatch{Exact: q.Exact, Prefix: q.Prefix, Regex: q.Regex}
			}
		}
		out = append(out, match)
	}
	return out
}

const (
	// defaultMaxAge of the canary's cookie, in seconds.
	defaultMaxAge = 86400
	// defaultInterval of an analysis without an interval.
	defaultInterval = time.Minute
)

// Sticky returns the cookies of a status, with the attributes of the spec; nil without session affinity, and as long as no
// cookie was created. Values are created when the status is written, so that rendering remains a function of stored values.
//
// A cookie without a name, which Flagger wrote if no name was set, is ignored.
func Sticky(c *flaggerv1.Canary, status flaggerv1.CanaryStatus) *release.Sticky {
	analysis := c.Spec.EffectiveAnalysis()
	if analysis == nil || analysis.SessionAffinity == nil {
		return nil
	}
	affinity := analysis.SessionAffinity
	maxAge := affinity.MaxAge
	if maxAge == 0 {
		maxAge = defaultMaxAge
	}
	sticky := &release.Sticky{
		Canary:   cookie(affinity, status.SessionAffinityCookie, maxAge),
		Previous: cookie(affinity, status.PreviousSessionAffinityCookie, -1),
	}
	if affinity.PrimaryCookieName != "" {
		// Clients of the primary are assigned again after an interval. Otherwise none of them would ever reach the canary.
		sticky.Primary = cookie(affinity, status.PrimarySessionAffinityCookie, intervalSeconds(analysis.Interval))
	}
	if sticky.Canary.Name == "" && sticky.Primary.Name == "" && sticky.Previous.Name == "" {
		return nil
	}
	return sticky
}

func cookie(affinity *flaggerv1.SessionAffinity, stored string, maxAge int) release.Cookie {
	name, value, ok := strings.Cut(stored, "=")
	if !ok || name == "" {
		return release.Cookie{}
	}
	return release.Cookie{
		Name: name, Value: value, MaxAge: maxAge,
		Domain: affinity.Domain, Path: affinity.Path, SameSite: affinity.SameSite,
		HTTPOnly: affinity.HTTPOnly, Secure: affinity.Secure, Partitioned: affinity.Partitioned,
	}
}

func intervalSeconds(interval string) int {
	d, err := time.ParseDuration(interval)
	if err != nil || d <= 0 {
		d = defaultInterval
	}
	return int(math.Ceil(d.Seconds())) // never 0, which would expire the cookie
}

// SetCookie is the value of the header Set-Cookie, with the attributes in Flagger's order, so that a route that Flagger wrote
// is not written again. A negative MaxAge expires the cookie.
func SetCookie(c release.Cookie) string {
	var b strings.Builder
	b.WriteString(c.Name + "=" + c.Value + "; Max-Age=" + strconv.Itoa(c.MaxAge))
	attribute := func(name, value string) {
		if value != "" {
			b.WriteString("; " + name + "=" + value)
		}
	}
	flag := func(name string, on bool) {
		if on {
			b.WriteString("; " + name)
		}
	}
	attribute("Domain", c.Domain)
	flag("HttpOnly", c.HTTPOnly)
	flag("Partitioned", c.Partitioned)
	attribute("Path", c.Path)
	attribute("SameSite", c.SameSite)
	flag("Secure", c.Secure)
	return b.String()
}

// CookiePattern is the regular expression that a header Cookie with this cookie matches as a whole.
func CookiePattern(c release.Cookie) string {
	return ".*" + regexp.QuoteMeta(c.Name) + ".*" + regexp.QuoteMeta(c.Value) + ".*"
}

// ExpiredCookie is the cookie that a route without traffic to the canary expires in clients, and whether there is one. Effects
// come before the status: during a rollback, the status still has the cookie of the run in place of the previous one.
func ExpiredCookie(s *release.Sticky) (release.Cookie, bool) {
	if s == nil {
		return release.Cookie{}, false
	}
	c := s.Previous
	if s.Canary.Name != "" {
		c = s.Canary
	}
	c.MaxAge = -1
	return c, c.Name != ""
}
