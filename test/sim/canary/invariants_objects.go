package canary

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

func namespacedName(r *record, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Key.Namespace, Name: name}
}

// analysedTemplate is I6.
type analysedTemplate struct {
	*ledger
	oracle.EventsOnly
}

func (c *analysedTemplate) Observe(event any) {
	if w, ok := event.(canaryWritten); ok {
		c.checkPromotedContent(w)
	}
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || !h.primary || h.content == "" || !h.record.statusBySerin() {
		return
	}
	r := h.record
	var allowed []string
	switch {
	case r.phase() == flaggerv1.CanaryPhaseInitializing && r.target.version == nil && r.created.After(c.OldestView()):
		return // the process may have observed a target from before the Canary was created, which is not recorded
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && c.JustStarted(h.Actor):
		return // an old list may have a target from before the Canary; the primary follows it, and serves no users until both are equal
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && r.configChanged.After(c.OldestView()):
		return // the process may have observed a template and a configuration of different times; a later reconciliation repairs this
	case r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing:
		allowed = r.target.contentHistory.Since(c.OldestView())
	case h.Type == store.Added:
		allowed = c.allowedAtRecreation(r)
	default:
		allowed = c.allowedAtUpdate(r)
	}
	if allowed != nil && !slices.Contains(allowed, h.content) {
		c.Violate("I6", r.Name(), "in phase %s the primary received %s, which is none of %v (it ran %s, the target runs %s)",
			r.phase(), h.content, allowed, r.primary.content, r.target.content)
	}
}

// checkPromotedContent checks that the primary runs the revision that the status reports as promoted.
func (c *analysedTemplate) checkPromotedContent(m canaryWritten) {
	r := m.Record
	if r == nil || !m.BySerin || !m.StatusChanged() || r.run == nil || !r.statusBySerin() || m.After.Status.Phase != flaggerv1.CanaryPhaseSucceeded || !isActive(m.Before.Status.Phase) {
		return
	}
	if r.statusUnreliable {
		return
	}
	since := r.run.began // a cancellation may end after further changes of the target, which are released next
	if c.OldestView().Before(since) {
		since = c.OldestView()
	}
	cancelled := r.run.cancelledEarly || slices.Contains(r.target.contentHistory.Since(since), r.primary.content) || m.Before.Status.Phase == flaggerv1.CanaryPhaseWaiting
	changed := r.primary.writtenByOthers.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.version == nil
	if !changed && !cancelled && !slices.Contains(r.run.targetContents, r.primary.content) {
		c.Violate("I6", r.Name(), "it succeeded, but the primary runs %s, and the run was about %v", r.primary.content, r.run.targetContents)
	}
}

// allowedAtRecreation returns the contents that a recreated primary may run; nil: unknown.
func (c *analysedTemplate) allowedAtRecreation(r *record) []string {
	switch {
	case r.stableContent == "":
		return nil // another actor wrote it, or its expected content failed
	case r.promotionFailed && r.run != nil && !r.configChanged.Before(r.run.began):
		return nil // its configuration is that of the failed promotion, its template that of a remaining ReplicaSet
	case r.statusUnreliable, !r.statusOverwritten.IsZero():
		return nil // the status was overwritten: it may name another promoted revision, or omit a failed promotion
	case r.promotionFailed:
		// Nothing that it has run since was promoted: it is recreated from the target, which may serve users, or from the
		// template of a remaining ReplicaSet.
		return append(r.target.contentHistory.Since(c.OldestView()), r.primary.contentHistory.Since(time.Time{})...)
	case r.run == nil:
		return []string{r.stableContent}
	case isActive(r.phase()) && r.run.primaryContent == "":
		return nil // it had already been deleted
	case isActive(r.phase()):
		return append([]string{r.stableContent, r.run.primaryContent}, r.run.targetContents...) // including its content before a partial promotion
	default:
		return append([]string{r.stableContent}, r.run.targetContents...)
	}
}

// allowedAtUpdate returns the contents that an existing primary may receive.
func (c *analysedTemplate) allowedAtUpdate(r *record) []string {
	if r.run == nil || !isActive(r.phase()) && !c.statusJustChanged(r) {
		return []string{} // no change is allowed
	}
	allowed := slices.Clone(r.run.targetContents)
	if r.run.primaryContent != "" {
		allowed = append(allowed, r.run.primaryContent)
	}
	if r.primary.writtenByOthers.After(r.run.began) || r.run.primaryContent == "" {
		return nil
	}
	if r.statusUnreliable { // the status may name another promoted revision: one that the primary has run
		allowed = append(allowed, r.primary.contentHistory.Since(time.Time{})...)
	}
	return allowed
}

