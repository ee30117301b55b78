//go:build linux

package demo

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// canaryStatus is what the demo reads of a Canary. It reads the object as users see it, not through Serin's own types: the
// playground is a module of its own and would work for any controller of this API.
type canaryStatus struct {
	phase   string
	weight  int64
	failed  int64
	message string // of the condition Promoted
}

func readStatus(canary *unstructured.Unstructured) canaryStatus {
	var s canaryStatus
	// What has another type than expected reads as absent, and the act will say what it waits for.
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

// releaseProgress follows one release through the statuses that were seen.
type releaseProgress struct {
	isStarted bool
	last      canaryStatus
	// steps is the number of times the weight rose, windows the number of times a weight was judged.
	steps, windows int
}

// observe takes the next status and returns the outcome, or "" while there is none. A status from before the release
// began counts for nothing.
func (p *releaseProgress) observe(s canaryStatus) Outcome {
	switch s.phase {
	case "Progressing", "Waiting", "WaitingPromotion", "Promoting", "Finalising":
		p.isStarted = true
	}
	if !p.isStarted {
		return ""
	}
	// The window that opens with the last failed check is not judged: the release goes back at once.
	judged := s.weight > p.last.weight || s.failed > p.last.failed || s.phase == "WaitingPromotion" || s.phase == "Promoting"
	if judged && p.last.phase == "Progressing" && p.last.weight > 0 {
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
