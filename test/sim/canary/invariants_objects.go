package canary

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim/actors"
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
	if m, ok := event.(canaryWritten); ok {
		c.succeeded(m)
	}
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || !h.primary || h.content == "" || !h.of.mine() {
		return
	}
	r := h.of
	var allowed []string
	switch {
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && c.JustStarted(h.Actor):
		allowed = r.target.contents.Since(time.Time{}) // the primary follows the target, and serves no users before it equals the target
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && r.configured.After(c.OldestView()):
		return // the process may have observed a template and a configuration of different times, which a later reconciliation repairs
	case r.phase() == flaggerv1.CanaryPhaseInitializing && r.target.version == nil && r.made.After(c.OldestView()):
		return // the process may have observed its state from before the Canary was created, which is not recorded
	case r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing:
		allowed = r.target.contents.Since(c.OldestView())
	case h.Type == store.Added:
		allowed = c.again(r)
	default:
		allowed = c.mayBecome(r)
	}
	if allowed != nil && !slices.Contains(allowed, h.content) {
		c.Violate("I6", r.Name(), "in phase %s the primary got %s, which is none of %v (it ran %s, the target runs %s)",
			r.phase(), h.content, allowed, r.primary.content, r.target.content)
	}
}

// succeeded: what is said to be promoted is what the primary runs.
func (c *analysedTemplate) succeeded(m canaryWritten) {
	r := m.of
	if r == nil || !m.BySerin || !m.status() || r.run == nil || !r.mine() || m.after.Status.Phase != flaggerv1.CanaryPhaseSucceeded || !moving(m.before.Status.Phase) {
		return
	}
	if r.misled {
		return
	}
	cancelled := r.run.cancelledEarly || slices.Contains(r.target.contents.Since(c.OldestView()), r.primary.content) || m.before.Status.Phase == flaggerv1.CanaryPhaseWaiting
	changed := r.primary.foreign.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.version == nil
	if !changed && !cancelled && !slices.Contains(r.run.contents, r.primary.content) {
		c.Violate("I6", r.Name(), "it succeeded, but the primary runs %s, and the run was about %v", r.primary.content, r.run.contents)
	}
}

// again is what a primary that is created again may run; nil: unknown.
func (c *analysedTemplate) again(r *record) []string {
	switch {
	case r.stable == "":
		return nil // someone else wrote it, or what it should run failed
	case r.orphaned && r.run != nil && !r.configured.Before(r.run.began):
		return nil // its configuration is that of the promotion that failed, its template of whatever a ReplicaSet still has
	case r.misled, !r.tampered.IsZero():
		return nil // the status was overwritten: it may say that something else was promoted, or nothing of a promotion that failed
	case r.orphaned:
		// Nothing that it ran since was promoted: it is created again from the target, which may be what serves, or from what a
		// ReplicaSet of it still has.
		return append(r.target.contents.Since(c.OldestView()), r.primary.contents.Since(time.Time{})...)
	case r.run == nil:
		return []string{r.stable}
	case moving(r.phase()) && r.run.primary == "":
		return nil // it was gone already
	case moving(r.phase()):
		return append([]string{r.stable, r.run.primary}, r.run.contents...) // also what it ran before a promotion got half way
	default:
		return append([]string{r.stable}, r.run.contents...)
	}
}

// mayBecome is what a primary that is there may be given.
func (c *analysedTemplate) mayBecome(r *record) []string {
	if r.run == nil || !moving(r.phase()) && !c.justMoved(r) {
		return []string{} // nothing
	}
	allowed := slices.Clone(r.run.contents)
	if r.run.primary != "" {
		allowed = append(allowed, r.run.primary)
	}
	if r.primary.foreign.After(r.run.began) || r.run.primary == "" {
		return nil
	}
	return allowed
}

// justMoved is true when a process may not know yet that the release is at its end.
func (l *ledger) justMoved(r *record) bool { return r.moved.After(l.OldestView()) }

// exempt is true of a write of an object that belongs to Serin, or of a release.
func exempt(e oracle.Write) bool { return e.Kind == canaryKind || madeFor(e.Old) }

// mayChange are the fields of users' objects that are documented to change.
func mayChange(h oracle.Write, path string) bool {
	switch h.Kind {
	case actors.DeploymentKind:
		// The target's replicas; and a primary that an earlier Canary left behind gets its owner back.
		return path == "spec/replicas" || strings.HasSuffix(h.Key.Name, ending) && path == "metadata/ownerReferences"
	case actors.DaemonSetKind:
		return path == "spec/template" && onlyElsewhere(h)
	case actors.ServiceKind:
		return path == "spec/selector" || path == "spec/ports" || path == "spec/trafficDistribution" || path == "metadata/annotations"
	case actors.AutoscalerKind:
		return strings.HasSuffix(h.Key.Name, ending)
	case actors.VirtualServiceKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/http" || path == "spec/tcp" || path == "spec/hosts" || path == "spec/gateways"
	case actors.DestinationRuleKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/host" || path == "spec/trafficPolicy"
	case actors.HTTPRouteKind:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/rules" || path == "spec/hostnames" || path == "spec/parentRefs"
	default:
		return false
	}
}

