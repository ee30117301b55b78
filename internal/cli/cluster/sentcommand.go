package cluster

import (
	"cmp"
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// This file contains what happens after a command was sent: it is recorded with the name of the user, and carried out.

// userActionReason is the reason of the events that record commands of users.
const userActionReason = "UserAction"

// maxEventMessage is the maximum length of the message of an event, in bytes.
const maxEventMessage = 1024

// SignCommand adds the name of the user and the reason that the user gave to a command, before it is sent. The name is missing if
// the API server does not return it.
func (s *Session) SignCommand(ctx context.Context, p *PlannedCommand, reason string) {
	p.reason = reason
	if user, err := s.UserName(ctx); err == nil {
		p.user = user
	}
}

// RecordCommand creates a Kubernetes event about a sent command, with the user and the reason.
func (s *Session) RecordCommand(ctx context.Context, p *PlannedCommand) error {
	message := cmp.Or(p.answer, string(p.Command)) + " requested"
	if p.user != "" {
		message += " by " + p.user
	}
	if p.reason != "" {
		message += ": " + p.reason
	}
	now := metav1.NewTime(s.Clock.Now())
	apiVersion, kind := argov1.SchemeGroupVersion.String(), string(p.Key.Kind)
	if p.Key.Kind == explain.KindCanary {
		apiVersion = flaggerv1.SchemeGroupVersion.String()
	}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Key.Namespace, GenerateName: fmt.Sprintf("%s.%x.", p.Key.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: p.Key.Namespace, Name: p.Key.Name, UID: p.object.GetUID(), ResourceVersion: p.object.GetResourceVersion(),
		},
		Type: corev1.EventTypeNormal, Reason: userActionReason, Message: release.Truncate(message, maxEventMessage),
		Source: corev1.EventSource{Component: "serin-cli"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if err := s.Client.Create(ctx, event); err != nil {
		return describeError("record the command in an Event"+inNamespace(p.Key.Namespace), err, p.Key.Kind)
	}
	return nil
}

// UserName returns the name by which the API server knows the user. Errors: ErrUnreachable.
func (s *Session) UserName(ctx context.Context) (string, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := s.Client.Create(ctx, review); err != nil {
		return "", describeError("review the own user", err, explain.KindCanary)
	}
	return review.Status.UserInfo.Username, nil
}

// ControllerWarning returns a sentence if no controller is known that carries out a sent command; empty: one was found, or the
// user has no permission to look for it.
func (s *Session) ControllerWarning(ctx context.Context, p *PlannedCommand) string {
	objects := []client.Object{p.object}
	found, now := s.findControllers(ctx, objects), s.Clock.Now()
	if summary := found.summary(objects, now); summary.State == explain.NotFound {
		return "no running controller was found (" + summary.Message + "): the command has no effect until one runs"
	}
	_, byAnnotation := canaryVerbs[p.Command]
	if other := found.otherControllerFor(ctx, p.object, nil, now); other.Sign != "" && p.Key.Kind == explain.KindCanary && byAnnotation {
		return "Flagger acts on this Canary and ignores the command (" + other.Sign + "): it has no effect until Serin takes over"
	}
	return ""
}

// AwaitCommand waits until a controller has carried out a sent command, or the context is done. It returns the last description
// of the release. It is an error if the release is deleted.
func (s *Session) AwaitCommand(ctx context.Context, p *PlannedCommand) (last explain.Release, isCarriedOut bool, err error) {
	deleted := false
	sel := Selection{Namespace: p.Key.Namespace, Names: []Name{{p.Key.Kind, p.Key.Name}}}
	err = s.Follow(ctx, sel, func(state State) bool {
		if len(state.Releases) == 0 {
			deleted = true
			return false
		}
		last = state.Releases[0].Describe(s.Clock.Now())
		isCarriedOut = p.isCarriedOut(objectOf(state.Releases[0]))
		return !isCarriedOut && !p.isMissed(last)
	})
	if err == nil && deleted {
		err = p.newError(ErrNotFound, "was deleted before %s was carried out", p.Command)
	}
	return last, isCarriedOut, err
}

// isCarriedOut reports whether a controller has acted on the command, according to a later version of the object. The controller
// writes the status of a Rollout only if it knows the version with the command.
func (p *PlannedCommand) isCarriedOut(object client.Object) bool {
	switch sent := p.object.(type) {
	case *flaggerv1.Canary:
		now, ok := object.(*flaggerv1.Canary)
		return ok && now.Status.Serin != nil && now.Status.Serin.Command == sent.Annotations[canary.CommandAnnotation]
	case *argov1.Rollout:
		now, ok := object.(*argov1.Rollout)
		return ok && !equality.Semantic.DeepEqual(now.Status, sent.Status)
	default:
		return false
	}
}

// isMissed reports whether the release ended without the command: its checks failed before the approved step.
func (p *PlannedCommand) isMissed(r explain.Release) bool {
	return p.Key.Kind == explain.KindCanary && (p.Command == Promote || p.Command == PromoteFull) && r.State == release.Idle && r.Result == release.RolledBack
}
