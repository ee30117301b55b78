package telemetry

import (
	"net/http"
	"strconv"
	"strings"
)

// CountRequests counts what goes to the API server in serin_api_requests_total. It is a rest.Config's WrapTransport.
func (m *Metrics) CountRequests(next http.RoundTripper) http.RoundTripper {
	return requestCounter{metrics: m, next: next}
}

type requestCounter struct {
	metrics *Metrics
	next    http.RoundTripper
}

func (c requestCounter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	code := "none" // no answer came
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	verb, resource := verbAndResource(request)
	c.metrics.apiRequests.WithLabelValues(verb, resource, code).Inc()
	return response, err
}

// verbAndResource reads a request to the API server the way its audit log names it. The resource is the plural, with
// the subresource where there is one; what is not a resource (discovery, version, health) is "none".
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

// resourcePath is what follows /api/VERSION/ or /apis/GROUP/VERSION/, in pieces, at least one. An address may have a
// path of its own before that (a proxy's), so the first of the two words counts.
func resourcePath(path string) ([]string, bool) {
	pieces := strings.Split(strings.Trim(path, "/"), "/")
	for i, piece := range pieces {
		skip := 0
		switch piece {
		case "api":
			skip = 2
		case "apis":
			skip = 3
		default:
			continue
		}
		if len(pieces) <= i+skip {
			return nil, false
		}
		return pieces[i+skip:], true
	}
	return nil, false
}