// onlyElsewhere is true when nothing of a DaemonSet changed but where its pods may run.
func onlyElsewhere(h oracle.Write) bool {
	for _, path := range oracle.Differences(within(h.Old.Content(), "spec", "template"), within(h.New.Content(), "spec", "template"), "", 2) {
		if path != "spec/nodeSelector" {
			return false
		}
	}
	return true
}

// madeFor is true of objects that a Canary controls.
func madeFor(v *store.Version) bool {
	return strings.HasPrefix(holder(v), flaggerv1.CanaryKind+" ")
}

// holder is the controller of an object, as kind and UID; empty: it has none.
func holder(v *store.Version) string {
	for _, owner := range actors.Items(within(v.Content(), "metadata")["ownerReferences"]) {
		if held, _ := owner["controller"].(bool); held {
			kind, _ := owner["kind"].(string)
			uid, _ := owner["uid"].(string)
			return kind + " " + uid
		}
	}
	return ""
}

// publicPart is the part of an object that must not contain secrets. Users may write some into the spec of a Canary.
func publicPart(v *store.Version) map[string]any {
	if v.Kind() == canaryKind {
		return within(v.Content(), "status")
	}
	return v.Content()
}

// documentedScaling is the part of I18 about the transitions at which replicas are written.
func (l *ledger) documentedScaling(event any) {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.was == h.is {
		return
	}
	r := h.of
	switch {
	case h.primary && h.content == "" && r.primary.content != "" && r.phase() != flaggerv1.CanaryPhaseInitializing && !withTemplate(h):
		l.Violate("I18", r.Name(), "the primary's replicas went from %d to %d without its template", h.was, h.is)
	case h.primary, r.phase() == flaggerv1.CanaryPhaseTerminating, leaving(r):
	case h.is > h.was && h.was != 0:
		l.Violate("I18", r.Name(), "the target's replicas went from %d to %d, although it had some", h.was, h.is)
	case h.is < h.was && h.is != 0:
		l.Violate("I18", r.Name(), "the target's replicas went from %d to %d, and not to none", h.was, h.is)
	}
}

// scalings are facts for I18.
func (l *ledger) scalings(event any) []oracle.Scaling {
	h, ok := event.(workloadWritten)
	if !ok || !h.BySerin || h.Type != store.Modified || h.was == h.is || h.primary || !resting(h.of.phase()) || leaving(h.of) {
		return nil
	}
	return []oracle.Scaling{{
		Release: h.of.Name(), What: fmt.Sprintf("the target's replicas went from %d to %d", h.was, h.is), Rested: h.of.Rested,
	}}
}

// withTemplate is true when other fields that are copied changed along.
func withTemplate(h workloadWritten) bool {
	paths := oracle.Differences(within(h.Old.Content(), "spec"), within(h.New.Content(), "spec"), "", 1)
	return len(paths) > 1
}

// atRest are the releases of an object that have been at rest for so long that every process knows.
func (l *ledger) atRest(e oracle.Write) []*record {
	of := l.releasesOf(e)
	if e.Kind == canaryKind || len(of) != 1 {
		return nil
	}
	if r := of[0]; r.Rested.IsZero() || r.Rested.After(l.OldestView()) || leaving(r) {
		return nil
	}
	return of
}

// mayWriteAgain is true of a write at rest with another cause than what others wrote into the object.
func (l *ledger) mayWriteAgain(e oracle.Write, r *record, w oracle.Writes) bool {
	carries := r.carries(oracle.At(e.Kind, e.Key))
	outdated := carries && r.route.outpaced.Equal(w.Last) // a weight that a process set which did not lead any more
	return outdated || carries && r.rescued(e) || l.caused(r, w.Last) || l.JustStarted(w.LastActor) || l.JustStarted(e.Actor)
}

// rescued reports whether a write takes users off a target that has no pods, or that has another revision than the primary: its
// release begins without users. Since when that is so does not matter, nor who sent them there: the write may have had to wait for
// a primary that answers, or for permissions.
func (r *record) rescued(h oracle.Write) bool {
	taken := r.weightsOf(h.Old).canary > 0 && r.weightsOf(h.New).canary == 0
	return taken && (r.target.replicas == 0 && !r.target.Answering.True || r.target.content != r.primary.content)
}

