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

// observer contains the metrics of one system.
type observer struct {
	// requests and duration select the series of the canary; the name of duration has no suffix (_bucket, _sum).
	requests, duration func(v Vars) series
	// succeeded is the matcher of requests that did not fail.
	succeeded matcher
	// isMean reports whether the duration is sum/count; otherwise it is the 99th percentile of the histogram.
	isMean bool
	// hasFactor reports whether the query multiplies seconds by 1000, inSeconds whether its value is in seconds.
	hasFactor, inSeconds bool
}

// observerOf returns the observer for the name of a provider.
func observerOf(dialect string) observer {
	switch {
	case strings.HasPrefix(dialect, "appmesh"):
		return envoy(podMatchers)
	case strings.HasPrefix(dialect, "gloo"):
		return envoy(func(v Vars) []matcher {
			return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "-", quoteRegexp(v.Service), "-canaryupstream-[0-9a-zA-Z-]+_[0-9a-zA-Z-]+")}
		})
	case strings.HasPrefix(dialect, "gatewayapi:"):
		return httpObserver()
	}
	switch dialect {
	case "kubernetes":
		return httpObserver()
	case "contour":
		return envoy(func(v Vars) []matcher {
			return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "_", quoteRegexp(v.Service), "-canary_[0-9a-zA-Z-]+")}
		})
	case "knative":
		return envoy(func(v Vars) []matcher {
			return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "/", quoteRegexp(v.Route))}
		})
	case "kuma":
		return envoy(func(v Vars) []matcher {
			return []matcher{matches("service", quoteRegexp(v.Service), "-canary_", quoteRegexp(v.Namespace), "_svc_[0-9a-zA-Z-]+")}
		})
	case "linkerd":
		matchers := func(v Vars) []matcher {
			return []matcher{equals("namespace", v.Namespace), matches("deployment", quoteRegexp(v.Target)), equals("direction", "inbound")}
		}
		return observer{
			requests:  seriesOf("response_total", matchers),
			duration:  seriesOf("response_latency_ms", matchers),
			succeeded: matcher{"classification", "!=", "failure"},
		}
	case "osm":
		matchers := func(v Vars) []matcher {
			return []matcher{equals("destination_namespace", v.Namespace), equals("destination_kind", "Deployment"), equals("destination_name", v.Target)}
		}
		return observer{
			requests:  seriesOf("osm_request_total", matchers),
			duration:  seriesOf("osm_request_duration_ms", matchers),
			succeeded: matcher{"response_code", "!~", "5.*"},
		}
	case "nginx":
		matchers := func(v Vars) []matcher {
			return []matcher{equals("namespace", v.Namespace), equals("ingress", v.Ingress), {"canary", "!=", ""}}
		}
		return observer{
			requests:  seriesOf("nginx_ingress_controller_requests", matchers),
			duration:  seriesOf("nginx_ingress_controller_response_duration_seconds", matchers),
			succeeded: matcher{"status", "!~", "5.*"},
			isMean:    true, hasFactor: true,
		}
	case "skipper":
		matchers := func(v Vars) []matcher {
			return []matcher{matches("route", "kube(ew)?_", routeWord(v.Namespace), "__", routeWord(v.Ingress), "_canary__.*__", routeWord(v.Service), "_canary(_[0-9]+)?")}
		}
		return observer{
			requests:  totalBucketOf("skipper_response_duration_seconds_bucket", matchers),
			duration:  seriesOf("skipper_serve_route_duration_seconds", matchers),
			succeeded: matcher{"code", "!~", "5.."},
			isMean:    true, hasFactor: true,
		}
	case "traefik":
		matchers := func(v Vars) []matcher {
			return []matcher{matches("service", quoteRegexp(v.Namespace), "-", quoteRegexp(v.Service), "-canary-[0-9a-zA-Z-]+@kubernetescrd")}
		}
		return observer{
			requests:  totalBucketOf("traefik_service_request_duration_seconds_bucket", matchers),
			duration:  seriesOf("traefik_service_request_duration_seconds", matchers),
			succeeded: matcher{"code", "!~", "5.."},
			hasFactor: true,
		}
	case "apisix":
		matchers := func(v Vars) []matcher {
			return []matcher{matches("route", quoteRegexp(v.Namespace), "_", quoteRegexp(v.Route), "-", quoteRegexp(v.Service), "-canary_.+")}
		}
		return observer{
			requests: seriesOf("apisix_http_status", matchers),
			duration: seriesOf("apisix_http_latency", func(v Vars) []matcher {
				return append(matchers(v), matches("type", "request"))
			}),
			succeeded: matcher{"code", "!~", "5.."},
		}
	default: // istio, the smi providers, crossover, and the providers that Flagger treats as Istio
		matchers := func(v Vars) []matcher {
			return []matcher{equals("reporter", "destination"), equals("destination_workload_namespace", v.Namespace), matches("destination_workload", quoteRegexp(v.Target))}
		}
		return observer{
			requests:  seriesOf("istio_requests_total", matchers),
			duration:  seriesOf("istio_request_duration_milliseconds", matchers),
			succeeded: matcher{"response_code", "!~", "5.*"},
		}
	}
}

// httpObserver returns the metrics of the pods themselves, or of a proxy in front of them that has labels for pods.
func httpObserver() observer {
	return observer{
		requests:  seriesOf("http_request_duration_seconds_count", podMatchers),
		duration:  seriesOf("http_request_duration_seconds", podMatchers),
		succeeded: matcher{"status", "!~", "5.*"},
		inSeconds: true,
	}
}

func envoy(matchers func(Vars) []matcher) observer {
	return observer{
		requests:  seriesOf("envoy_cluster_upstream_rq", matchers),
		duration:  seriesOf("envoy_cluster_upstream_rq_time", matchers),
		succeeded: matcher{"envoy_response_code", "!~", "5.*"},
	}
}

// podMatchers selects the pods of the target by name. A pod of a Deployment has two suffixes, the hash of its ReplicaSet and
// its own; a pod of a DaemonSet has one. Kubernetes uses a limited alphabet for them, and five characters for the pod's own
// suffix. So the names of the primary's pods, and of pods of StatefulSets with a similar name, do not match.
func podMatchers(v Vars) []matcher {
	const letter = "[bcdfghjklmnpqrstvwxz2456789]"
	hash, own := letter+"{1,10}-", letter+"{5}"
	switch n := len(v.Target); {
	case v.TargetKind == "DaemonSet":
		hash = ""
	case n > completeNameLength && n <= distinctNameLength:
		hash = letter + "{0,10}-?"
	}
	return []matcher{equals("kubernetes_namespace", v.Namespace), matches("kubernetes_pod_name", quoteRegexp(v.Target), "-", hash, own)}
}

const (
	// completeNameLength is the length of a Deployment's name up to which the names of its pods are complete: Kubernetes
	// truncates longer ones to 58 characters before it adds its suffix of five.
	completeNameLength = 58 - len("-0123456789-")
	// distinctNameLength is the length up to which the truncated names still differ from those of the primary's pods.
	distinctNameLength = 58 - len("-pri")
)

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
