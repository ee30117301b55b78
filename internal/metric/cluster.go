package metric

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/serin-dev/serin/internal/outbound"
)

// Cluster is the API server, for providers that ask it as they ask any service: by its address, through the guarded
// client.
type Cluster struct {
	// Address of the API server.
	Address string
	// Own calls it with the credentials of the process, and nobody else; Anonymous without any.
	Own, Anonymous *outbound.Client
	// OneNamespace: a query may name the namespace of its template only.
	OneNamespace bool
}

// Check refuses a query about a namespace that its template may not ask about.
func (c Cluster) Check(template, asked string) error {
	if c.OneNamespace && template != asked {
		return fmt.Errorf("can't ask about namespace %s, cross-namespace references are blocked", asked)
	}
	return nil
}

// reasons are the words of the API server for what went wrong. The sentence beside them may name what the asker cannot
// see.
var reasons = []string{
	"Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid", "ServerTimeout", "Timeout",
	"TooManyRequests", "BadRequest", "MethodNotAllowed", "NotAcceptable", "InternalError", "Expired", "ServiceUnavailable",
}

// Reason is the API server's word for what is wrong with a request, for Fetch.
func Reason(body []byte) string {
	var status struct {
		Kind   string `json:"kind"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" || !slices.Contains(reasons, status.Reason) {
		return ""
	}
	return status.Reason
}