// caused is true when something else changed of late, or since the object was written last, that a release follows: its
// spec, its target, its configuration, what a user commands. A write that is refused comes late.
func (l *ledger) caused(r *record, last time.Time) bool {
	then := l.OldestView()
	if last.Before(then) {
		then = last
	}
	if r.Specs.Replaced(then) || r.commanded("retry", then) {
		return true
	}
	for _, at := range r.places() {
		if !l.Objects[at].Unchanged(then) {
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
	if !ok || !h.BySerin || h.Type != store.Modified || h.Kind != actors.ConfigMapKind && h.Kind != actors.SecretKind || !strings.HasSuffix(h.Key.Name, ending) {
		return
	}
	if reflect.DeepEqual(h.Old.Content()["data"], h.New.Content()["data"]) && reflect.DeepEqual(h.Old.Content()["binaryData"], h.New.Content()["binaryData"]) {
		return
	}
	for _, r := range c.releasesOf(h) {
		made := r.primary.version == nil // again, after a user deleted it; I6 is about what it runs
		if resting(r.phase()) && !r.Rested.After(c.OldestView()) && !made {
			c.Violate("I28", r.Name(), "at rest (%s) the content of %s %s changed", r.phase(), h.Kind.Kind, h.Key.Name)
		}
	}
}

// rivals are the older Canaries with the same target.
func (l *ledger) rivals(r *record) []*record {
	var out []*record
	for _, other := range l.All {
		if other != r && !other.Gone() && other.Key.Namespace == r.Key.Namespace &&
			sameTarget(other.canary.Spec.TargetRef, r.canary.Spec.TargetRef) && older(other, r) {
			out = append(out, other)
		}
	}
	return out
}

func sameTarget(a, b flaggerv1.TargetReference) bool { return a.Kind == b.Kind && a.Name == b.Name }

// owns is true of the Canary that releases its target; what it does is nothing that another one did, of which some process
// may not know yet that it is gone. One whose spec names something else than a Deployment releases nothing, and another
// Canary may release the Deployment of that name.
func (l *ledger) owns(r *record) bool {
	late := slices.ContainsFunc(l.All, func(other *record) bool {
		return other.Deleted.After(l.OldestView()) && other.Key.Namespace == r.Key.Namespace && sameTarget(other.canary.Spec.TargetRef, r.canary.Spec.TargetRef)
	})
	return !late && len(l.rivals(r)) == 0 && (r.canary.Spec.TargetRef.Kind == actors.DeploymentKind.Kind || !l.replaced(r))
}

// replaced is true when another Canary releases the Deployment of the name that this one points at.
func (l *ledger) replaced(r *record) bool {
	return slices.ContainsFunc(l.All, func(other *record) bool {
		ref := other.canary.Spec.TargetRef
		return other != r && !other.Gone() && other.Key.Namespace == r.Key.Namespace &&
			ref.Kind == actors.DeploymentKind.Kind && ref.Name == r.canary.Spec.TargetRef.Name
	})
}

func older(a, b *record) bool {
	x, y := a.canary.CreationTimestamp, b.canary.CreationTimestamp
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.UID < b.UID
}

// claims are facts for I31.
func (l *ledger) claims(event any) []oracle.Claim {
	h, ok := event.(oracle.Write)
	if !ok || !h.BySerin || h.Type != store.Added {
		return nil
	}
	r := l.ByUID[types.UID(strings.TrimPrefix(holder(h.New), flaggerv1.CanaryKind+" "))]
	if r == nil || r.Gone() {
		return nil
	}
	var out []oracle.Claim
	for _, other := range l.rivals(r) {
		out = append(out, oracle.Claim{
			Release: r.Name(), What: fmt.Sprintf("%s %s was created for it", h.Kind.Kind, h.Key.Name), Other: other.Name(), Shared: "target", Since: other.aimed,
		})
	}
	return out
}

// explainedConflicts is the part of I31 about the final state.
func (l *ledger) explainedConflicts() {
	for _, r := range l.All {
		if rivals := l.rivals(r); !r.Gone() && !leaving(r) && len(rivals) > 0 && !r.canary.Spec.Suspend {
			oracle.ExplainedConflict(l.Ledger, oracle.Conflict{Release: r.Name(), Other: rivals[0].Name(), Shared: "target", Explained: r.blocked()})
		}
	}
}

// remainders are facts for I27.
func (l *ledger) remainders() []oracle.Remainder {
	var out []oracle.Remainder
	for _, r := range l.All {
		if r.Gone() || leaving(r) || r.canary.Spec.Suspend || len(l.rivals(r)) > 0 {
			continue
		}
		traffic := fmt.Sprintf("in phase %s the canary still has %d %% of the traffic (mirrored: %t)", r.phase(), r.route.canary, r.route.mirrored)
		succeeded := r.phase() == flaggerv1.CanaryPhaseSucceeded
		if succeeded && !r.unbegun && (r.route.canary > 0 || r.route.mirrored) && r.route.foreign.Before(r.Rested) {
			out = append(out, oracle.Remainder{Release: r.Name(), What: traffic})
		}
		failed := r.phase() == flaggerv1.CanaryPhaseFailed && r.canary.Status.CanaryWeight == 0 && r.mine() && !r.orphaned && !r.blocked()
		if failed && r.route.canary > 0 && r.route.foreign.Before(r.Rested) {
			out = append(out, oracle.Remainder{Release: r.Name(), What: traffic})
		}
		if s := r.canary.Status.Serin; s != nil && r.mine() && resting(r.phase()) && (s.Window != nil || s.DrainUntil != nil || s.Started || s.Unreachable != nil) {
			out = append(out, oracle.Remainder{Release: r.Name(), What: "its status still has state of the run"})
		}
	}
	return out
}
