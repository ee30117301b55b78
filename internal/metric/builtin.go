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
	// RequestDuration is how long requests take, in milliseconds: the 99th percentile, but the mean for nginx and
	// skipper, whose metrics are no histograms.
	RequestDuration = "request-duration"
)

// Dialect is the name of the system whose metrics the builtin queries read; texts about such a query name it. It is the
// Canary's provider, else the controller's. Behind an ingress that a Canary names, Linkerd still measures. A core
// Service as target changes nothing.
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

// Builtin is the PromQL text of a builtin metric in a dialect. A dialect that is not known is Istio's. Names are
// escaped, so that each stands for itself alone.
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

// Complement is the PromQL text of the success rate as what failures leave of it. Where no request has ever succeeded
// there is no series of successes, and the builtin text has no value although all is lost.
func Complement(dialect string, v Vars) (string, error) {
	span, err := promDuration(v.interval())
	if err != nil {
		return "", err
	}
	o := observerOf(dialect)
	base := o.requests(v)
	return fmt.Sprintf("100 - sum(rate(%s[%s])) / sum(rate(%s[%s])) * 100", base.with(o.succeeded.not()), span, base, span), nil
}

// OrElse is a provider that is asked for another text where a query has no data.
func OrElse(p Provider, text string) Provider { return orElse{Provider: p, text: text} }

type orElse struct {
	Provider
	text string
}

// Measure is the value of the query, or else of the other text.
func (p orElse) Measure(ctx context.Context, q Query) (float64, error) {
	value, err := p.Provider.Measure(ctx, q)
	if !errors.Is(err, ErrNoData) {
		return value, err
	}
	q.Text = p.text
	return p.Provider.Measure(ctx, q)
}

// Scale is what the value of a builtin query is multiplied with to get percent or milliseconds. Most queries do that
// themselves; the ones that give seconds keep the text by which dashboards and caches know them.
func Scale(dialect, name string) float64 {
	if name == RequestDuration && observerOf(dialect).seconds {
		return 1000
	}
	return 1
}

// promDuration spells an interval as PromQL reads it. Go's durations are wider: 1.5m, and units in any order.
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

// observer knows the metrics of one system.
type observer struct {
	// requests and duration select the series of the canary; duration's name lacks its last part (_bucket, _sum).
	requests, duration func(v Vars) series
	// succeeded is the matcher of requests that did not fail.
	succeeded matcher
	// mean: the duration is sum/count; otherwise it is the 99th percentile of the histogram.
	mean bool
	// scaled: the query multiplies seconds with 1000; seconds: its value is in seconds.
	scaled, seconds bool
}

// observerOf is the observer for the name of a provider.
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
	default: // istio, the smi providers, crossover, and what Flagger took for Istio
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

// httpObserver reads what the pods themselves tell, or a proxy in front that labels by pod.
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

// podMatchers select the pods of the target by name. A pod of a Deployment has two suffixes, its ReplicaSet's hash and
// its own; a pod of a DaemonSet has one. Kubernetes makes them of few letters, so that they spell no words, and its own
// of five: the names of the primary's pods, and of StatefulSets beside the target, have another form.
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
	// cutNames is the length of the name of a Deployment up to which those of its pods have all parts: of longer ones
	// Kubernetes keeps 58 characters before it adds its own five.
	cutNames = 58 - len("-0123456789-")
	// tellingNames is the length up to which enough is left to tell the primary's pods.
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

// String is the selector as PromQL reads it.
func (s series) String() string {
	parts := make([]string, len(s.matchers))
	for i, m := range s.matchers {
		parts[i] = m.String()
	}
	return s.name + "{" + strings.Join(parts, ",") + "}"
}

// matcher is one condition on a label.
type matcher struct{ label, operator, value string }

// String is the condition as PromQL reads it; its strings escape as Go's do.
func (m matcher) String() string { return m.label + m.operator + strconv.Quote(m.value) }

// not is the condition that holds where this one does not.
func (m matcher) not() matcher {
	opposite := map[string]string{"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
	return matcher{m.label, opposite[m.operator], m.value}
}

func is(label, value string) matcher { return matcher{label, "=", value} }

// like is a condition by regular expression, which Prometheus anchors at both ends.
func like(label string, expression ...string) matcher {
	return matcher{label, "=~", strings.Join(expression, "")}
}

// quote makes a name stand for itself in a regular expression.
func quote(name string) string { return regexp.QuoteMeta(name) }

// word is a name as skipper writes it into the names of its routes.
func word(name string) string { return notWord.ReplaceAllString(name, "_") }

var notWord = regexp.MustCompile(`\W`)
