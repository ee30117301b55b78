//go:build linux

package queries

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// labels are the labels of one series.
type labels = map[string]string

// subject is the workload that series of a provider describe.
type subject struct {
	namespace string
	// workload is the name of the target, of the primary or of another workload; pod is the name of one of its pods.
	workload, pod string
	// service, ingress and route are the objects through which the requests were routed.
	service, ingress, route string
	// canary reports whether the workload is the canary of a release.
	canary bool
}

// shape describes the metrics of a provider: their names and labels, including those that scraping adds.
type shape struct {
	// requests returns the labels of the counter of requests with a status.
	requests func(s subject, code string) labels
	// duration returns the labels of the histogram of durations of requests with a status. Its name lacks the suffix
	// (_bucket, _sum, _count).
	duration func(s subject, code string) labels
	// unit is a millisecond in the unit of the histogram.
	unit float64
}

func with(base labels, more labels) labels {
	out := maps.Clone(base)
	maps.Copy(out, more)
	return out
}

// sameLabels returns a shape whose counter and histogram have the same labels.
func sameLabels(counter, histogram string, unit float64, labelsOf func(s subject, code string) labels) shape {
	named := func(name string) func(subject, string) labels {
		return func(s subject, code string) labels { return with(labelsOf(s, code), labels{"__name__": name}) }
	}
	return shape{requests: named(counter), duration: named(histogram), unit: unit}
}

const (
	milliseconds = 1
	seconds      = 0.001
)

func istioShape() shape {
	return sameLabels("istio_requests_total", "istio_request_duration_milliseconds", milliseconds, func(s subject, code string) labels {
		return labels{
			"reporter": "destination", "source_workload": "gateway", "source_workload_namespace": "istio-system", "source_app": "gateway",
			"destination_workload": s.workload, "destination_workload_namespace": s.namespace, "destination_app": s.workload,
			"destination_service": s.service + "." + s.namespace + ".svc.cluster.local", "destination_service_name": s.service,
			"destination_service_namespace": s.namespace, "request_protocol": "http", "response_code": code, "response_flags": "-",
			"connection_security_policy": "mutual_tls", "grpc_response_status": "", "job": "kubernetes-pods", "instance": "10.0.0.9:15020",
			"namespace": s.namespace, "pod": s.pod,
		}
	})
}

func linkerdShape() shape {
	labelsOf := func(s subject, code string) labels {
		classification := "success"
		if code[0] == '5' {
			classification = "failure"
		}
		return labels{
			"namespace": s.namespace, "deployment": s.workload, "pod": s.pod, "direction": "inbound", "classification": classification,
			"status_code": code, "tls": "true", "authority": s.service + "." + s.namespace + ".svc.cluster.local:80", "job": "linkerd-proxy",
			"control_plane_ns": "linkerd", "instance": "10.0.0.9:4191", "srv_name": "default:all-unauthenticated", "route_name": "default",
		}
	}
	return shape{
		requests: func(s subject, code string) labels {
			return with(labelsOf(s, code), labels{"__name__": "response_total"})
		},
		duration: func(s subject, code string) labels {
			out := with(labelsOf(s, code), labels{"__name__": "response_latency_ms"})
			delete(out, "classification") // the histogram does not have this label
			return out
		},
		unit: milliseconds,
	}
}

// podShape describes the metrics of the application, with the labels that scraping adds.
func podShape() shape {
	return sameLabels("http_request_duration_seconds_count", "http_request_duration_seconds", seconds, func(s subject, code string) labels {
		return labels{
			"method": "GET", "path": "root", "status": code, "kubernetes_namespace": s.namespace, "kubernetes_pod_name": s.pod,
			"app": s.workload, "job": "kubernetes-pods", "instance": "10.0.0.9:9898",
		}
	})
}

// envoyShape describes the statistics of Envoy, whose histogram has no label for the status.
func envoyShape(labelsOf func(s subject) labels) shape {
	return shape{
		requests: func(s subject, code string) labels {
			return with(labelsOf(s), labels{"__name__": "envoy_cluster_upstream_rq", "envoy_response_code": code})
		},
		duration: func(s subject, _ string) labels {
			return with(labelsOf(s), labels{"__name__": "envoy_cluster_upstream_rq_time"})
		},
		unit: milliseconds,
	}
}

func appmeshShape() shape {
	return envoyShape(func(s subject) labels {
		return labels{
			"envoy_cluster_name": "cds_ingress_mesh_" + s.workload + "_http_8080", "kubernetes_namespace": s.namespace, "kubernetes_pod_name": s.pod,
			"app": s.workload, "job": "kubernetes-pods",
		}
	})
}

func contourShape() shape {
	return envoyShape(func(s subject) labels {
		return labels{"envoy_cluster_name": s.namespace + "_" + s.service + "_8080", "namespace": "projectcontour", "pod": "envoy-8x2v4", "job": "envoy"}
	})
}

func glooShape() shape {
	return envoyShape(func(s subject) labels {
		upstream := s.namespace + "-" + s.service + "-8080"
		if s.canary {
			upstream = s.namespace + "-" + strings.TrimSuffix(s.service, "-canary") + "-canaryupstream-8080"
		}
		return labels{"envoy_cluster_name": upstream + "_" + s.namespace, "job": "gateway-proxy", "kubernetes_namespace": "gloo-system"}
	})
}

