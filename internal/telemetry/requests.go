package telemetry

import (
	"net/http"
	"strconv"
	"strings"
)

// CountRequests counts the requests to the API server in serin_api_requests_total. It is used as WrapTransport of a rest.Config.
func (m *Metrics) CountRequests(next http.RoundTripper) http.RoundTripper {
	return requestCounter{metrics: m, next: next}
}

type requestCounter struct {
	metrics *Metrics
	next    http.RoundTripper
}

func (c requestCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	code := "none" // there was no response
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	verb, resource := verbAndResource(request)
	c.metrics.apiRequests.WithLabelValues(verb, resource, code).Inc()
	return response, err
}

// WrappedRoundTripper returns the wrapped transport, through which client-go cancels requests.
func (c requestCounter) WrappedRoundTripper() http.RoundTripper { return c.next }

// verbAndResource names a request to the API server like its audit log does. The resource is the plural, with the
// subresource if there is one; for other paths (discovery, version, health) it is "none".
func verbAndResource(request *http.Request) (verb, resource string) {
	rest, ok := resourcePath(request.URL.Path)
	if !ok || rest[0] == "" {
		return strings.ToLower(request.Method), "none"
	}
	if rest[0] == "namespaces" && len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
		rest = rest[2:]
	}
	resource = rest[0]
	if len(rest) > 2 {
		resource += "/" + rest[2]
	}

	named := len(rest) > 1
	switch request.Method {
	case http.MethodGet, http.MethodHead:
		query := request.URL.Query()
		switch {
		case query.Get("watch") == "true" || query.Get("watch") == "1":
			verb = "watch"
		case named:
			verb = "get"
		default:
			verb = "list"
		}
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	case http.MethodDelete:
		verb = "delete"
		if !named {
			verb = "deletecollection"
		}
	default:
		verb = strings.ToLower(request.Method)
	}
	return verb, resource
}

// resourcePath returns the segments after /api/VERSION/ or /apis/GROUP/VERSION/, at least one. The server's address may have a
// path of its own in front of them (a proxy's), so the first segment named api or apis counts.
func resourcePath(path string) ([]string, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for i, segment := range segments {
		skip := 0
		switch segment {
		case "api":
			skip = 2
		case "apis":
			skip = 3
		default:
			continue
		}
		if len(segments) <= i+skip {
			return nil, false
		}
		return segments[i+skip:], true
	}
	return nil, false
}
