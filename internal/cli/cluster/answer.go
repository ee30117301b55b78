package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// Answer is the answer of a user to a gate that waits for an approval.
type Answer string

// The answers.
const (
	Approve Answer = "approve"
	Deny    Answer = "deny"
)

// answerCommands are the commands for the release that have the effect of an answer: an approval takes the next step, and a denial
// ends the release.
var answerCommands = map[Answer]Command{Approve: Promote, Deny: Abort}

// PlanAnswer reads a release and returns the command for an answer to one of its gates. It is for the observed step: if the release
// reaches another one before the command is sent, it is not sent. It changes nothing. Errors: ErrNoEffect if the release does not
// wait for that approval, and those of PlanCommand.
func (s *Session) PlanAnswer(ctx context.Context, answer Answer, namespace string, name Name, gate string) (*PlannedCommand, error) {
	p, err := s.PlanCommand(ctx, answerCommands[answer], namespace, name)
	if err != nil && !errors.Is(err, ErrNoEffect) && !errors.Is(err, ErrRefused) {
		return nil, err
	}
	waiting, later, observeErr := s.approvalGates(ctx, p.object)
	if observeErr != nil {
		return nil, observeErr
	}
	others := slices.DeleteFunc(slices.Concat(waiting, later), func(other string) bool { return other == gate })
	switch {
	case len(waiting) == 0:
		return nil, p.newError(ErrNoEffect, "waits for no approval: see %s", p.hint("why"))
	case !slices.Contains(waiting, gate):
		return nil, p.newError(ErrNoEffect, "does not wait for %s: it waits for %s", gate, strings.Join(waiting, ", "))
	case answer == Approve && len(others) > 0 && p.Key.Kind == explain.KindCanary:
		return nil, p.newError(ErrRefused, "also needs the approval of %s for this step, which the command would skip: %s approves all of them", strings.Join(others, ", "), p.hint(Promote))
	case err != nil:
		return nil, err
	}
	p.setAnswer(string(answer)+" "+gate, gate)
	return p, nil
}

// setAnswer makes a planned command the answer to one gate. The history of a Canary names the gate.
func (p *PlannedCommand) setAnswer(answer, gate string) {
	p.answer, p.gate = answer, gate
	if c, ok := p.object.(*flaggerv1.Canary); ok {
		p.annotateCanary(canary.NewAnswer(canary.NewCommand(canaryVerbs[p.Command], string(c.UID), c.Status), gate))
	}
}

// approvalGates returns the names of the gates that wait for an approval, and of those that will need one for the same step.
func (s *Session) approvalGates(ctx context.Context, object client.Object) (waiting, later []string, err error) {
	described, err := s.describe(ctx, object)
	if err != nil {
		return nil, nil, err
	}
	for _, gate := range described.Gates {
		switch {
		case gate.AwaitsApproval():
			waiting = append(waiting, gate.Name)
		case gate.NeedsApproval():
			later = append(later, gate.Name)
		}
	}
	return waiting, later, nil
}

// ApprovalGates returns the names of the gates of a release that wait for an approval. Errors: those of PlanCommand.
func (s *Session) ApprovalGates(ctx context.Context, namespace string, name Name) ([]string, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	waiting, _, err := s.approvalGates(ctx, object)
	return waiting, err
}

// PlannedGates returns the names of the gates of a release that may wait for an approval at any step. Errors: those of PlanCommand.
func (s *Session) PlannedGates(ctx context.Context, namespace string, name Name) ([]string, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	described, err := s.describe(ctx, object)
	return described.ApprovalGates(), err
}

// describe observes a release once.
func (s *Session) describe(ctx context.Context, object client.Object) (explain.Release, error) {
	objects := []client.Object{object}
	observed, err := s.observeAll(ctx, objects, s.findControllers(ctx, objects).flags)
	if err != nil {
		return explain.Release{}, err
	}
	return observed[0].Describe(s.Clock.Now()), nil
}
