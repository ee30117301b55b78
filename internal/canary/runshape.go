package canary

import "strings"

// RunShape is what must not change during a run: the strategy, the provider, and the kind and the name of the target. The status
// records its text.
type RunShape struct {
	Strategy     Strategy
	Provider     string
	Kind, Target string
}

// ParseRunShape parses the text of a RunShape; false: the status does not record one.
func ParseRunShape(text string) (RunShape, bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return RunShape{}, false
	}
	return RunShape{Strategy: Strategy(parts[0]), Provider: parts[1], Kind: parts[2], Target: parts[3]}, true
}

func (r RunShape) String() string {
	return string(r.Strategy) + "/" + r.Provider + "/" + r.target()
}

// target is the target as kind/name.
func (r RunShape) target() string { return r.Kind + "/" + r.Target }

// runShape is the shape of a run of this plan.
func (p *Plan) runShape() RunShape {
	return RunShape{Strategy: p.Strategy, Provider: p.Provider, Kind: p.Kind, Target: p.Target}
}

// recordedShape is the shape of the last run, or of the initialization; false: the status does not record one.
func (s *Snapshot) recordedShape() (RunShape, bool) { return ParseRunShape(s.serin().Shape) }
