package release

import (
	"time"
)

// Endpoints are the endpoints that Kubernetes has published for the pods of a Service. Routers send requests to
// endpoints, and learn of a pod a moment after its workload counts it as ready. In a busy cluster, this moment is long
// enough to lose requests.
type Endpoints struct {
	// Unknown is the reason why the endpoints cannot be observed; empty: they were observed.
	Unknown string
	// NoService is true if the Service does not exist.
	NoService bool
	// ServiceCreated is the creation time of a Service without endpoints; zero: unknown.
	ServiceCreated time.Time
	// Ready is the number of endpoints that receive requests.
	Ready int32
}

// AtLeast reports whether at least n endpoints are ready, or whether this is unknown.
func (e Endpoints) AtLeast(n int32) bool { return e.Unknown != "" || e.Ready >= n }

// Message describes the endpoints for users.
func (e Endpoints) Message() string {
	if e.Unknown != "" {
		return e.Unknown
	}
	return Count(int(e.Ready), "endpoint") + " published"
}
