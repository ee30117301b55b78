package cluster

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// AwaitTermination waits until the AnalysisRun or Experiment of a sent command has ended, or the context is done. It returns the last
// observed phase. Streams that are interrupted reconnect. Errors: ErrNotFound if the object is deleted before it has ended,
// ErrUnreachable without permission to watch it.
func (s *Session) AwaitTermination(ctx context.Context, p *PlannedCommand) (phase argov1.AnalysisPhase, err error) {
	phase, _ = analysisState(p.object)
	if phase.Completed() {
		return phase, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{Session: s, changes: make(chan streamChange, 1), streams: map[string]context.CancelFunc{}}
	defer f.group.Wait() //nolint:errcheck // streams return no error
	defer cancel()
	// A permission for the object alone permits this selection, but not the watch of all objects.
	f.stream(ctx, string(p.Key.Kind)+" "+p.Key.Name, newAnalysisList(p.Key.Kind), client.InNamespace(p.Key.Namespace), client.MatchingFields{"metadata.name": p.Key.Name})
	for {
		select {
		case <-ctx.Done():
			return phase, nil
		case c := <-f.changes:
			object, gone := p.observedIn(c)
			switch {
			case c.denied:
				return phase, describeError("watch "+c.stream+inNamespace(p.Key.Namespace), c.err, p.Key.Kind)
			case c.err != nil: // it reconnects
				continue
			case gone:
				return phase, p.newError(ErrNotFound, "was deleted before it ended")
			case object == nil:
				continue
			}
			if phase, _ = analysisState(object); phase.Completed() {
				return phase, nil
			}
		}
	}
}

// observedIn returns the object of the command in a change; gone is true if it no longer exists. An object with its name and another
// UID is not the one that the user saw.
func (p *PlannedCommand) observedIn(c streamChange) (object client.Object, gone bool) {
	isSame := func(o client.Object) bool { return o.GetName() == p.Key.Name && o.GetUID() == p.object.GetUID() }
	switch {
	case c.all != nil:
		i := slices.IndexFunc(c.all, isSame)
		if i < 0 {
			return nil, true
		}
		return c.all[i], false
	case c.object == nil || !isSame(c.object):
		return nil, false
	default:
		return c.object, c.deleted
	}
}

// newAnalysisList returns an empty list of a kind that measures a release.
func newAnalysisList(kind explain.Kind) client.ObjectList {
	if kind == explain.KindExperiment {
		return &argov1.ExperimentList{}
	}
	return &argov1.AnalysisRunList{}
}
