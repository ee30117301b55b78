package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// The errors of commands that are not sent.
var (
	// ErrNoEffect: the command has no effect in the current state of the release.
	ErrNoEffect = errors.New("nothing to do")
	// ErrRefused: the command would do more than the user may expect, or the API server refuses an object.
	ErrRefused = errors.New("refused")
)

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

// PlannedCommand is a command for one release in its observed state. It applies only to what the user saw: another revision may
// have arrived before the user confirmed it, or the release may have reached another step.
type PlannedCommand struct {
	Command Command
	Key     explain.Key
	// Effect describes the effect on the release, for the output.
	Effect string
	// Skips describes what a promotion in full skips, in a sentence without a full stop; empty for other commands.
	Skips string
	// Warning describes why the user may not want the effect, in a sentence without a full stop; empty: nothing is known.
	Warning string
	// Paused is true if the command is only recorded until the release is resumed.
	Paused bool
	// DryRun is true if the API server only validates the changes, as for kubectl --dry-run=server.
	DryRun bool

	// answer is the command of the user about one gate, such as "approve confirm-rollout/sign-off"; empty: about the release. gate is
	// its gate.
	answer, gate string
	// subject identifies what the command applies to, if Subject cannot derive it from the object.
	subject string
	// object is the observed object, and after a change the changed one.
	object  client.Object
	changes changes
	// workload is the patch of a command for the workload of the release; nil for other commands.
	workload *workloadPatch
	// user and reason are who sends the command and why; empty: not known. See SignCommand.
	user, reason string
}

// changes are the changes that a command makes to an object and to its status, as merge patches.
type changes struct {
	object, status map[string]any
	// dryRun is true if the API server only validates them.
	dryRun bool
}

// options returns the options of the patches.
func (c changes) options() *client.PatchOptions {
	if !c.dryRun {
		return &client.PatchOptions{}
	}
	return &client.PatchOptions{DryRun: []string{metav1.DryRunAll}}
}

// PlanCommand reads a release and returns the changes of a command. It changes nothing. Errors: ErrNoEffect, ErrRefused,
// ErrNotFound, ErrAmbiguous, ErrUnreachable.
func (s *Session) PlanCommand(ctx context.Context, command Command, namespace string, name Name) (*PlannedCommand, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return planFor(command, object)
}

// PlanObserved is PlanCommand for a release that was observed.
func PlanObserved(command Command, observed explain.Observation) (*PlannedCommand, error) {
	return planFor(command, objectOf(observed))
}

// planFor returns the changes of a command for a release.
func planFor(command Command, object client.Object) (p *PlannedCommand, err error) {
	p = &PlannedCommand{Command: command, Key: keyOf(object), object: object}
	switch object := object.(type) {
	case *flaggerv1.Canary:
		err = p.planForCanary(object)
	case *argov1.Rollout:
		err = p.planForRollout(object)
	default:
		err = fmt.Errorf("%w: it is a %T", ErrNoEffect, object)
	}
	return p, err
}

// SendCommand sends a planned command to the controller by changing the object of the release. Errors: those of PlanCommand.
func (s *Session) SendCommand(ctx context.Context, p *PlannedCommand) error {
	if p.workload != nil {
		err := s.Client.Patch(ctx, p.workload.object, p.workload.patch, changes{dryRun: p.DryRun}.options())
		if apierrors.IsConflict(err) || isFailedTest(err) {
			return p.newError(ErrRefused, "has changed meanwhile: look at it, then repeat the command")
		}
		return p.describeWorkloadError(p.workload.object, err)
	}
	subject := p.Subject()
	for range maxAttempts {
		p.changes.dryRun = p.DryRun
		p.sign()
		err := s.applyChanges(ctx, p.object, p.changes)
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return describeError(p.words()+" "+string(p.Key.Kind)+" "+p.Key.Name+inNamespace(p.Key.Namespace), err, p.Key.Kind)
		}
		next, err := s.PlanCommand(ctx, p.Command, p.Key.Namespace, Name{p.Key.Kind, p.Key.Name})
		if err != nil {
			return err
		}
		if next.Subject() != subject {
			return p.newError(ErrRefused, "has reached another step or begun another release meanwhile: look at it, then repeat the command")
		}
		next.DryRun, next.user, next.reason = p.DryRun, p.user, p.reason
		if p.answer != "" {
			next.setAnswer(p.answer, p.gate)
		}
		*p = *next
	}
	return p.newError(ErrUnreachable, "changes too often for a write: repeat the command")
}

