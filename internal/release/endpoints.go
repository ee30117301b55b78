package release

import (
	"fmt"
	"time"
)

// Endpoints are what Kubernetes has published of the pods behind a Service. Routers send requests there, and learn of a
// pod a moment after its workload has counted it as ready: on a busy cluster that moment is long enough to send requests
// to no pod.
type Endpoints struct {
	// Unknown is why this cannot be observed, as a sentence; empty: it can.
	Unknown string
	// NoService is true when the Service itself does not exist.
	NoService bool
	// ServiceCreated is when a Service was created that has no endpoints; zero: not known.
	ServiceCreated time.Time
	// Ready are those that take requests.
	Ready int32
}

// AtLeast reports whether n of them take requests, or whether that is unknown.
func (e Endpoints) AtLeast(n int32) bool { return e.Unknown != "" || e.Ready >= n }

// Message is what is known of them, as a message.
func (e Endpoints) Message() string {
	if e.Unknown != "" {
		return e.Unknown
	}
	return fmt.Sprintf("%d endpoints published", e.Ready)
}
