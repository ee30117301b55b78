//go:build linux

package demo

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// canaryStatus contains the fields of a Canary that the demo uses. They are read from the unstructured object and not with
// Serin's types, so that the demo works with any controller of this API.
type canaryStatus struct {
	phase   string
	weight  int64
	failed  int64
	message string // of the condition Promoted
}

func readStatus(canary *unstructured.Unstructured) canaryStatus {
	var s canaryStatus
	// A field of an unexpected type is treated as absent; the scenario then fails with the last observed status.
	s.phase, _, _ = unstructured.NestedString(canary.Object, "status", "phase")
	s.weight, _, _ = unstructured.NestedInt64(canary.Object, "status", "canaryWeight")
	s.failed, _, _ = unstructured.NestedInt64(canary.Object, "status", "failedChecks")
	conditions, _, _ := unstructured.NestedSlice(canary.Object, "status", "conditions")
	for _, c := range conditions {
		c, _ := c.(map[string]any)
		if c["type"] == "Promoted" || c["type"] == "Blocked" && c["status"] == "True" {
			s.message, _ = c["message"].(string)
		}
	}
	return s
}

func (s canaryStatus) String() string {
	return fmt.Sprintf("phase %s, weight %d, failed checks %d", s.phase, s.weight, s.failed)
}

// releaseProgress accumulates the observed statuses of one release.
type releaseProgress struct {
	isStarted bool
	last      canaryStatus
	// steps is the number of weight increases, windows the number of observation windows that were evaluated.
	steps, windows int
}

// observe processes the next status and returns the outcome, or "" while the release is in progress. Statuses from before the
// release started are ignored.
func (p *releaseProgress) observe(s canaryStatus) Outcome {
	switch s.phase {
	case "Progressing", "Waiting", "WaitingPromotion", "Promoting", "Finalising":
		p.isStarted = true
	}
	if !p.isStarted {
		return ""
	}
	// The window that opens with the last failed check is not evaluated: the release is rolled back at once.
	evaluated := s.weight > p.last.weight || s.failed > p.last.failed || s.phase == "WaitingPromotion" || s.phase == "Promoting"
	if evaluated && p.last.phase == "Progressing" && p.last.weight > 0 {
		p.windows++
	}
	if s.weight > p.last.weight {
		p.steps++
	}
	p.last = s
	switch s.phase {
	case "Succeeded":
		return Promoted
	case "Failed":
		return RolledBack
	default:
		return ""
	}
}