// isFailedTest reports whether an object differs from what a JSON patch requires. Unlike the error about an invalid object, this one
// names no kind.
func isFailedTest(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsInvalid(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Kind == "")
}

// Subject identifies what the command applies to: a release or its step; for undo, the revision that is left; for pause, resume and
// other commands for workloads, the object. A plan with another subject is not what the user saw.
func (p *PlannedCommand) Subject() string {
	if p.subject != "" {
		return p.subject
	}
	uid, verb := string(p.object.GetUID()), canaryVerbs[p.Command]
	if verb == "" {
		return uid
	}
	switch object := p.object.(type) {
	case *flaggerv1.Canary:
		return canary.NewCommand(verb, uid, object.Status)
	case *argov1.Rollout:
		if p.Command == Promote {
			return fmt.Sprint(uid, object.Status.CurrentPodHash, stepText(object))
		}
		return uid + object.Status.CurrentPodHash
	default:
		return uid
	}
}

// newError returns the error of a command that is not sent. The text continues a sentence that begins with the release.
func (p *PlannedCommand) newError(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s %s%s %s", kind, p.Key.Kind, p.Key.Name, inNamespace(p.Key.Namespace), fmt.Sprintf(format, args...))
}

// words returns the command as the user entered it.
func (p *PlannedCommand) words() string {
	if p.answer != "" {
		return p.answer + " of"
	}
	return string(p.Command)
}

// ResumeHint returns the command that resumes the release.
func (p *PlannedCommand) ResumeHint() string { return p.hint(Resume) }

func (p *PlannedCommand) hint(command Command) string {
	return fmt.Sprintf("serin %s %s/%s -n %s", command, strings.ToLower(string(p.Key.Kind)), p.Key.Name, p.Key.Namespace)
}

