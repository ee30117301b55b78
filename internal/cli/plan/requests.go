package plan

import (
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// RequestsNeeded is the number of requests that a verdict of a metric needs.
type RequestsNeeded struct {
	// Count is the smallest number of requests in Window with which a single request does not decide.
	Count int64 `json:"count"`
	// Window is the time range of the query, or the scrape interval if the query compares the last two samples.
	Window string `json:"window"`
	// Reason describes what happens with fewer requests.
	Reason string `json:"reason"`
}

// bound is one limit of a value.
type bound struct {
	// operator is the comparison that a good value meets: >=, >, <= or <.
	operator string
	value    *big.Rat
}

// The shapes of queries from which a number of requests follows. All others may have any unit, and nothing is derived from them.
//
// A share divides the requests of a counter that match more labels by those that match fewer, so that its value is k/n for n
// requests, as in
//
//	sum(rate(requests{code!~"5.."}[1m])) / sum(rate(requests[1m])) * 100
const (
	text     = `"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'`
	selector = `(?:\{((?:[^{}"']|` + text + `)*)\})?`
	rate     = `(rate|irate|increase)\s*\(\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*` + selector + `\s*\[([0-9a-z]+)\]\s*\)`
	side     = `sum\s*\(\s*` + rate + `\s*\)`
	byLe     = `\s*(?:by\s*\(\s*le\s*\)\s*)?`
)

var (
	share      = regexp.MustCompile(`^(?:(100)\s*\*\s*|(1|100)\s*-\s*)?(\(\s*)?` + side + `\s*/\s*` + side + `(\s*\))?(?:\s*\*\s*(100))?$`)
	percentile = regexp.MustCompile(`^histogram_quantile\s*\(\s*(0?\.[0-9]+)\s*,\s*sum` + byLe + `\(\s*` + rate + `\s*\)` + byLe + `\)(?:\s*\*\s*[0-9.]+)?$`)
	matcher    = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:` + text + `)`)
)

// requestsNeeded returns the number of requests that the verdict of a query in PromQL needs; nil: it does not follow from the query
// and the limits.
func requestsNeeded(query string, bounds []bound) *RequestsNeeded {
	query = strings.TrimSpace(query)
	if m := percentile.FindStringSubmatch(query); m != nil && len(bounds) > 0 {
		quantile, ok := new(big.Rat).SetString(m[1])
		if !ok {
			return nil
		}
		count := smallestCount(new(big.Rat).Sub(one, quantile), false)
		if count == 0 {
			return nil
		}
		return &RequestsNeeded{count, window(m[2], m[5]), "with fewer requests, the slowest one is the " + percentText(quantile) + "th percentile"}
	}
	scale, in := shareOf(query)
	var out *RequestsNeeded
	for _, b := range bounds {
		if scale == nil {
			break
		}
		tolerated := new(big.Rat).Quo(b.value, scale) // of an error rate
		if b.operator[0] == '>' {
			tolerated.Sub(one, tolerated) // of a success rate
		}
		isStrict, exceeds := len(b.operator) == 1, "exceeds the tolerated "
		if isStrict {
			exceeds = "reaches the limit of "
		}
		count := smallestCount(tolerated, isStrict)
		if count > 0 && (out == nil || out.Count < count) {
			out = &RequestsNeeded{count, in, "with fewer requests, a single one " + exceeds + percentText(tolerated) + "%"}
		}
	}
	return out
}

// shareOf returns the value of a query that means all requests, 1 or 100, and the time in which it counts requests. The value is nil
// if the query is no share of requests.
func shareOf(query string) (all *big.Rat, in string) {
	m := share.FindStringSubmatch(query)
	if m == nil {
		return nil, ""
	}
	factor, complement, factorAfter := m[1] != "", m[2], m[13] != ""
	part, whole := m[4:8], m[8:12] // function, counter, labels, time range
	switch {
	case part[0] != whole[0], part[1] != whole[1], part[3] != whole[3], (m[3] == "") != (m[12] == ""):
		return nil, ""
	case factor && factorAfter, complement == "1" && factorAfter, complement == "100" && !factorAfter:
		return nil, "" // neither a share of 1 nor of 100
	}
	labels := matcher.FindAllString(part[2], -1)
	for _, label := range matcher.FindAllString(whole[2], -1) {
		if !slices.Contains(labels, label) {
			return nil, "" // it compares two groups of requests
		}
	}
	if factor || factorAfter {
		return hundred, window(part[0], part[3])
	}
	return one, window(part[0], part[3])
}

// percentText formats a share in percent.
func percentText(share *big.Rat) string {
	percent, _ := new(big.Rat).Mul(share, hundred).Float64()
	return strconv.FormatFloat(percent, 'f', -1, 64)
}

var one, hundred = big.NewRat(1, 1), big.NewRat(100, 1)

// maxCount is the largest number of requests that is a useful answer.
const maxCount = 1_000_000_000

// smallestCount returns the smallest number n of requests of which a single one is within a tolerated share t: the smallest n with
// 1/n <= t, which is 1/t rounded up. For example, a success rate of at least 99% tolerates t = 1%, so n is 100: one failed request of
// 99 is 1.01%. A strict limit requires 1/n < t. The result is 0 if there is no such number, because nothing or everything is
// tolerated. The arithmetic is exact: in floating-point numbers, 1/(1-0.9) is more than 10.
func smallestCount(tolerated *big.Rat, strict bool) int64 {
	if tolerated.Sign() <= 0 || tolerated.Cmp(one) >= 0 {
		return 0
	}
	n, rest := new(big.Int).QuoRem(tolerated.Denom(), tolerated.Num(), new(big.Int)) // 1/t
	if rest.Sign() > 0 || strict {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() || n.Int64() > maxCount {
		return 0
	}
	return n.Int64()
}

// window returns the time in which a query counts requests.
func window(function, timeRange string) string {
	if function == "irate" {
		return "scrape interval"
	}
	return timeRange
}

// limitText matches one limit of a check of a Canary, such as ">= 99%".
var limitText = regexp.MustCompile(`^(>=|<=) ([0-9]+(?:\.[0-9]+)?)(?:%|[a-zµ]+)?`)

// checkBounds returns the limits of a check of a Canary, from their text in its gate, such as ">= 99% and <= 100%".
func checkBounds(limit string) []bound {
	var out []bound
	for text := range strings.SplitSeq(limit, " and ") {
		if m := limitText.FindStringSubmatch(text); m != nil {
			out = appendBound(out, m[1], m[2])
		}
	}
	return out
}

func appendBound(bounds []bound, operator, value string) []bound {
	if parsed, ok := new(big.Rat).SetString(value); ok {
		return append(bounds, bound{operator, parsed})
	}
	return bounds
}

// comparison matches a condition that compares the value with a number, optionally after a condition about missing values.
var comparison = regexp.MustCompile(`^(?:(?:len\(result\)\s*==\s*0|isNaN\(result(?:\[0\])?\))\s*\|\|\s*)*result(?:\[0\])?\s*(>=|>|<=|<)\s*([0-9]+(?:\.[0-9]+)?)$`)

// metricRequests returns the number of requests that the verdict of a metric of an analysis needs; nil: it does not follow.
func metricRequests(m argov1.Metric) *RequestsNeeded {
	if m.Provider.Prometheus == nil || m.Provider.Prometheus.RangeQuery != nil {
		return nil
	}
	var bounds []bound
	if c := comparison.FindStringSubmatch(strings.TrimSpace(m.SuccessCondition)); c != nil {
		bounds = appendBound(bounds, c[1], c[2])
	}
	// A value that meets the failure condition is bad, so a good one meets the opposite.
	opposites := map[string]string{">=": "<", ">": "<=", "<=": ">", "<": ">="}
	if c := comparison.FindStringSubmatch(strings.TrimSpace(m.FailureCondition)); c != nil {
		bounds = appendBound(bounds, opposites[c[1]], c[2])
	}
	return requestsNeeded(m.Provider.Prometheus.Query, bounds)
}
