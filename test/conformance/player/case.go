package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// A caseFile is case.yaml: the purpose of a case and its steps. README.md of the recorded cases explains every field.
type caseFile struct {
	Title          string            `json:"title"`
	Provider       string            `json:"provider"`
	Shows          string            `json:"shows"`
	Flags          []string          `json:"flags,omitempty"`
	Simulate       []string          `json:"simulate,omitempty"`
	Alone          bool              `json:"alone,omitempty"` // needs a separate controller
	ClusterObjects []string          `json:"clusterObjects,omitempty"`
	Metrics        []rule            `json:"metrics,omitempty"`
	Hooks          map[string]answer `json:"hooks,omitempty"`
	Steps          []step            `json:"steps"`
	Settle         int               `json:"settle,omitempty"` // seconds, default 12
	Compare        *tolerance        `json:"compare,omitempty"`

	name string // folder name, also the namespace
	dir  string
}

// tolerance relaxes the comparison of one case.
type tolerance struct {
	Events  string   `json:"events,omitempty"`  // "set": in any order; "ignore"
	Objects string   `json:"objects,omitempty"` // "last": only the last version is compared
	Phases  string   `json:"phases,omitempty"`  // "last"
	Hooks   string   `json:"webhooks,omitempty"`
	Skip    []string `json:"skipObjects,omitempty"`
	Why     string   `json:"why"`
}

// rule defines the responses to metric queries whose text matches.
type rule struct {
	Match  string   `json:"match,omitempty"`
	Value  string   `json:"value,omitempty"`
	Values []string `json:"values,omitempty"` // one per query; the last one is repeated
	Empty  bool     `json:"empty,omitempty"`
	Status int      `json:"status,omitempty"`
	Body   string   `json:"body,omitempty"`
}

type answer struct {
	Status  int      `json:"status,omitempty"`
	Body    string   `json:"body,omitempty"`
	Answers []answer `json:"answers,omitempty"` // one per call; the last one is repeated
}

type step struct {
	Wait    *condition `json:"wait,omitempty"`
	Sleep   int        `json:"sleep,omitempty"`
	Apply   string     `json:"apply,omitempty"`
	Delete  string     `json:"delete,omitempty"`
	Patch   *patch     `json:"patch,omitempty"`
	Metrics []rule     `json:"metrics,omitempty"`
	Hook    *hookStep  `json:"hook,omitempty"`
	Restart bool       `json:"restartController,omitempty"`
}

type hookStep struct {
	Path string `json:"path"`
	answer
}

type patch struct {
	Object      string `json:"object"`         // resource.group/name
	Type        string `json:"type,omitempty"` // merge (default), strategic, json
	Subresource string `json:"subresource,omitempty"`
	Body        any    `json:"body"`
}

// condition is met when one record, later than the last action and the last wait, matches all fields that are set.
type condition struct {
	Canary       string `json:"canary,omitempty"`
	Phase        string `json:"phase,omitempty"`
	Weight       *int64 `json:"weight,omitempty"`
	Iterations   *int64 `json:"iterations,omitempty"`
	FailedChecks *int64 `json:"failedChecks,omitempty"`
	Deleted      bool   `json:"deleted,omitempty"`
	Event        string `json:"event,omitempty"`  // regular expression on the message
	Hook         string `json:"hook,omitempty"`   // path called
	Query        string `json:"query,omitempty"`  // regular expression on the query
	Object       string `json:"object,omitempty"` // Kind/name changed
	Times        int    `json:"times,omitempty"`
	Timeout      int    `json:"timeout,omitempty"`
}

func loadCase(dir string) (*caseFile, error) {
	b, err := os.ReadFile(filepath.Join(dir, "case.yaml"))
	if err != nil {
		return nil, err
	}
	c := &caseFile{name: filepath.Base(dir), dir: dir, Settle: 12}
	if err := yaml.UnmarshalStrict(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

// findCases returns the case folders below the given folders, sorted by name.
func findCases(roots []string) ([]string, error) {
	var out []string
	for _, r := range roots {
		if _, err := os.Stat(filepath.Join(r, "case.yaml")); err == nil {
			out = append(out, r)
			continue
		}
		m, err := filepath.Glob(filepath.Join(r, "*", "case.yaml"))
		if err != nil {
			return nil, err
		}
		for _, f := range m {
			out = append(out, filepath.Dir(f))
		}
	}
	sort.Slice(out, func(i, j int) bool { return filepath.Base(out[i]) < filepath.Base(out[j]) })
	return out, nil
}

// manifests reads all documents of the files after replacing placeholders.
func manifests(files []string, fill func(string) string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for doc := range bytes.SplitSeq([]byte(fill(string(b))), []byte("\n---")) {
			if strings.TrimSpace(strings.TrimPrefix(string(doc), "---")) == "" {
				continue
			}
			m := map[string]any{}
			if err := yaml.Unmarshal(doc, &m); err != nil {
				return nil, fmt.Errorf("%s: %w", f, err)
			}
			if len(m) > 0 {
				j, err := yaml.YAMLToJSON(doc)
				if err != nil {
					return nil, err
				}
				u := &unstructured.Unstructured{}
				if err := u.UnmarshalJSON(j); err != nil {
					return nil, fmt.Errorf("%s: %w", f, err)
				}
				out = append(out, u)
			}
		}
	}
	return out, nil
}

// reportsOnRoutes reports whether steps of the case write the reports of a gateway.
func (c *caseFile) reportsOnRoutes() bool {
	for _, s := range c.Steps {
		if s.Patch != nil && strings.HasPrefix(s.Patch.Object, "httproutes.") && s.Patch.Subresource == "status" {
			return true
		}
	}
	return false
}