// statusJustChanged reports whether a process may not know yet that the release has ended.
func (c *analysedTemplate) statusJustChanged(r *record) bool {
	return r.statusChanged.After(c.OldestView())
}

// mayChange reports whether a field of a user's object is documented to change.
func mayChange(h oracle.Write, path string) bool {
	switch h.Kind {
	case actors.DeploymentKind:
		// The replicas of the target; and a primary that remains from an earlier Canary gets an owner again.
		return path == "spec/replicas" || strings.HasSuffix(h.Key.Name, primarySuffix) && path == "metadata/ownerReferences"
	case actors.DaemonSetKind:
		return path == "spec/template" && onlyNodeSelectorChanged(h)
	case actors.ServiceKind:
		return path == "spec/selector" || path == "spec/ports" || path == "spec/trafficDistribution" || path == "metadata/annotations"
	case actors.AutoscalerKind:
		return strings.HasSuffix(h.Key.Name, primarySuffix)
	case cluster.VirtualServiceKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/http" || path == "spec/tcp" || path == "spec/hosts" || path == "spec/gateways"
	case cluster.DestinationRuleKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/host" || path == "spec/trafficPolicy"
	case cluster.HTTPProxyKind, cluster.RouteTableKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/routes" && preservesUserFields(h)
	case cluster.HTTPRouteKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/rules" || path == "spec/hostnames" || path == "spec/parentRefs"
	default:
		return false
	}
}

// onlyNodeSelectorChanged reports whether the node selector is the only changed field of a DaemonSet's template.
func onlyNodeSelectorChanged(h oracle.Write) bool {
	for _, path := range oracle.Differences(nested(h.Old.Content(), "spec", "template"), nested(h.New.Content(), "spec", "template"), "", 2) {
		if path != "spec/nodeSelector" {
			return false
		}
	}
	return true
}

// isControlledByCanary reports whether a Canary controls an object.
func isControlledByCanary(v *store.Version) bool {
	return actors.ControllerOf(v.Meta()).Kind == flaggerv1.CanaryKind
}

// originalAnnotation is the documented annotation with the state that an object had before its release.
const originalAnnotation = "serin.dev/original"

// belongsToOther reports whether the state that an object had before its release names another Canary, which may be gone: only
// that one restores the object.
func belongsToOther(v *store.Version, r *record) bool {
	var original struct {
		Canary string `json:"canary"`
	}
	text := v.Meta().Annotations[originalAnnotation]
	return text != "" && json.Unmarshal([]byte(text), &original) == nil && original.Canary != r.Key.String()
}

// servesOther reports whether a written Service or route belongs to another Canary before or after the write. That Canary may have the
// same spec.service.name and another target, which it serves by the object, or to which its deletion restores the object.
func (l *ledger) servesOther(e *store.Event, r *record) bool {
	return slices.ContainsFunc([]*store.Version{e.Old, e.New}, func(v *store.Version) bool {
		switch {
		case v == nil:
			return false
		case isControlledByCanary(v):
			return actors.ControllerOf(v.Meta()).UID != r.UID
		case v.Meta().Annotations[originalAnnotation] != "":
			return belongsToOther(v, r)
		default:
			return l.otherOwnsServices(r)
		}
	})
}

// otherOwnsServices reports whether another Canary controls a Service with the name of that of this one's primary or canary. Nothing else identifies the Canary that changes a user's object without a record of its original state, and this one
// is blocked.
func (l *ledger) otherOwnsServices(r *record) bool {
	return slices.ContainsFunc([]string{primarySuffix, "-canary"}, func(suffix string) bool {
		v := l.World.Server.Peek(actors.ServiceKind, namespacedName(r, r.apexName()+suffix))
		return v != nil && isControlledByCanary(v) && actors.ControllerOf(v.Meta()).UID != r.UID
	})
}

// publicPart returns the part of an object that must not contain secrets. Users may write secrets into the spec of a Canary.
func publicPart(v *store.Version) map[string]any {
	if v.Kind() == canaryKind {
		return nested(v.Content(), "status")
	}
	return v.Content()
}

// targetPods are the changes of the replicas of a target, for I18.
type targetPods struct{ *ledger }

