package metric

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/serin-dev/serin/internal/outbound"
)

// Cluster is the API server, for providers that query it as they query any service: by its address, through the guarded
// client.
type Cluster struct {
	// Address is the URL of the API server.
	Address string
	// Own sends requests to the API server only, with the credentials of the process; Anonymous sends none.
	Own, Anonymous *outbound.Client
	// OneNamespace restricts a query to the namespace of its template.
	OneNamespace bool
}

// CheckNamespace rejects a query for a namespace to which its template has no access.
func (c Cluster) CheckNamespace(template, asked string) error {
	if c.OneNamespace && template != asked {
		return fmt.Errorf("can't ask about namespace %s, cross-namespace references are blocked", asked)
	}
	return nil
}

// apiReasons are the error codes of the API server. Messages are omitted, because they may name objects that the user cannot
// read.
var apiReasons = []string{
	"Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout", "Timeout",
	"TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable", "InternalError", "Expired", "ServiceUnavailable",
}

// Reason returns the error code of the API server. It is an argument of Fetch.
func Reason(body []byte) string {
	var status struct {
		Kind   string `json:"kind"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || !slices.Contains(apiReasons, status.Reason) {
		return ""
	}
	return status.Reason
}
