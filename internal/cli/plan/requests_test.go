package plan

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

const (
	goodRequests = `sum(rate(requests{code!~"5.."}[1m]))`
	allRequests  = `sum(rate(requests[1m]))`
)

func TestRequestsNeeded(t *testing.T) {
	for _, c := range []struct {
		name, query, limit string
		want               int64
	}{
		{"nothing is tolerated", goodRequests + " / " + allRequests + " * 100", ">= 100%", 0},
		{"everything is tolerated", goodRequests + " / " + allRequests + " * 100", ">= 0%", 0},
		{"success rate in percent", goodRequests + " / " + allRequests + " * 100", ">= 99%", 100},
		{"no rounding up of exact numbers", goodRequests + " / " + allRequests + " * 100", ">= 90%", 10},
		{"rounded up", goodRequests + " / " + allRequests + " * 100", ">= 99.3", 143},
		{"factor first", "100 * " + goodRequests + "\n/ " + allRequests, ">= 95", 20},
		{"factor after parentheses", "(" + goodRequests + " / " + allRequests + ") * 100", ">= 95", 20},
		{"error rate", `sum(increase(requests{code=~"5.."}[5m])) / sum(increase(requests[5m]))`, "<= 0.01", 100},
		{"complement", "100 - " + goodRequests + " / " + allRequests + " * 100", "<= 1", 100},
		{"complement of 1", "1 - " + goodRequests + " / " + allRequests, "<= 0.02", 50},
		{"complement with another scale", "1 - " + goodRequests + " / " + allRequests + " * 100", "<= 0.02", 0},
		{"two factors", "100 * " + goodRequests + " / " + allRequests + " * 100", ">= 99", 0},
		{"the stricter of two bounds", goodRequests + " / " + allRequests, ">= 0.99 and <= 0.999", 100},
		{"limit beyond the scale", goodRequests + " / " + allRequests, ">= 99", 0},
		{"braces and slashes in a text", `sum(rate(requests{path=~"/a{2}/.*"}[1m])) / sum(rate(requests[1m]))`, ">= 0.99", 100},
		{"labels of all requests", `sum(rate(requests{code="200", app="cart"}[1m])) / sum(rate(requests{app="cart",}[1m]))`, ">= 0.99", 100},
		{"another group of requests", `sum(rate(requests{app="canary"}[1m])) / sum(rate(requests{app="stable"}[1m]))`, "<= 0.9", 0},
		{"fewer labels", allRequests + " / " + goodRequests, "<= 0.9", 0},
		{"another counter", goodRequests + ` / sum(rate(calls[1m]))`, ">= 0.99", 0},
		{"another window", goodRequests + ` / sum(rate(requests[5m]))`, ">= 0.99", 0},
		{"by group", `sum by (pod) (rate(requests{code!~"5.."}[1m])) / sum by (pod) (rate(requests[1m]))`, ">= 0.99", 0},
		{"more than a share", goodRequests + " / " + allRequests + " or vector(1)", ">= 0.99", 0},
		{"no share", allRequests, "<= 1", 0},
		{"unbalanced parentheses", "(" + goodRequests + " / " + allRequests, ">= 0.99", 0},
		{"percentile", `histogram_quantile(0.99, sum(rate(duration_bucket{a="b"}[30s])) by (le)) * 1000`, "<= 500ms", 100},
		{"percentile, grouped first", `histogram_quantile(.95, sum by (le) (rate(duration_bucket[30s])))`, "<= 0.5", 20},
		{"percentile without a limit", `histogram_quantile(0.99, sum(rate(duration_bucket[30s])) by (le))`, "any", 0},
		{"no limit", goodRequests + " / " + allRequests, "any", 0},
	} {
		got := requestsNeeded(c.query, checkBounds(c.limit))
		if got == nil {
			got = &RequestsNeeded{}
		}
		if got.Count != c.want {
			t.Errorf("%s: %s %s needs %d requests, want %d", c.name, c.query, c.limit, got.Count, c.want)
		}
	}
}

func TestRequestsNeededOfConditions(t *testing.T) {
	query := goodRequests + " / " + allRequests
	for _, c := range []struct {
		name, success, failure, query string
		want                          RequestsNeeded
	}{
		{"success", "result[0] >= 0.95", "", query, RequestsNeeded{20, "1m", "with fewer requests, a single one exceeds the tolerated 5%"}},
		{"strict", "result[0] > 0.95", "", query, RequestsNeeded{21, "1m", "with fewer requests, a single one reaches the limit of 5%"}},
		{"failure", "", "result < 0.99", query, RequestsNeeded{100, "1m", "with fewer requests, a single one exceeds the tolerated 1%"}},
		{"strict failure", "", "result[0] <= 0.99", query, RequestsNeeded{101, "1m", "with fewer requests, a single one reaches the limit of 1%"}},
		{"missing values", "len(result) == 0 || isNaN(result[0]) || result[0] < 0.01", "", query, RequestsNeeded{101, "1m", "with fewer requests, a single one reaches the limit of 1%"}},
		{"last two samples", "result[0] >= 0.95", "", `sum(irate(r{code="200"}[5m])) / sum(irate(r[5m]))`, RequestsNeeded{20, "scrape interval", "with fewer requests, a single one exceeds the tolerated 5%"}},
		{"two comparisons", "result[0] >= 0.95 && result[0] < 1", "", query, RequestsNeeded{}},
		{"no comparison with a number", "result[0] == 1", "", query, RequestsNeeded{}},
		{"none", "", "", query, RequestsNeeded{}},
	} {
		m := argov1.Metric{SuccessCondition: c.success, FailureCondition: c.failure, Provider: argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Query: c.query}}}
		got := metricRequests(m)
		if got == nil {
			got = &RequestsNeeded{}
		}
		if *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, *got, c.want)
		}
	}
	if got := metricRequests(argov1.Metric{SuccessCondition: "result >= 0.95", Provider: argov1.MetricProvider{Web: &argov1.WebMetric{URL: "http://x"}}}); got != nil {
		t.Errorf("nothing follows from a web metric: %+v", got)
	}
}

// TestSmallestCountIsThatOfASearch: one request of n is tolerated, and one of n-1 is not.
func TestSmallestCountIsThatOfASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tolerated := big.NewRat(rapid.Int64Range(1, 999).Draw(t, "share"), 1000)
		strict := rapid.Bool().Draw(t, "strict")
		want := int64(1)
		for ; ; want++ {
			order := big.NewRat(1, want).Cmp(tolerated)
			if order < 0 || order == 0 && !strict {
				break
			}
		}
		if got := smallestCount(tolerated, strict); got != want {
			t.Fatalf("%s, strict %v: %d, want %d", tolerated, strict, got, want)
		}
	})
}