// documentedScaling is the part of I18 about the transitions at which replicas are written.
func (c *targetPods) documentedScaling(event any) {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.previousReplicas == h.replicas {
		return
	}
	r := h.record
	switch {
	case h.primary && h.content == "" && r.primary.content != "" && r.phase() != flaggerv1.CanaryPhaseInitializing && !otherFieldsChanged(h):
		c.Violate("I18", r.Name(), "the primary's replicas went from %d to %d without its template", h.previousReplicas, h.replicas)
	case !h.primary && h.replicas > c.autoscalerLimit(r) && !c.isReplaced(r): // the autoscaler may be that of the next target
		c.Violate("I18", r.Name(), "the target's replicas went from %d to %d, although its autoscaler permits %d", h.previousReplicas, h.replicas, c.autoscalerLimit(r))
	case h.primary, r.phase() == flaggerv1.CanaryPhaseTerminating, isDeleting(r):
	case h.replicas > h.previousReplicas && h.previousReplicas != 0:
		c.Violate("I18", r.Name(), "the target's replicas went from %d to %d, although it was not scaled to zero", h.previousReplicas, h.replicas)
	case h.replicas < h.previousReplicas && h.replicas != 0:
		c.Violate("I18", r.Name(), "the target's replicas went from %d to %d, and not to zero", h.previousReplicas, h.replicas)
	}
}

// autoscalerLimit returns the number of pods that the autoscaler of a target permits.
func (c *targetPods) autoscalerLimit(r *record) int64 {
	if ref := r.canary.Spec.AutoscalerRef; ref != nil {
		if v := c.World.Server.Peek(actors.AutoscalerKind, types.NamespacedName{Namespace: r.Key.Namespace, Name: ref.Name}); v != nil {
			return nested(v.Content(), "spec")["maxReplicas"].(int64)
		}
	}
	return math.MaxInt64
}

// scalings returns the facts for I18.
func (c *targetPods) scalings(event any) []oracle.Scaling {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.previousReplicas == h.replicas || h.primary || !isEnded(h.record.phase()) || isDeleting(h.record) {
		return nil
	}
	return []oracle.Scaling{{
		Release: h.record.Name(), What: fmt.Sprintf("the target's replicas went from %d to %d", h.previousReplicas, h.replicas), IdleSince: h.record.IdleSince,
	}}
}

// otherFieldsChanged reports whether other copied fields changed as well.
func otherFieldsChanged(h workloadWritten) bool {
	paths := oracle.Differences(nested(h.Old.Content(), "spec"), nested(h.New.Content(), "spec"), "", 1)
	return len(paths) > 1
}

// idleCanaries are the Canaries that need no writes, for I19.
type idleCanaries struct{ *ledger }

// idleReleases returns the releases of an object that have been idle for so long that every process knows it.
func (c *idleCanaries) idleReleases(e oracle.Write) []*record {
	of := c.releasesOf(e)
	if e.Kind == canaryKind || len(of) != 1 {
		return nil
	}
	if r := of[0]; r.IdleSince.IsZero() || r.IdleSince.After(c.OldestView()) || isDeleting(r) {
		return nil
	}
	return of
}

// mayWriteAgain reports whether a write for an idle release has another cause than a change of the object by another actor.
func (c *idleCanaries) mayWriteAgain(e oracle.Write, r *record, w oracle.Writes) bool {
	isRoute := r.hasWeights(oracle.KeyOf(e.Kind, e.Key))
	outdated := isRoute && r.route.outdatedWrite.Equal(w.Last) // a weight that a former leader set
	return outdated || isRoute && r.removesTrafficFromTarget(e) || c.hasOtherCause(r, w.Last) || c.JustStarted(w.LastActor) || c.JustStarted(e.Actor)
}

// removesTrafficFromTarget reports whether a write removes the traffic of a target that has no pods, or that has another
// revision than the primary, whose release begins without traffic. It does not matter since when this is the case, nor which
// actor routed the traffic there: Serin may have had to wait for a ready primary, or for permissions.
func (r *record) removesTrafficFromTarget(h oracle.Write) bool {
	removed := r.weightsOf(h.Old).canary > 0 && r.weightsOf(h.New).canary == 0
	return removed && (r.target.replicas == 0 && !r.target.Answering.True || r.target.content != r.primary.content)
}

// hasOtherCause reports whether something that a release depends on changed recently, or since the object was last written: its
// spec, its target, its configuration, or a command of a user. A target that was named before applies when the release with the former
// one has ended. A rejected write is retried late.
func (c *idleCanaries) hasOtherCause(r *record, last time.Time) bool {
	then := c.OldestView()
	if last.Before(then) {
		then = last
	}
	if r.Specs.Replaced(then) || r.lastReplaced.After(then) || r.hasCommand("retry", then) {
		return true
	}
	for _, at := range r.objectKeys() {
		if !c.Objects[at].Unchanged(then) {
			return true
		}
	}
	return false
}

