package metric

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The builtin metrics.
const (
	// RequestSuccessRate is the share of requests that did not fail, in percent.
	RequestSuccessRate = "request-success-rate"
	// RequestDuration is the duration of requests in milliseconds: the 99th percentile, or the mean for nginx and skipper,
	// whose metrics are not histograms.
	RequestDuration = "request-duration"
)

// Dialect returns the name of the system whose metrics the builtin queries read; it is part of messages about such a query.
// It is the Canary's provider, or else the controller's. If the controller's provider is Linkerd, it is Linkerd even if the
// Canary has a provider for its ingress. The kind of the target is irrelevant.
func Dialect(specProvider, globalProvider string) string {
	switch {
	case specProvider == "" && strings.Contains(globalProvider, "crossover"):
		return "crossover"
	case specProvider == "":
		return globalProvider
	case strings.Contains(globalProvider, "linkerd"):
		return "linkerd"
	default:
		return specProvider
	}
}

// Builtin returns the PromQL text of a builtin metric in a dialect. An unknown dialect is treated as Istio's. Names are
// escaped, so that each matches only itself.
func Builtin(dialect, name string, v Vars) (string, error) {
	span, err := promDuration(v.interval())
	if err != nil {
		return "", err
	}
	o := observerOf(dialect)
	switch name {
	case RequestSuccessRate:
		base := o.requests(v)
		return fmt.Sprintf("sum(rate(%s[%s])) / sum(rate(%s[%s])) * 100", base.withMatcher(o.succeeded), span, base, span), nil
	case RequestDuration:
		query := ""
		if series := o.duration(v); o.isMean {
			query = fmt.Sprintf("sum(rate(%s[%s])) / sum(rate(%s[%s]))", series.withSuffix("_sum"), span, series.withSuffix("_count"), span)
		} else {
			query = fmt.Sprintf("histogram_quantile(0.99, sum(rate(%s[%s])) by (le))", series.withSuffix("_bucket"), span)
		}
		if o.hasFactor {
			query += " * 1000"
		}
		return query, nil
	default:
		return "", fmt.Errorf("%s is not a builtin metric: use %s or %s, or give a templateRef", name, RequestSuccessRate, RequestDuration)
	}
}

// Complement returns the PromQL text of the success rate, computed from the failures. If no request has ever succeeded, there
// is no series of successes, so that the builtin text has no value although all requests failed.
func Complement(dialect string, v Vars) (string, error) {
	span, err := promDuration(v.interval())
	if err != nil {
		return "", err
	}
	o := observerOf(dialect)
	base := o.requests(v)
	return fmt.Sprintf("100 - sum(rate(%s[%s])) / sum(rate(%s[%s])) * 100", base.withMatcher(o.succeeded.negated()), span, base, span), nil
}

// OrElse returns a provider that sends another query if the first one has no data.
func OrElse(p Provider, text string) Provider { return orElse{Provider: p, text: text} }

type orElse struct {
	Provider
	text string
}

// Measure returns the value of the query, or of the other one if it has no data.
func (p orElse) Measure(ctx context.Context, q Query) (float64, error) {
	value, err := p.Provider.Measure(ctx, q)
	if !errors.Is(err, ErrNoData) {
		return value, err
	}
	q.Text = p.text
	return p.Provider.Measure(ctx, q)
}

// Scale returns the factor by which the value of a builtin query is multiplied to get percent or milliseconds. Most queries
// contain the factor; those that return seconds are unchanged, because dashboards and caches use the same text.
func Scale(dialect, name string) float64 {
	if name == RequestDuration && observerOf(dialect).inSeconds {
		return 1000
	}
	return 1
}

// promDuration returns an interval in PromQL's notation. Go also accepts fractions such as 1.5m, and units in any order.
func promDuration(interval string) (string, error) {
	if promDurationPattern.MatchString(interval) {
		return interval, nil
	}
	d, err := time.ParseDuration(interval)
	if err != nil || d < time.Millisecond {
		return "", fmt.Errorf("interval %q is not a duration such as 1m: correct it", interval)
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms", nil
}

var promDurationPattern = regexp.MustCompile(`^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$`)

// series is a selector of PromQL.
type series struct {
	name     string
	matchers []matcher
}

func seriesOf(name string, matchers func(Vars) []matcher) func(Vars) series {
	return func(v Vars) series { return series{name: name, matchers: matchers(v)} }
}

// totalBucketOf selects the bucket of a histogram that counts all requests, for systems that have no counter by status.
func totalBucketOf(name string, matchers func(Vars) []matcher) func(Vars) series {
	return seriesOf(name, func(v Vars) []matcher { return append(matchers(v), equals("le", "+Inf")) })
}

func (s series) withSuffix(suffix string) series {
	return series{name: s.name + suffix, matchers: s.matchers}
}

func (s series) withMatcher(m matcher) series {
	matchers := append([]matcher{}, s.matchers...)
	return series{name: s.name, matchers: append(matchers, m)}
}

// String returns the selector in PromQL.
func (s series) String() string {
	parts := make([]string, len(s.matchers))
	for i, m := range s.matchers {
		parts[i] = m.String()
	}
	return s.name + "{" + strings.Join(parts, ",") + "}"
}

// matcher is one condition on a label.
type matcher struct{ label, operator, value string }

// String returns the condition in PromQL, whose strings have the escapes of Go.
func (m matcher) String() string { return m.label + m.operator + strconv.Quote(m.value) }

// negated returns the negated condition.
func (m matcher) negated() matcher {
	opposite := map[string]string{"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
	return matcher{m.label, opposite[m.operator], m.value}
}

func equals(label, value string) matcher { return matcher{label, "=", value} }

// matches returns a condition with a regular expression, which Prometheus anchors at both ends.
func matches(label string, expression ...string) matcher {
	return matcher{label, "=~", strings.Join(expression, "")}
}

// quoteRegexp escapes a name for a regular expression.
func quoteRegexp(name string) string { return regexp.QuoteMeta(name) }

// routeWord returns a name in the form in which skipper uses it in the names of its routes.
func routeWord(name string) string { return nonWord.ReplaceAllString(name, "_") }

var nonWord = regexp.MustCompile(`\W`)
