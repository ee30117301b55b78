//go:build linux

package demo

// releaseProgress accumulates the observed statuses of one release.
type releaseProgress struct {
	isStarted bool
	last      releaseStatus
	// steps is the number of weight increases, windows the number of observation windows that were evaluated.
	steps, windows int
}

// observe processes the next status and returns the outcome, or "" while the release is in progress. Statuses from before the
// release started are ignored.
func (p *releaseProgress) observe(s releaseStatus) Outcome {
	switch s.phase {
	case "Progressing", "Paused", "Waiting", "WaitingPromotion", "Promoting", "Finalising":
		p.isStarted = p.isStarted || !s.isPromoted
	}
	if !p.isStarted {
		return ""
	}
	// The window that opens with the last failed check is not evaluated: the release is rolled back at once.
	evaluated := s.weight > p.last.weight || s.failed > p.last.failed || s.phase == "WaitingPromotion" || s.phase == "Promoting" || s.phase == "Healthy"
	if evaluated && (p.last.phase == "Progressing" || p.last.phase == "Paused") && p.last.weight > 0 {
		p.windows++
	}
	if s.weight > p.last.weight {
		p.steps++
	}
	p.last = s
	switch s.phase {
	case "Succeeded", "Healthy":
		return Promoted
	case "Failed", "Degraded":
		return RolledBack
	default:
		return ""
	}
}