// promotedConfig is I28.
type promotedConfig struct {
	*ledger
	oracle.EventsOnly
}

func (c *promotedConfig) Observe(event any) {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Type != store.Modified || h.Kind != actors.ConfigMapKind && h.Kind != actors.SecretKind || !strings.HasSuffix(h.Key.Name, primarySuffix) {
		return
	}
	if reflect.DeepEqual(h.Old.Content()["data"], h.New.Content()["data"]) && reflect.DeepEqual(h.Old.Content()["binaryData"], h.New.Content()["binaryData"]) {
		return
	}
	idle := func(r *record) bool { return isEnded(r.phase()) && !r.IdleSince.After(c.OldestView()) }
	all := c.releasesOf(h)
	if slices.ContainsFunc(all, func(r *record) bool { return !idle(r) && c.ownsTarget(r) }) {
		return // it is a copy that Canaries with different targets share
	}
	for _, r := range all {
		made := r.primary.version == nil // it is recreated after a user deleted it; I6 checks its content
		if idle(r) && !made {
			c.Violate("I28", r.Name(), "while the release is idle (%s), the content of %s %s changed", r.phase(), h.Kind.Kind, h.Key.Name)
		}
	}
}

// precedingCanaries returns the Canaries with the same target that release it instead of this one: those that control the primary,
// then those that control one of the Services, then older ones.
func (l *ledger) precedingCanaries(r *record) []*record {
	var out []*record
	for _, other := range l.All {
		if other != r && !other.Gone() && other.claimsTargetOf(r) && l.precedes(other, r) {
			out = append(out, other)
		}
	}
	return out
}

func sameTarget(a, b flaggerv1.TargetReference) bool { return a.Kind == b.Kind && a.Name == b.Name }

// claimsTargetOf reports whether a Canary has the target of another one in its spec, or ends a release or its deletion with it.
func (r *record) claimsTargetOf(other *record) bool {
	return r.Key.Namespace == other.Key.Namespace &&
		(sameTarget(r.canary.Spec.TargetRef, other.targetRef) || sameTarget(r.targetRef, other.targetRef))
}

// ownsTarget reports whether a Canary releases its target, so that effects on it can be attributed to this Canary. It returns
// false while some process may not know yet that another Canary with this target is gone. A Canary whose target is not a
// Deployment releases nothing if another Canary releases the Deployment of that name.
func (l *ledger) ownsTarget(r *record) bool {
	return !l.targetJustReleased(r) && len(l.precedingCanaries(r)) == 0 && (r.targetRef.Kind == actors.DeploymentKind.Kind || !l.targetReleasedElsewhere(r))
}

// targetJustReleased reports whether some process may not know yet that another Canary with the target of this one is gone.
func (l *ledger) targetJustReleased(r *record) bool {
	return slices.ContainsFunc(l.All, func(other *record) bool {
		return other.DeletedAt.After(l.OldestView()) && other.claimsTargetOf(r)
	})
}

// targetReleasedElsewhere reports whether another Canary releases the Deployment with the name of this Canary's target.
func (l *ledger) targetReleasedElsewhere(r *record) bool {
	return slices.ContainsFunc(l.All, func(other *record) bool {
		ref := other.targetRef
		return other != r && !other.Gone() && other.Key.Namespace == r.Key.Namespace &&
			ref.Kind == actors.DeploymentKind.Kind && ref.Name == r.targetRef.Name
	})
}

// precedes reports whether the first Canary releases the target of the second one.
func (l *ledger) precedes(a, b *record) bool {
	primary := func(r *record) bool { return l.controls(r, r.kind, b.targetRef.Name+primarySuffix) }
	service := func(r *record) bool {
		return slices.ContainsFunc([]string{"", primarySuffix, "-canary"}, func(suffix string) bool { return l.controls(r, actors.ServiceKind, r.apexName()+suffix) })
	}
	for _, controls := range []func(*record) bool{primary, service} {
		if x, y := controls(a), controls(b); x != y {
			return x
		}
	}
	return older(a, b)
}

