package operator

import (
	"net/http"
	"strings"
)

// evictionTransport removes the header Retry-After from the answers to evictions. Otherwise client-go waits for that time and
// repeats the request, up to ten times: an API server that still processes a disruption budget requests ten seconds, during which a
// worker would reconcile nothing. The state machine decides when a refused eviction is repeated.
type evictionTransport struct{ next http.RoundTripper }

func newEvictionTransport(next http.RoundTripper) http.RoundTripper { return evictionTransport{next} }

// RoundTrip implements http.RoundTripper.
func (t evictionTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err == nil && request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/eviction") {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns the wrapped transport, through which client-go cancels requests.
func (t evictionTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
