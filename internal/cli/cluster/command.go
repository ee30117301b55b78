package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/rollout"
)

// ErrNoEffect is the error of a command that has no effect in the current state of the release.
var ErrNoEffect = errors.New("nothing to do")

// Command is a command with which the user controls a release.
type Command string

// The commands.
const (
	Promote     Command = "promote"
	PromoteFull Command = "promote --full"
	Abort       Command = "abort"
	Retry       Command = "retry"
	Pause       Command = "pause"
	Resume      Command = "resume"
)

// maxAttempts bounds the attempts to write a change while the release changes concurrently.
const maxAttempts = 10

// SendCommand sends a command to the controller by changing the object of the release, and returns the key of the release. Errors:
// ErrNoEffect, ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) SendCommand(ctx context.Context, command Command, namespace string, name Name) (explain.Key, error) {
	var err error
	var key explain.Key
	for range maxAttempts {
		object, getErr := s.getObject(ctx, namespace, name)
		if getErr != nil {
			return explain.Key{}, getErr
		}
		key = keyOf(object)
		changes, refused := changesFor(command, object)
		if refused != nil {
			return key, fmt.Errorf("%w: %s %s%s %w", ErrNoEffect, key.Kind, key.Name, inNamespace(namespace), refused)
		}
		if err = s.applyChanges(ctx, object, changes); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return key, describeError(string(command)+" "+string(key.Kind)+" "+key.Name+inNamespace(namespace), err, key.Kind)
	}
	return key, nil
}

// changes are the changes that a command makes to an object and to its status, as merge patches.
type changes struct {
	object, status map[string]any
}

func changesFor(command Command, object client.Object) (changes, error) {
	switch object := object.(type) {
	case *flaggerv1.Canary:
		return canaryChanges(command, object)
	case *argov1.Rollout:
		return rolloutChanges(command, object)
	default:
		return changes{}, fmt.Errorf("is a %T, which has no such command", object)
	}
}

// applyChanges patches an object if it still has the observed version. It patches the status of a Rollout first: if the second
// patch of a promotion fails, spec.paused still shows that the Rollout is paused.
func (s *Session) applyChanges(ctx context.Context, object client.Object, c changes) error {
	if len(c.status) > 0 {
		patch, err := newPatch(object, map[string]any{"status": c.status})
		if err != nil {
			return err
		}
		if err := s.Client.Status().Patch(ctx, object, patch); err != nil {
			return err
		}
	}
	if len(c.object) == 0 {
		return nil
	}
	patch, err := newPatch(object, c.object)
	if err != nil {
		return err
	}
	return s.Client.Patch(ctx, object, patch)
}

// newPatch returns a merge patch that fails if the object no longer has the observed version.
func newPatch(object client.Object, tree map[string]any) (client.Patch, error) {
	body, err := json.Marshal(jsontree.PinResourceVersion(tree, object.GetResourceVersion()))
	if err != nil {
		return nil, fmt.Errorf("write the change of %s: %w", object.GetName(), err)
	}
	return client.RawPatch(types.MergePatchType, body), nil
}

// canaryChanges returns the changes for a Canary. Except for pause and resume, this is the annotation that the controller reads;
// it names the observed run, so that the command has no effect on a later one.
func canaryChanges(command Command, c *flaggerv1.Canary) (changes, error) {
	switch command {
	case Pause, Resume:
		suspend := command == Pause
		if c.Spec.Suspend == suspend {
			return changes{}, fmt.Errorf("already has spec.suspend %v", suspend)
		}
		return changes{object: map[string]any{"spec": map[string]any{"suspend": suspend}}}, nil
	case PromoteFull:
		return changes{}, errors.New("does not support --full: promote runs no further checks")
	case Promote, Abort, Retry: // sent as an annotation
	}
	if reason := noEffectReason(command, c); reason != "" {
		return changes{}, fmt.Errorf("is %s: %s", cmp.Or(string(c.Status.Phase), "new"), reason)
	}
	annotation := string(command) + "@" + canary.RunOf(string(c.UID), c.Status)
	if c.Status.Serin != nil && c.Status.Serin.Command == annotation {
		return changes{}, fmt.Errorf("has already carried out %s for this release", command)
	}
	return changes{object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{canary.CommandAnnotation: annotation}}}}, nil
}