// controls reports whether a Canary controls an object of its namespace, or took it over according to the record of its original state.
func (l *ledger) controls(r *record, kind schema.GroupKind, name string) bool {
	v := l.World.Server.Peek(kind, namespacedName(r, name))
	if v == nil {
		return false
	}
	if owner := actors.ControllerOf(v.Meta()); owner.UID != "" {
		return owner.UID == r.UID
	}
	return v.Meta().Annotations[originalAnnotation] != "" && !belongsToOther(v, r)
}

func older(a, b *record) bool {
	x, y := a.canary.CreationTimestamp, b.canary.CreationTimestamp
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.UID < b.UID
}

// sharedTargets are the targets of several Canaries, for I31.
type sharedTargets struct{ *ledger }

// claims returns the facts for I31. An object that is created for a Canary may make it the one that releases the target, so the
// state before the write counts.
func (c *sharedTargets) claims(event any) []oracle.Claim {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Type != store.Added {
		return nil
	}
	r := c.ByUID[actors.ControllerOf(h.New.Meta()).UID]
	if r == nil || r.Gone() {
		return nil
	}
	var out []oracle.Claim
	for _, other := range c.All {
		if since, precedes := c.preceding[r][other]; precedes && !other.Gone() {
			out = append(out, oracle.Claim{
				Release: r.Name(), What: fmt.Sprintf("%s %s was created for it", h.Kind.Kind, h.Key.Name), Other: other.Name(), Shared: "target", Since: since,
			})
		}
	}
	return out
}

// recordPrecedence records which Canaries precede each other now.
func (c *recorder) recordPrecedence() {
	for _, r := range c.All {
		if r.Gone() {
			delete(c.preceding, r)
			continue
		}
		now := map[*record]time.Time{}
		for _, other := range c.precedingCanaries(r) {
			since, known := c.preceding[r][other]
			if !known {
				since = c.Now()
			}
			now[other] = since
		}
		c.preceding[r] = now
	}
}

// explainedConflicts is the part of I31 about the final state.
func (c *sharedTargets) explainedConflicts() {
	for _, r := range c.All {
		if r.Gone() || isDeleting(r) || r.canary.Spec.Suspend {
			continue
		}
		switch others := c.precedingCanaries(r); {
		case len(others) > 0:
			oracle.ExplainedConflict(c.Ledger, oracle.Conflict{Release: r.Name(), Other: others[0].Name(), Shared: "target", Explained: r.isBlocked()})
		case blockedReason(r.canary) == "Obstacle":
			c.Violate("I31", r.Name(), "its status reports that another Canary releases the target, but none does")
		}
	}
}

// remnants returns the facts for I27.
func (c *endedRuns) remnants() []oracle.Remnant {
	var out []oracle.Remnant
	for _, r := range c.All {
		if r.Gone() || isDeleting(r) || r.canary.Spec.Suspend || len(c.precedingCanaries(r)) > 0 {
			continue
		}
		traffic := fmt.Sprintf("in phase %s the canary still has %d %% of the traffic (mirrored: %t)", r.phase(), r.route.canary, r.route.mirrored)
		// Serin does not repair the route of an idle release, nor a change by others that it had not observed when the release ended.
		byOthers := !r.route.changedByOthers.Before(r.IdleSince.Add(-c.Lag))
		succeeded := r.phase() == flaggerv1.CanaryPhaseSucceeded
		if succeeded && !r.neverStarted && (r.route.canary > 0 || r.route.mirrored) && !byOthers {
			out = append(out, oracle.Remnant{Release: r.Name(), What: traffic})
		}
		failed := r.phase() == flaggerv1.CanaryPhaseFailed && r.canary.Status.CanaryWeight == 0 && r.statusBySerin() && !r.promotionFailed
		if failed && r.route.canary > 0 && !byOthers {
			out = append(out, oracle.Remnant{Release: r.Name(), What: traffic})
		}
		// Only the status records the previous provider, and an old definition drops that part of it.
		if weight := r.formerTraffic(r.IdleSince.Add(-c.Lag)); (succeeded && !r.neverStarted || failed) && weight > 0 && r.status.Serin != nil {
			out = append(out, oracle.Remnant{Release: r.Name(), What: fmt.Sprintf("in phase %s the route of the previous provider still has %d %% of the traffic for the canary", r.phase(), weight)})
		}
		if s := r.canary.Status.Serin; s != nil && r.statusBySerin() && isEnded(r.phase()) && (s.Window != nil || s.DrainUntil != nil || s.Started || s.Unreachable != nil) {
			out = append(out, oracle.Remnant{Release: r.Name(), What: "its status still has state of the run"})
		}
	}
	return out
}
