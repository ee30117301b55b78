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
		return fmt.Sprintf("sum(rate(%s[%s])) / sum(rate(%s[%s])) * 100", base.with(o.succeeded), span, base, span), nil
	case RequestDuration:
		query := ""
		if series := o.duration(v); o.mean {
			query = fmt.Sprintf("sum(rate(%s[%s])) / sum(rate(%s[%s]))", series.named("_sum"), span, series.named("_count"), span)
		} else {
			query = fmt.Sprintf("histogram_quantile(0.99, sum(rate(%s[%s])) by (le))", series.named("_bucket"), span)
		}
		if o.scaled {
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
	return fmt.Sprintf("100 - sum(rate(%s[%s])) / sum(rate(%s[%s])) * 100", base.with(o.succeeded.not()), span, base, span), nil
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
	if name == RequestDuration && observerOf(dialect).seconds {
		return 1000
	}
	return 1
}

// promDuration returns an interval in PromQL's notation. Go also accepts fractions such as 1.5m, and units in any order.
func promDuration(interval string) (string, error) {
	if promSpelling.MatchString(interval) {
		return interval, nil
	}
	d, err := time.ParseDuration(interval)
	if err != nil || d < time.Millisecond {
		return "", fmt.Errorf("interval %q is not a duration such as 1m: correct it", interval)
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms", nil
}

var promSpelling = regexp.MustCompile(`^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$`)

// observer contains the metrics of one system.
type observer struct {
	// requests and duration select the series of the canary; the name of duration has no suffix (_bucket, _sum).
	requests, duration func(v Vars) series
	// succeeded is the matcher of requests that did not fail.
	succeeded matcher
	// mean reports whether the duration is sum/count; otherwise it is the 99th percentile of the histogram.
	mean bool
	// scaled reports whether the query multiplies seconds by 1000, seconds whether its value is in seconds.
	scaled, seconds bool
}

// observerOf returns the observer for the name of a provider.
func observerOf(dialect string) observer {
	switch {
	case strings.HasPrefix(dialect, "appmesh"):
		return envoy(podMatchers)
	case strings.HasPrefix(dialect, "gloo"):
		return envoy(func(v Vars) []matcher {
			return []matcher{like("envoy_cluster_name", quote(v.Namespace), "-", quote(v.Service), "-canaryupstream-[0-9a-zA-Z-]+_[0-9a-zA-Z-]+")}
		})
	case strings.HasPrefix(dialect, "gatewayapi:"):
		return httpObserver()
	}
	switch dialect {
	case "kubernetes":
		return httpObserver()
	case "contour":
		return envoy(func(v Vars) []matcher {
			return []matcher{like("envoy_cluster_name", quote(v.Namespace), "_", quote(v.Service), "-canary_[0-9a-zA-Z-]+")}
		})
	case "knative":
		return envoy(func(v Vars) []matcher {
			return []matcher{like("envoy_cluster_name", quote(v.Namespace), "/", quote(v.Route))}
		})
	case "kuma":
		return envoy(func(v Vars) []matcher {
			return []matcher{like("service", quote(v.Service), "-canary_", quote(v.Namespace), "_svc_[0-9a-zA-Z-]+")}
		})
	case "linkerd":
		matchers := func(v Vars) []matcher {
			return []matcher{is("namespace", v.Namespace), like("deployment", quote(v.Target)), is("direction", "inbound")}
		}
		return observer{
			requests:  named("response_total", matchers),
			duration:  named("response_latency_ms", matchers),
			succeeded: matcher{"classification", "!=", "failure"},
		}
	case "osm":
		matchers := func(v Vars) []matcher {
			return []matcher{is("destination_namespace", v.Namespace), is("destination_kind", "Deployment"), is("destination_name", v.Target)}
		}
		return observer{
			requests:  named("osm_request_total", matchers),
			duration:  named("osm_request_duration_ms", matchers),
			succeeded: matcher{"response_code", "!~", "5.*"},
		}
	case "nginx":
		matchers := func(v Vars) []matcher {
			return []matcher{is("namespace", v.Namespace), is("ingress", v.Ingress), {"canary", "!=", ""}}
		}
		return observer{
			requests:  named("nginx_ingress_controller_requests", matchers),
			duration:  named("nginx_ingress_controller_response_duration_seconds", matchers),
			succeeded: matcher{"status", "!~", "5.*"},
			mean:      true, scaled: true,
		}
	case "skipper":
		matchers := func(v Vars) []matcher {
			return []matcher{like("route", "kube(ew)?_", word(v.Namespace), "__", word(v.Ingress), "_canary__.*__", word(v.Service), "_canary(_[0-9]+)?")}
		}
		return observer{
			requests:  counted("skipper_response_duration_seconds_bucket", matchers),
			duration:  named("skipper_serve_route_duration_seconds", matchers),
			succeeded: matcher{"code", "!~", "5.."},
			mean:      true, scaled: true,
		}
	case "traefik":
		matchers := func(v Vars) []matcher {
			return []matcher{like("service", quote(v.Namespace), "-", quote(v.Service), "-canary-[0-9a-zA-Z-]+@kubernetescrd")}
		}
		return observer{
			requests:  counted("traefik_service_request_duration_seconds_bucket", matchers),
			duration:  named("traefik_service_request_duration_seconds", matchers),
			succeeded: matcher{"code", "!~", "5.."},
			scaled:    true,
		}
	case "apisix":
		matchers := func(v Vars) []matcher {
			return []matcher{like("route", quote(v.Namespace), "_", quote(v.Route), "-", quote(v.Service), "-canary_.+")}
		}
		return observer{
			requests: named("apisix_http_status", matchers),
			duration: named("apisix_http_latency", func(v Vars) []matcher {
				return append(matchers(v), like("type", "request"))
			}),
			succeeded: matcher{"code", "!~", "5.."},
		}
	default: // istio, the smi providers, crossover, and the providers that Flagger treats as Istio
		matchers := func(v Vars) []matcher {
			return []matcher{is("reporter", "destination"), is("destination_workload_namespace", v.Namespace), like("destination_workload", quote(v.Target))}
		}
		return observer{
			requests:  named("istio_requests_total", matchers),
			duration:  named("istio_request_duration_milliseconds", matchers),
			succeeded: matcher{"response_code", "!~", "5.*"},
		}
	}
}

// httpObserver returns the metrics of the pods themselves, or of a proxy in front of them that has labels for pods.
func httpObserver() observer {
	return observer{
		requests:  named("http_request_duration_seconds_count", podMatchers),
		duration:  named("http_request_duration_seconds", podMatchers),
		succeeded: matcher{"status", "!~", "5.*"},
		seconds:   true,
	}
}

func envoy(matchers func(Vars) []matcher) observer {
	return observer{
		requests:  named("envoy_cluster_upstream_rq", matchers),
		duration:  named("envoy_cluster_upstream_rq_time", matchers),
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
	case n > cutNames && n <= tellingNames:
		hash = letter + "{0,10}-?"
	}
	return []matcher{is("kubernetes_namespace", v.Namespace), like("kubernetes_pod_name", quote(v.Target), "-", hash, own)}
}

const (
	// cutNames is the length of a Deployment's name up to which the names of its pods are complete: Kubernetes truncates
	// longer ones to 58 characters before it adds its suffix of five.
	cutNames = 58 - len("-0123456789-")
	// tellingNames is the length up to which the truncated names still differ from those of the primary's pods.
	tellingNames = 58 - len("-pri")
)

// series is a selector of PromQL.
type series struct {
	name     string
	matchers []matcher
}

func named(name string, matchers func(Vars) []matcher) func(Vars) series {
	return func(v Vars) series { return series{name: name, matchers: matchers(v)} }
}

// counted selects the bucket of a histogram that counts all requests, for systems that have no counter by status.
func counted(name string, matchers func(Vars) []matcher) func(Vars) series {
	return named(name, func(v Vars) []matcher { return append(matchers(v), is("le", "+Inf")) })
}

func (s series) named(suffix string) series {
	return series{name: s.name + suffix, matchers: s.matchers}
}

func (s series) with(m matcher) series {
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

// not returns the negated condition.
func (m matcher) not() matcher {
	opposite := map[string]string{"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
	return matcher{m.label, opposite[m.operator], m.value}
}

func is(label, value string) matcher { return matcher{label, "=", value} }

// like returns a condition with a regular expression, which Prometheus anchors at both ends.
func like(label string, expression ...string) matcher {
	return matcher{label, "=~", strings.Join(expression, "")}
}

// quote escapes a name for a regular expression.
func quote(name string) string { return regexp.QuoteMeta(name) }

// word returns a name in the form in which skipper uses it in the names of its routes.
func word(name string) string { return notWord.ReplaceAllString(name, "_") }

var notWord = regexp.MustCompile(`\W`)
