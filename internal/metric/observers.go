package metric

import "strings"

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
		return envoyObserver(podMatchers)
	case strings.HasPrefix(dialect, "gloo"):
		return envoyObserver(glooMatchers)
	case strings.HasPrefix(dialect, "gatewayapi:"):
		return httpObserver()
	}
	switch dialect {
	case "kubernetes":
		return httpObserver()
	case "contour":
		return envoyObserver(contourMatchers)
	case "knative":
		return envoyObserver(knativeMatchers)
	case "kuma":
		return envoyObserver(kumaMatchers)
	case "linkerd":
		return linkerdObserver()
	case "osm":
		return osmObserver()
	case "nginx":
		return nginxObserver()
	case "skipper":
		return skipperObserver()
	case "traefik":
		return traefikObserver()
	case "apisix":
		return apisixObserver()
	default: // istio, the smi providers, crossover, and the providers that Flagger treats as Istio
		return istioObserver()
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

// envoyObserver returns the metrics of an Envoy whose clusters are selected by matchers.
func envoyObserver(matchers func(Vars) []matcher) observer {
	return observer{
		requests:  seriesOf("envoy_cluster_upstream_rq", matchers),
		duration:  seriesOf("envoy_cluster_upstream_rq_time", matchers),
		succeeded: matcher{"envoy_response_code", "!~", "5.*"},
	}
}

func istioObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{equals("reporter", "destination"), equals("destination_workload_namespace", v.Namespace), matches("destination_workload", quoteRegexp(v.Target))}
	}
	return observer{
		requests:  seriesOf("istio_requests_total", matchers),
		duration:  seriesOf("istio_request_duration_milliseconds", matchers),
		succeeded: matcher{"response_code", "!~", "5.*"},
	}
}

func linkerdObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{equals("namespace", v.Namespace), matches("deployment", quoteRegexp(v.Target)), equals("direction", "inbound")}
	}
	return observer{
		requests:  seriesOf("response_total", matchers),
		duration:  seriesOf("response_latency_ms", matchers),
		succeeded: matcher{"classification", "!=", "failure"},
	}
}

func osmObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{equals("destination_namespace", v.Namespace), equals("destination_kind", "Deployment"), equals("destination_name", v.Target)}
	}
	return observer{
		requests:  seriesOf("osm_request_total", matchers),
		duration:  seriesOf("osm_request_duration_ms", matchers),
		succeeded: matcher{"response_code", "!~", "5.*"},
	}
}

func nginxObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{equals("namespace", v.Namespace), equals("ingress", v.Ingress), {"canary", "!=", ""}}
	}
	return observer{
		requests:  seriesOf("nginx_ingress_controller_requests", matchers),
		duration:  seriesOf("nginx_ingress_controller_response_duration_seconds", matchers),
		succeeded: matcher{"status", "!~", "5.*"},
		isMean:    true, hasFactor: true,
	}
}

func skipperObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{matches("route", "kube(ew)?_", routeWord(v.Namespace), "__", routeWord(v.Ingress), "_canary__.*__", routeWord(v.Service), "_canary(_[0-9]+)?")}
	}
	return observer{
		requests:  totalBucketOf("skipper_response_duration_seconds_bucket", matchers),
		duration:  seriesOf("skipper_serve_route_duration_seconds", matchers),
		succeeded: matcher{"code", "!~", "5.."},
		isMean:    true, hasFactor: true,
	}
}

func traefikObserver() observer {
	matchers := func(v Vars) []matcher {
		return []matcher{matches("service", quoteRegexp(v.Namespace), "-", quoteRegexp(v.Service), "-canary-[0-9a-zA-Z-]+@kubernetescrd")}
	}
	return observer{
		requests:  totalBucketOf("traefik_service_request_duration_seconds_bucket", matchers),
		duration:  seriesOf("traefik_service_request_duration_seconds", matchers),
		succeeded: matcher{"code", "!~", "5.."},
		hasFactor: true,
	}
}

func apisixObserver() observer {
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
}

func glooMatchers(v Vars) []matcher {
	return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "-", quoteRegexp(v.Service), "-canaryupstream-[0-9a-zA-Z-]+_[0-9a-zA-Z-]+")}
}

func contourMatchers(v Vars) []matcher {
	return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "_", quoteRegexp(v.Service), "-canary_[0-9a-zA-Z-]+")}
}

func knativeMatchers(v Vars) []matcher {
	return []matcher{matches("envoy_cluster_name", quoteRegexp(v.Namespace), "/", quoteRegexp(v.Route))}
}

func kumaMatchers(v Vars) []matcher {
	return []matcher{matches("service", quoteRegexp(v.Service), "-canary_", quoteRegexp(v.Namespace), "_svc_[0-9a-zA-Z-]+")}
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
