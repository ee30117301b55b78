//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Request is a request of one of the users in Options.Audit, as the API server recorded it.
type Request struct {
	User, Verb string
	// Group and Resource are empty if the path is not that of a resource. Resource includes the subresource, such as pods/log.
	Group, Resource, Namespace, Name string
	// Forbidden reports whether RBAC denied the request. It is false for a request that admission rejected, such as one in a
	// terminating namespace.
	Forbidden bool
	Path      string
}

// writeAuditPolicy writes the audit policy and returns the flags with which the API server uses it.
func (c *Cluster) writeAuditPolicy() ([]string, error) {
	if len(c.options.Audit) == 0 {
		return nil, nil
	}
	policy, err := json.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []map[string]any{{"level": "Metadata", "users": c.options.Audit}, {"level": "None"}},
	})
	if err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	file := filepath.Join(c.Folder, "audit-policy.json")
	if err := os.WriteFile(file, policy, 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	if err := os.Remove(c.auditLogPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the audit log of the previous cluster: %w", err)
	}
	// The maximum size, in megabytes, prevents rotation: Requests reads one file.
	return []string{"--audit-policy-file=" + file, "--audit-log-path=" + c.auditLogPath(), "--audit-log-maxsize=4096"}, nil
}

func (c *Cluster) auditLogPath() string { return filepath.Join(c.Folder, "logs", "audit.log") }

// Requests returns the requests of the users in Options.Audit, in the order in which they were answered. It is complete once the
// cluster has stopped.
func (c *Cluster) Requests() ([]Request, error) {
	file, err := os.Open(c.auditLogPath())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer file.Close()
	var all []Request
	for decoder := json.NewDecoder(file); ; {
		var event struct {
			Verb       string `json:"verb"`
			RequestURI string `json:"requestURI"`
			User       struct {
				Username string `json:"username"`
			} `json:"user"`
			ObjectRef struct {
				APIGroup    string `json:"apiGroup"`
				Resource    string `json:"resource"`
				Subresource string `json:"subresource"`
				Namespace   string `json:"namespace"`
				Name        string `json:"name"`
			} `json:"objectRef"`
			Annotations map[string]string `json:"annotations"`
		}
		// The last entry may be incomplete: the API server is still running, or was killed while it wrote.
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		r := Request{
			User: event.User.Username, Verb: event.Verb, Path: event.RequestURI,
			Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource, Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name,
			Forbidden: event.Annotations["authorization.k8s.io/decision"] == "forbid",
		}
		if event.ObjectRef.Subresource != "" {
			r.Resource += "/" + event.ObjectRef.Subresource
		}
		all = append(all, r)
	}
}