// noEffectReason returns the reason why a command would have no effect; empty: it would have an effect.
func noEffectReason(command Command, c *flaggerv1.Canary) string {
	phase := c.Status.Phase
	isAnalysed := slices.Contains([]flaggerv1.CanaryPhase{flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion}, phase)
	isQueued := c.Status.Serin != nil && c.Status.Serin.Queue != nil
	switch {
	case command == Promote && !isAnalysed && !isQueued:
		return "no release is waiting or under analysis"
	case command == Abort && phase == flaggerv1.CanaryPhaseFinalising:
		return "the new version already serves users: deploy the previous one to return to it"
	case command == Abort && !isAnalysed && phase != flaggerv1.CanaryPhasePromoting:
		return "no release is in progress"
	case command == Retry && phase != flaggerv1.CanaryPhaseFailed:
		return "the last release did not fail"
	default:
		return ""
	}
}

// rolloutChanges returns the changes for a Rollout: the fields with which users control a Rollout according to its API.
func rolloutChanges(command Command, r *argov1.Rollout) (changes, error) {
	s := r.Status
	inProgress := s.StableRS != "" && s.CurrentPodHash != s.StableRS
	specChange := func(paused bool) map[string]any { return map[string]any{"spec": map[string]any{"paused": paused}} }
	switch {
	case (command == Pause || command == Resume) && r.Spec.Paused == (command == Pause):
		return changes{}, fmt.Errorf("already has spec.paused %v", r.Spec.Paused)
	case command == Pause, command == Resume:
		return changes{object: specChange(command == Pause)}, nil
	case !inProgress:
		return changes{}, fmt.Errorf("is %s: no release is in progress", cmp.Or(string(s.Phase), "new"))
	case command == Retry && !s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was not aborted", s.Phase)
	case command == Retry:
		return changes{status: map[string]any{"abort": false}}, nil
	case command == Abort && s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was already aborted", s.Phase)
	case command == Abort:
		return changes{status: map[string]any{"abort": true}}, nil
	case s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was aborted: retry it first", s.Phase)
	}
	out := changes{}
	if r.Spec.Paused {
		out.object = specChange(false)
	}
	if command == PromoteFull {
		out.status = map[string]any{"promoteFull": true}
		return out, nil
	}
	status, err := promotionStatusChange(r)
	out.status = status
	return out, err
}

// promotionStatusChange returns the change of the status that ends the pause, the inconclusive analysis or else the current step
// of a Rollout.
func promotionStatusChange(r *argov1.Rollout) (map[string]any, error) {
	s := r.Status
	index, total := rollout.StepPosition(r.Spec, s)
	next := map[string]any{"pauseConditions": nil}
	if index != nil && int(*index) < total {
		next["currentStepIndex"] = *index + 1
	}
	run := s.Canary.CurrentStepAnalysisRunStatus
	switch {
	case len(s.PauseConditions) > 0 && s.ControllerPause && run != nil && run.Status == argov1.AnalysisPhaseInconclusive:
		next["controllerPause"] = false // the step is completed, and not evaluated again
		return next, nil
	case len(s.PauseConditions) > 0:
		return map[string]any{"pauseConditions": nil}, nil
	case r.Spec.Paused:
		return nil, nil // spec.paused is cleared
	case next["currentStepIndex"] != nil:
		return next, nil
	default:
		return nil, fmt.Errorf("is %s: it is not paused and has no remaining step: promote --full skips everything else", s.Phase)
	}
}