// applyChanges patches an object if it still has the observed version. It patches the status of a Rollout first: if the second
// patch of a promotion fails, spec.paused still shows that the Rollout is paused.
func (s *Session) applyChanges(ctx context.Context, object client.Object, c changes) error {
	if len(c.status) > 0 {
		patch, err := newPatch(object, map[string]any{"status": c.status})
		if err != nil {
			return err
		}
		if err := s.Client.Status().Patch(ctx, object, patch, &client.SubResourcePatchOptions{PatchOptions: *c.options()}); err != nil {
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
	return s.Client.Patch(ctx, object, patch, c.options())
}

// newPatch returns a merge patch that fails if the object no longer has the observed version.
func newPatch(object client.Object, tree map[string]any) (client.Patch, error) {
	body, err := json.Marshal(jsontree.PinResourceVersion(tree, object.GetResourceVersion()))
	if err != nil {
		return nil, fmt.Errorf("write the change of %s: %w", object.GetName(), err)
	}
	return client.RawPatch(types.MergePatchType, body), nil
}

// canaryVerbs are the verbs of the commands that are sent to a Canary in its annotation.
var canaryVerbs = map[Command]string{
	Promote: canary.CommandPromote, PromoteFull: canary.CommandPromoteFull, Abort: canary.CommandAbort, Retry: canary.CommandRetry,
}

// planForCanary plans a command for a Canary. Except for pause and resume, this is the annotation that the controller reads; it
// names the observed run, so that the command has no effect on a later one.
func (p *PlannedCommand) planForCanary(c *flaggerv1.Canary) error {
	if p.Command == Pause || p.Command == Resume {
		suspend := p.Command == Pause
		if c.Spec.Suspend == suspend {
			return p.newError(ErrNoEffect, "already has spec.suspend %v", suspend)
		}
		p.changes = changes{object: map[string]any{"spec": map[string]any{"suspend": suspend}}}
		p.Effect = map[bool]string{true: "is paused", false: "is resumed"}[suspend]
		return nil
	}
	var err error
	switch p.Command {
	case Promote:
		err = p.planApproval(c)
	case PromoteFull:
		err = p.planFullPromotion(c)
	case Abort:
		err, p.Effect = p.checkAbort(c), "will be rolled back"
	default:
		err, p.Effect = p.checkRetry(c), "will be released again"
	}
	if err != nil {
		return err
	}
	annotation := canary.NewCommand(canaryVerbs[p.Command], string(c.UID), c.Status)
	if canary.IsExecuted(annotation, c.Status) {
		return p.newError(ErrNoEffect, "has already carried out %s for this release", p.Command)
	}
	p.Paused = c.Spec.Suspend
	p.annotateCanary(annotation)
	return nil
}

// annotateCanary sends a command to a Canary.
func (p *PlannedCommand) annotateCanary(command string) {
	p.changes = changes{object: map[string]any{"metadata": map[string]any{"annotations": map[string]any{canary.CommandAnnotation: command}}}}
}

// sign adds the user and the reason to a command in an annotation.
func (p *PlannedCommand) sign() {
	metadata, _ := p.changes.object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	command, isCommand := annotations[canary.CommandAnnotation].(string)
	if signature := canary.SignCommand(command, p.user, p.reason); isCommand && signature != "" {
		annotations[canary.CommandByAnnotation] = release.Truncate(signature, maxEventMessage)
	}
}

// planApproval plans the promotion to the next step: it replaces an approval that the release waits for, and never a check.
func (p *PlannedCommand) planApproval(c *flaggerv1.Canary) error {
	switch {
	case c.Status.Phase == flaggerv1.CanaryPhaseWaiting, isQueued(c):
		p.Effect = "will start its release"
		return nil
	case !isAnalyzed(c):
		return p.newError(ErrNoEffect, "is %s: no release is waiting or under analysis", phaseOrNew(string(c.Status.Phase)))
	case canary.IsEndDecided(c.Status):
		return p.newError(ErrNoEffect, "is %s, and the end of its release is already decided: see %s", c.Status.Phase, p.hint("why"))
	case !canary.AwaitsApproval(c.Status):
		return p.newError(ErrRefused, "is under analysis (%s) and waits for no approval: promote --full skips the remaining analysis and routes all traffic to the new revision",
			analysisProgress(c))
	default:
		p.Effect = "will take the next step when its checks pass"
		return nil
	}
}

// planFullPromotion plans the promotion without further analysis. It must not wait for a user who resumes the release, and who
// may not know about it.
func (p *PlannedCommand) planFullPromotion(c *flaggerv1.Canary) error {
	waits := c.Status.Phase == flaggerv1.CanaryPhaseWaiting
	switch {
	case isQueued(c) && !waits:
		return p.newError(ErrRefused, "waits in the queue: start its release with: %s", p.hint(Promote))
	case !waits && !isAnalyzed(c):
		return p.newError(ErrNoEffect, "is %s: no release is waiting or under analysis", phaseOrNew(string(c.Status.Phase)))
	case canary.IsEndDecided(c.Status):
		return p.newError(ErrNoEffect, "is %s, and the end of its release is already decided: see %s", c.Status.Phase, p.hint("why"))
	case c.Spec.Suspend:
		return p.newError(ErrRefused, "is paused, so promote --full would ship the new revision without checks as soon as anyone resumes it: resume it first with: %s", p.ResumeHint())
	case waits:
		p.Skips = fmt.Sprintf("%s has not started its release: promote --full skips its whole analysis and routes all traffic to the new revision", c.Name)
	default:
		p.Skips = fmt.Sprintf("%s is under analysis (%s): promote --full skips the remaining analysis and routes all traffic to the new revision", c.Name, analysisProgress(c))
	}
	p.Effect = "will be promoted without further analysis"
	return nil
}

func (p *PlannedCommand) checkAbort(c *flaggerv1.Canary) error {
	switch phase := c.Status.Phase; {
	case canary.IsFinalising(c.Status):
		return p.newError(ErrNoEffect, "is %s: the new version already serves users: deploy the previous one to return to it", phase)
	case phase != flaggerv1.CanaryPhaseWaiting && phase != flaggerv1.CanaryPhasePromoting && !isAnalyzed(c):
		return p.newError(ErrNoEffect, "is %s: no release is in progress", phaseOrNew(string(phase)))
	default:
		return nil
	}
}

func (p *PlannedCommand) checkRetry(c *flaggerv1.Canary) error {
	switch phase := c.Status.Phase; phase {
	case flaggerv1.CanaryPhaseFailed:
		return nil
	case flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseInitialized:
		return p.newError(ErrNoEffect, "is %s: the last release did not fail: deploy a new version to release it", phase)
	default:
		return p.newError(ErrNoEffect, "is %s: the last release did not fail", phaseOrNew(string(phase)))
	}
}

func isAnalyzed(c *flaggerv1.Canary) bool {
	return c.Status.Phase == flaggerv1.CanaryPhaseProgressing || c.Status.Phase == flaggerv1.CanaryPhaseWaitingPromotion
}

func isQueued(c *flaggerv1.Canary) bool { return c.Status.Serin != nil && c.Status.Serin.Queue != nil }

func phaseOrNew(phase string) string { return cmp.Or(phase, "new") }

// analysisProgress describes how much of an analysis was observed.
func analysisProgress(c *flaggerv1.Canary) string {
	step, threshold := fmt.Sprintf("weight %d%%", c.Status.CanaryWeight), 1
	if analysis := c.Spec.EffectiveAnalysis(); analysis != nil {
		threshold = max(analysis.Threshold, 1)
		if analysis.Iterations > 0 {
			step = fmt.Sprintf("iteration %d of %d", min(c.Status.Iterations, analysis.Iterations), analysis.Iterations)
		}
	}
	return fmt.Sprintf("%s, %d of %d failed checks", step, c.Status.FailedChecks, threshold)
}

// planForRollout plans a command for a Rollout: the fields with which users control a Rollout according to its API.
func (p *PlannedCommand) planForRollout(r *argov1.Rollout) error {
	s, command := r.Status, p.Command
	inProgress := s.StableRS != "" && s.CurrentPodHash != s.StableRS
	specChange := func(paused bool) map[string]any { return map[string]any{"spec": map[string]any{"paused": paused}} }
	switch {
	case command == Resume && !r.Spec.Paused && len(s.PauseConditions) > 0:
		return p.newError(ErrNoEffect, "already has spec.paused false, and is paused by its strategy%s: continue it with: %s", stepText(r), p.hint(Promote))
	case (command == Pause || command == Resume) && r.Spec.Paused == (command == Pause):
		return p.newError(ErrNoEffect, "already has spec.paused %v", r.Spec.Paused)
	case command == Pause, command == Resume:
		p.changes = changes{object: specChange(command == Pause)}
		p.Effect = map[bool]string{true: "is paused", false: "is resumed"}[command == Pause]
		return nil
	case !inProgress && command == Retry && s.StableRS != "":
		return p.newError(ErrNoEffect, "is %s: the last release succeeded: deploy a new version, or return to the previous one with: %s", s.Phase, p.hint(Undo))
	case !inProgress && rollout.IsTimedOut(s) && !rollout.WasHealthy(s):
		return p.newError(ErrNoEffect, "is %s: its first revision exceeded its progress deadline, and there is no earlier one to return to: correct the template: see %s", s.Phase, p.hint("why"))
	case !inProgress:
		return p.newError(ErrNoEffect, "is %s: no release is in progress", phaseOrNew(string(s.Phase)))
	case command == Retry && !s.Abort:
		return p.newError(ErrNoEffect, "is %s: the release was not aborted", s.Phase)
	case command == Retry:
		p.changes, p.Effect, p.Paused = changes{status: map[string]any{"abort": false}}, "will be released again", r.Spec.Paused
		return nil
	case command == Abort && s.Abort:
		return p.newError(ErrNoEffect, "is %s: the release was already aborted", s.Phase)
	case command == Abort:
		p.changes, p.Effect, p.Paused = changes{status: map[string]any{"abort": true}}, "will be rolled back", r.Spec.Paused
		return nil
	case s.Abort:
		return p.newError(ErrNoEffect, "is %s: the release was aborted: retry it first", s.Phase)
	}
	if r.Spec.Paused {
		p.changes.object = specChange(false)
	}
	if command == PromoteFull {
		p.changes.status, p.Effect = map[string]any{"promoteFull": true}, "will be promoted without further steps"
		p.Skips = fmt.Sprintf("%s is %s%s: promote --full skips all remaining steps, pauses and analyses, and routes all traffic to the new revision", r.Name, s.Phase, stepText(r))
		return nil
	}
	p.Effect = "is continued"
	var err error
	p.changes.status, err = p.promotionStatusChange(r)
	return err
}

// stepText describes the current step of a Rollout; empty if it has none.
func stepText(r *argov1.Rollout) string {
	index, total := rollout.StepPosition(r.Spec, r.Status)
	if index == nil || int(*index) >= total {
		return ""
	}
	return fmt.Sprintf(", step %d of %d", *index+1, total)
}

// promotionStatusChange returns the change of the status that ends the pause of a Rollout, or accepts its inconclusive analysis. Any
// other step ends by a check: of an analysis, of pods or of the route.
func (p *PlannedCommand) promotionStatusChange(r *argov1.Rollout) (map[string]any, error) {
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
	case next["currentStepIndex"] != nil && r.Spec.Strategy.Canary.Steps[*index].Pause == nil:
		return nil, p.newError(ErrRefused, "is %s%s, and waits for no approval: promote --full skips all remaining steps and analyses", s.Phase, stepText(r))
	case next["currentStepIndex"] != nil: // a pause that the controller has not recorded yet
		return next, nil
	default:
		return nil, p.newError(ErrNoEffect, "is %s: it is not paused and has no remaining step: promote --full skips everything else", s.Phase)
	}
}
