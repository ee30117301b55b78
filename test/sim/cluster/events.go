package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PodDied reports that a pod failed, without having been terminated.
type PodDied struct {
	Namespace, Deployment, Pod, Version string
	// Why is "crash" or "node".
	Why string
}

// Traffic reports where a replica of a gateway sends the requests of a release from now on.
type Traffic struct {
	Release types.NamespacedName
	At      time.Time
	Replica int
	// Routed is false if there is no route, and clients reach the pods that the apex Service selects.
	Routed bool
	// Weights are the shares of requests to which no earlier rule applies.
	Weights []Share
	// Matched are the shares of the earlier rules, which apply to some clients only.
	Matched [][]Share
	// Mirrored are the Services that receive mirrored requests.
	Mirrored []string
}

// Share is one Service in a rule.
type Share struct {
	// Service receives this share. Without a route it is the primary or the canary Service that selects the same pods as the
	// apex, or the apex itself.
	Service string
	Weight  int
	// Known is the number of its endpoints that the gateway sends to, Answering the number of those that answer, and Ready the
	// number of pods behind it that are actually ready.
	Known, Answering, Ready int
	// via is the Service whose endpoints are used.
	via string
}

// LossReason is why requests are lost.
type LossReason string

// Reasons for lost requests.
const (
	// NoPods means that no pod of the Service answers.
	NoPods LossReason = "no pod answers"
	// NoEndpoints means that pods answer, but the gateway knows none.
	NoEndpoints LossReason = "the gateway knows no pod"
	// StaleEndpoints means that pods answer, but the gateway knows only pods that no longer do.
	StaleEndpoints LossReason = "the gateway knows only pods that are gone"
)

// RequestsLost reports that requests that a replica of a gateway sends to a Service are no longer answered, while another
// Service of the same route has pods that answer.
type RequestsLost struct {
	Release types.NamespacedName
	Service string
	Replica int
	Since   time.Time
	Why     LossReason
	// Known is the number of endpoints that the gateway sends to, Published the number of ready endpoints in the API server's
	// EndpointSlices, and Answering the number of pods that actually answer.
	Known, Published, Answering int
	// TrafficRemoved is when the stored route last stopped sending requests to the Service, which the gateway has not observed
	// yet; zero: the stored route sends requests there.
	TrafficRemoved time.Time
}

// RequestsRestored reports the end of such a loss.
type RequestsRestored struct {
	Lost  RequestsLost
	Until time.Time
}
