package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// PodDied reports that a pod failed: it was not terminated.
type PodDied struct {
	Namespace, Deployment, Pod, Version string
	// Why is crash or node.
	Why string
}

// Traffic reports where one replica of a gateway sends the requests of a release from now on.
type Traffic struct {
	Release types.NamespacedName
	At      time.Time
	Replica int
	// Routed is false when there is no route, and clients reach what the apex Service selects.
	Routed bool
	// Weights are the shares of requests for which no more special rule exists.
	Weights []Share
	// Matched are the shares of the rules before that one, which are for some clients only.
	Matched [][]Share
	// Mirrored are the Services that get copies of requests; their responses are discarded.
	Mirrored []string
}

// Share is one Service in a rule.
type Share struct {
	// Service has this share. Without a route it is the one of the primary or of the canary that selects the same pods as
	// the apex, or the apex itself when neither does.
	Service string
	Weight  int
	// Known is the number of its endpoints that the gateway sends to, Answering how many of those answer, and Ready how
	// many pods are ready behind it in truth.
	Known, Answering, Ready int
	// via is the Service whose endpoints are used.
	via string
}

// Why requests are lost.
type Why string

// Reasons for lost requests.
const (
	// NoPods: no pod of the Service answers.
	NoPods Why = "no pod answers"
	// NotKnown: pods answer, but the gateway knows none.
	NotKnown Why = "the gateway knows no pod"
	// Gone: pods answer, but the gateway knows only others that do not any more.
	Gone Why = "the gateway knows only pods that are gone"
)

// Lost reports that, from now on, requests that a replica of a gateway sends to a Service are not answered, while
// another Service of the same route has pods that answer.
type Lost struct {
	Release types.NamespacedName
	Service string
	Replica int
	Since   time.Time
	Why     Why
	// Known are the endpoints that the gateway sends to, Published those in the API server's EndpointSlices that take
	// requests, Answering the pods that answer in truth.
	Known, Published, Answering int
	// Left is when the last write took all requests from the Service, which the gateway has not followed yet; zero: what
	// is written sends requests there.
	Left time.Time
}

// Restored reports that such a loss is over.
type Restored struct {
	Lost  Lost
	Until time.Time
}
