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

// ErrPointless is the error of an order that has no effect in the state of the release.
var ErrPointless = errors.New("nothing to do")

// Order is a command of the user for a release.
type Order string

// The orders.
const (
	Promote     Order = "promote"
	PromoteFull Order = "promote --full"
	Abort       Order = "abort"
	Retry       Order = "retry"
	Pause       Order = "pause"
	Resume      Order = "resume"
)

// maxAttempts bounds the attempts to write a change while the release changes concurrently.
const maxAttempts = 10

// Give passes an order to the controller, by a change of the current object, and returns the release. Errors:
// ErrPointless, ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) Give(ctx context.Context, order Order, namespace string, name Name) (explain.Key, error) {
	var err error
	var key explain.Key
	for range maxAttempts {
		object, getErr := s.named(ctx, namespace, name)
		if getErr != nil {
			return explain.Key{}, getErr
		}
		key = keyOf(object)
		changes, refused := changesOf(order, object)
		if refused != nil {
			return key, fmt.Errorf("%w: %s %s%s %w", ErrPointless, key.Kind, key.Name, inNamespace(namespace), refused)
		}
		if err = s.change(ctx, object, changes); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return key, explained(string(order)+" "+string(key.Kind)+" "+key.Name+inNamespace(namespace), err, key.Kind)
	}
	return key, nil
}

// changes are those of an order: to the object, and to its status.
type changes struct {
	object, status map[string]any
}

func changesOf(order Order, object client.Object) (changes, error) {
	switch object := object.(type) {
	case *flaggerv1.Canary:
		return canaryChanges(order, object)
	case *argov1.Rollout:
		return rolloutChanges(order, object)
	default:
		return changes{}, fmt.Errorf("is a %T, which has no such command", object)
	}
}

// change patches an object in the observed version. The status of a Rollout comes first: if the second patch of a promotion fails,
// spec.paused still shows the pause.
func (s *Session) change(ctx context.Context, object client.Object, c changes) error {
	if len(c.status) > 0 {
		patch, err := patchOf(object, map[string]any{"status": c.status})
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
	patch, err := patchOf(object, c.object)
	if err != nil {
		return err
	}
	return s.Client.Patch(ctx, object, patch)
}

// patchOf is a patch of an object in the observed version.
func patchOf(object client.Object, tree map[string]any) (client.Patch, error) {
	body, err := json.Marshal(jsontree.PinResourceVersion(tree, object.GetResourceVersion()))
	if err != nil {
		return nil, fmt.Errorf("write the change of %s: %w", object.GetName(), err)
	}
	return client.RawPatch(types.MergePatchType, body), nil
}

// canaryChanges writes most orders to the annotation that the controller reads, for the observed run.
func canaryChanges(order Order, c *flaggerv1.Canary) (changes, error) {
	switch order {
	case Pause, Resume:
		to := order == Pause
		if c.Spec.Suspend == to {
			return changes{}, fmt.Errorf("already has spec.suspend %v", to)
		}
		return changes{object: map[string]any{"spec": map[string]any{"suspend": to}}}, nil
	case PromoteFull:
		return changes{}, errors.New("does not support --full: promote runs no further checks")
	case Promote, Abort, Retry: // a command for this run
	}
	if why := pointlessCanary(order, c); why != "" {
		return changes{}, fmt.Errorf("is %s: %s", cmp.Or(string(c.Status.Phase), "new"), why)
	}
	command := string(order) + "@" + canary.RunOf(string(c.UID), c.Status)
	if c.Status.Serin != nil && c.Status.Serin.Command == command {
		return changes{}, fmt.Errorf("has already carried out %s for this release", order)
	}
	return changes{object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{canary.CommandAnnotation: command}}}}, nil
}

// pointlessCanary is why an order would have no effect; empty: it would.
func pointlessCanary(order Order, c *flaggerv1.Canary) string {
	phase := c.Status.Phase
	observed := slices.Contains([]flaggerv1.CanaryPhase{flaggerv1.CanaryPhaseWaiting, flaggerv1.CanaryPhaseProgressing, flaggerv1.CanaryPhaseWaitingPromotion}, phase)
	queued := c.Status.Serin != nil && c.Status.Serin.Queue != nil
	switch {
	case order == Promote && !observed && !queued:
		return "no release is waiting or under analysis"
	case order == Abort && phase == flaggerv1.CanaryPhaseFinalising:
		return "the new version already serves users: deploy the previous one to return to it"
	case order == Abort && !observed && phase != flaggerv1.CanaryPhasePromoting:
		return "no release is in progress"
	case order == Retry && phase != flaggerv1.CanaryPhaseFailed:
		return "the last release did not fail"
	default:
		return ""
	}
}

// rolloutChanges writes the fields by which users control a Rollout, as the API documents.
func rolloutChanges(order Order, r *argov1.Rollout) (changes, error) {
	s := r.Status
	inProgress := s.StableRS != "" && s.CurrentPodHash != s.StableRS
	spec := func(paused bool) map[string]any { return map[string]any{"spec": map[string]any{"paused": paused}} }
	switch {
	case (order == Pause || order == Resume) && r.Spec.Paused == (order == Pause):
		return changes{}, fmt.Errorf("already has spec.paused %v", r.Spec.Paused)
	case order == Pause, order == Resume:
		return changes{object: spec(order == Pause)}, nil
	case !inProgress:
		return changes{}, fmt.Errorf("is %s: no release is in progress", cmp.Or(string(s.Phase), "new"))
	case order == Retry && !s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was not aborted", s.Phase)
	case order == Retry:
		return changes{status: map[string]any{"abort": false}}, nil
	case order == Abort && s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was already aborted", s.Phase)
	case order == Abort:
		return changes{status: map[string]any{"abort": true}}, nil
	case s.Abort:
		return changes{}, fmt.Errorf("is %s: the release was aborted: retry it first", s.Phase)
	}
	out := changes{}
	if r.Spec.Paused {
		out.object = spec(false)
	}
	if order == PromoteFull {
		out.status = map[string]any{"promoteFull": true}
		return out, nil
	}
	status, err := promotion(r)
	out.status = status
	return out, err
}

// promotion ends what a release waits for: its pause, an inconclusive analysis, or else the current step.
func promotion(r *argov1.Rollout) (map[string]any, error) {
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
