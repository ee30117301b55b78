package canary

import (
	"slices"
	"strings"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// This file contains the facts about a target that spec.targetRef no longer names.

// WithFormerTarget returns the Canary with the target that the observation and the decision are about. A release whose
// spec.targetRef was changed ends with the target with which it started: only the pods of that target have its traffic, and only
// its primary can receive it again. A deletion restores the target that was initialised last. next is then the target that the spec
// names, as kind/name; the autoscaler remains that of the spec, which may scale either of the two. Otherwise, the Canary is unchanged
// and next is empty, also if the kind is not supported: that is a mistake in the spec, which blocks the release.
func WithFormerTarget(c *flaggerv1.Canary) (used *flaggerv1.Canary, next string) {
	ref := c.Spec.TargetRef
	if c.DeletionTimestamp == nil && !usesRecordedTarget(c.Status) {
		return c, ""
	}
	former := recordedTarget(c.Status)
	kind, name, _ := strings.Cut(former, "/")
	if former == "" || kind == ref.Kind && name == ref.Name || !slices.Contains(targetKinds, ref.Kind) {
		return c, ""
	}
	used = c.DeepCopy()
	used.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: kind, Name: name}
	return used, ref.Kind + "/" + ref.Name
}

// usesRecordedTarget reports whether a release is in progress, its webhooks are pending, or its target serves because its promotion
// failed.
func usesRecordedTarget(status flaggerv1.CanaryStatus) bool {
	switch {
	case status.Serin == nil:
		return false
	case hasDeadline(status.Phase):
		return true
	case isIdle(status.Phase), status.Phase == flaggerv1.CanaryPhaseWaiting:
		return status.Serin.Intent != "" || status.Serin.Promoted == noRevision
	default: // the target is initialised, or the Canary is deleted
		return false
	}
}

// recordedTarget returns the target of the last release or initialisation, as kind/name; empty: the status does not contain it, or it
// has no pods.
func recordedTarget(status flaggerv1.CanaryStatus) string {
	if status.Serin == nil {
		return ""
	}
	shape, ok := ParseRunShape(status.Serin.Shape)
	if !ok || !hasPrimaryPods(shape.Kind) {
		return ""
	}
	return shape.target()
}

// hasPrimaryPods reports whether Serin creates pods of the primary for a kind of target.
func hasPrimaryPods(kind string) bool {
	return slices.Contains([]string{"Deployment", "DaemonSet"}, kind)
}

// recordedTarget is the target of the last release or initialisation.
func (s *Snapshot) recordedTarget() string { return recordedTarget(s.Status) }

// targetReplaced reports whether the target of the plan is another one than that of the last release or initialisation.
func (s *Snapshot) targetReplaced() bool {
	recorded := s.recordedTarget()
	return recorded != "" && recorded != s.Plan.target() && hasPrimaryPods(s.Plan.Kind)
}

// primaryInService reports whether the primary receives the requests to its Service.
func (s *Snapshot) primaryInService() bool {
	return s.primaryReachable() && !s.Workload.ServicesSelectOther
}