func knativeShape() shape {
	return envoyShape(func(s subject) labels {
		return labels{"envoy_cluster_name": s.namespace + "/" + s.route, "job": "kourier", "kubernetes_namespace": "kourier-system"}
	})
}

func kumaShape() shape {
	return envoyShape(func(s subject) labels {
		return labels{
			"envoy_cluster_name": "localhost_8080", "service": s.service + "_" + s.namespace + "_svc_8080", "mesh": "default",
			"dataplane": s.pod + "." + s.namespace, "job": "kuma-dataplanes",
		}
	})
}

func osmShape() shape {
	return sameLabels("osm_request_total", "osm_request_duration_ms", milliseconds, func(s subject, code string) labels {
		return labels{
			"source_namespace": "ingress", "source_kind": "Deployment", "source_name": "gateway", "source_pod": "gateway-5b7-x2",
			"destination_namespace": s.namespace, "destination_kind": "Deployment", "destination_name": s.workload, "destination_pod": s.pod,
			"response_code": code,
		}
	})
}

func nginxShape() shape {
	return sameLabels("nginx_ingress_controller_requests", "nginx_ingress_controller_response_duration_seconds", seconds, func(s subject, code string) labels {
		canary := ""
		if s.canary {
			canary = s.namespace + "-" + s.service + "-8080"
		}
		return labels{
			"namespace": s.namespace, "ingress": s.ingress, "service": "cart-svc", "canary": canary, "status": code, "method": "GET", "path": "/",
			"host": "cart.example.com", "controller_class": "k8s.io/ingress-nginx", "controller_namespace": "ingress-nginx", "controller_pod": "c-1",
		}
	})
}

// skipperName returns a name in the form that skipper uses in the names of its routes.
func skipperName(name string) string { return strings.NewReplacer("-", "_", ".", "_").Replace(name) }

func skipperShape() shape {
	of := func(name string) func(subject, string) labels {
		return func(s subject, code string) labels {
			ingress := s.ingress
			if s.canary || s.workload == "cart-primary" { // primary and canary have one Ingress
				ingress += "-canary"
			}
			return labels{
				"__name__": name, "code": code, "method": "GET",
				"route": "kube_" + skipperName(s.namespace) + "__" + skipperName(ingress) + "__cart_example_com____" + skipperName(s.service), "application": "skipper-ingress",
			}
		}
	}
	return shape{requests: of("skipper_response_duration_seconds_bucket"), duration: of("skipper_serve_route_duration_seconds"), unit: seconds}
}

func traefikShape() shape {
	return sameLabels("traefik_service_request_duration_seconds_bucket", "traefik_service_request_duration_seconds", seconds, func(s subject, code string) labels {
		return labels{
			"service": s.namespace + "-" + s.service + "-8080@kubernetescrd", "code": code, "method": "GET", "protocol": "http",
			"namespace": "traefik", "pod": "traefik-0", "job": "traefik",
		}
	})
}

func apisixShape() shape {
	labelsOf := func(s subject) labels {
		route := s.namespace + "_" + s.route + "_rule-1"
		if s.canary {
			route = s.namespace + "_" + s.route + "-" + s.service + "_rule-1" // the route that is created in addition to the user's
		}
		return labels{"route": route, "matched_uri": "/*", "matched_host": "cart.example.com", "service": "", "consumer": "", "node": "10.0.0.9"}
	}
	return shape{
		requests: func(s subject, code string) labels {
			return with(labelsOf(s), labels{"__name__": "apisix_http_status", "code": code})
		},
		duration: func(s subject, _ string) labels {
			return with(labelsOf(s), labels{"__name__": "apisix_http_latency", "type": "request"})
		},
		unit: milliseconds,
	}
}

// traffic is the traffic of a subject: requests per second by status. The durations do not depend on the status.
type traffic struct {
	codes map[string]float64
	// buckets are the requests per second by their maximum duration in milliseconds, sum is the total of their durations.
	buckets map[float64]float64
	sum     float64
}

func (t traffic) total() float64 {
	total := 0.0
	for _, rate := range t.codes {
		total += rate
	}
	return total
}

// export returns the series of a subject. A histogram that has no label for the status, or is also the counter, is included once.
func (s shape) export(who subject, t traffic) []series {
	all := map[string]series{}
	add := func(of, more labels, rate float64) {
		of = with(of, more)
		key := fmt.Sprint(of) // fmt prints maps in sorted order
		all[key] = series{labels: of, rate: all[key].rate + rate}
	}
	for code, rate := range t.codes {
		histogram, counter := s.duration(who, code), s.requests(who, code)
		name := histogram["__name__"]
		switch counter["__name__"] {
		case name + "_bucket", name + "_count":
		case "skipper_response_duration_seconds_bucket":
			add(counter, labels{"le": "+Inf"}, rate)
		default:
			add(counter, nil, rate)
		}
		share := 0.0
		if total := t.total(); total > 0 {
			share = rate / total
		}
		for bound, cumulated := range t.buckets {
			add(histogram, labels{"__name__": name + "_bucket", "le": strconv.FormatFloat(bound*s.unit, 'g', -1, 64)}, cumulated*share)
		}
		add(histogram, labels{"__name__": name + "_bucket", "le": "+Inf"}, rate)
		add(histogram, labels{"__name__": name + "_count"}, rate)
		add(histogram, labels{"__name__": name + "_sum"}, t.sum*s.unit*share)
	}
	return slices.Collect(maps.Values(all))
}
