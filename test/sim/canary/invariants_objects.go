package canary

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/kinds"
	"github.com/serin-dev/serin/test/sim/store"
)

func thingKey(r *record, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.key.Namespace, Name: name}
}

// analysedTemplate is I6.
type analysedTemplate struct {
	*ledger
	without
}

func (c *analysedTemplate) see(happening any) {
	if m, ok := happening.(moved); ok {
		c.succeeded(m)
	}
	h, ok := happening.(rolled)
	if !ok || !h.ours || !h.primary || h.content == "" || !h.of.mine() {
		return
	}
	r := h.of
	var allowed []string
	switch {
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && c.late(h.Actor):
		allowed = r.target.ran(time.Time{}) // the primary follows the target, and serves nobody before it is like it
	case (r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing) && r.configured.After(c.then()):
		return // template and configuration may have been seen as they never were at once, and what follows mends that
	case r.phase() == flaggerv1.CanaryPhaseInitializing && r.target.version == nil && r.made.After(c.then()):
		return // it may have been seen still as it was last before the Canary was made, which nobody took down
	case r.phase() == "" || r.phase() == flaggerv1.CanaryPhaseInitializing:
		allowed = r.target.ran(c.then())
	case h.Type == store.Added:
		allowed = c.again(r)
	default:
		allowed = c.mayBecome(r)
	}
	if allowed != nil && !slices.Contains(allowed, h.content) {
		c.violate("I6", r, "in phase %s the primary got %s, which is none of %v (it ran %s, the target runs %s)",
			r.phase(), h.content, allowed, r.primary.content, r.target.content)
	}
}

// succeeded: what is said to be promoted is what the primary runs.
func (c *analysedTemplate) succeeded(m moved) {
	r := m.of
	if r == nil || !m.ours || !m.status() || r.run == nil || !r.mine() || m.after.Status.Phase != flaggerv1.CanaryPhaseSucceeded || !moving(m.before.Status.Phase) {
		return
	}
	if r.misled {
		return
	}
	cancelled := slices.Contains(r.target.ran(c.then()), r.primary.content) || m.before.Status.Phase == flaggerv1.CanaryPhaseWaiting
	changed := r.primary.foreign.After(r.run.began) || r.primary.removed.After(r.run.began) || r.primary.version == nil
	if !changed && !cancelled && !slices.Contains(r.run.contents, r.primary.content) {
		c.violate("I6", r, "it succeeded, but the primary runs %s, and the run was about %v", r.primary.content, r.run.contents)
	}
}

// again is what a primary that is made again may run; nil: nobody can tell.
func (c *analysedTemplate) again(r *record) []string {
	switch {
	case r.stable == "":
		return nil // somebody else wrote it, or what it should run failed
	case r.orphaned && r.run != nil && !r.configured.Before(r.run.began):
		return nil // its configuration is that of the promotion that failed, its template of whatever a ReplicaSet still has
	case r.misled, !r.tampered.IsZero():
		return nil // the status was overwritten: it may say that something else was promoted, or nothing of a promotion that failed
	case r.orphaned:
		// Nothing that it ran since was promoted: it is created again from the target, which may be what serves, or from what a
		// ReplicaSet of it still has.
		return append(r.target.ran(c.then()), r.primary.ran(time.Time{})...)
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
func (l *ledger) justMoved(r *record) bool { return r.moved.After(l.then()) }

// usersOwn is I8.
type usersOwn struct {
	*ledger
	without
}

func (c *usersOwn) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Kind == canaryKind || h.Old == nil || madeFor(h.Old) {
		return
	}
	if h.Type == store.Deleted {
		c.violate("I8", nil, "%s %s was deleted, which no Canary owns", h.Kind.Kind, h.Key.Name)
		return
	}
	if owner := holder(h.Old); owner != "" {
		c.violate("I8", nil, "%s %s was changed, which belongs to %s", h.Kind.Kind, h.Key.Name, owner)
		return
	}
	for _, path := range differences(h.Old.Content(), h.New.Content(), "", 2) {
		if !mayChange(h, path) {
			c.violate("I8", nil, "%s of %s %s was changed, which its user made", path, h.Kind.Kind, h.Key.Name)
		}
	}
}

// mayChange are the fields of users' objects that are documented to change.
func mayChange(h wrote, path string) bool {
	switch {
	case strings.HasPrefix(path, "metadata/resourceVersion"), strings.HasPrefix(path, "metadata/generation"), path == "metadata/managedFields":
		return true
	}
	switch h.Kind {
	case deploymentKind:
		// The target's replicas; and a primary that an earlier Canary left behind gets its owner back.
		return path == "spec/replicas" || strings.HasSuffix(h.Key.Name, ending) && path == "metadata/ownerReferences"
	case daemonSetKind:
		return path == "spec/template" && onlyElsewhere(h)
	case serviceKind:
		return path == "spec/selector" || path == "spec/ports" || path == "spec/trafficDistribution" || path == "metadata/annotations"
	case scalerKind:
		return strings.HasSuffix(h.Key.Name, ending)
	case virtualService:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/http" || path == "spec/tcp" || path == "spec/hosts" || path == "spec/gateways"
	case destination:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/host" || path == "spec/trafficPolicy"
	case httpRoute:
		return path == "metadata/annotations" || path == "metadata/labels" || path == "spec/rules" || path == "spec/hostnames" || path == "spec/parentRefs"
	default:
		return false
	}
}

// onlyElsewhere is true when nothing of a DaemonSet changed but where its pods may run.
func onlyElsewhere(h wrote) bool {
	for _, path := range differences(within(h.Old.Content(), "spec", "template"), within(h.New.Content(), "spec", "template"), "", 2) {
		if path != "spec/nodeSelector" {
			return false
		}
	}
	return true
}

// differences are the paths, down to a depth, at which two objects are not the same.
func differences(before, after map[string]any, at string, depth int) []string {
	var out []string
	seen := func(field string) {
		if x, y := before[field], after[field]; !same(x, y) && !equal(x, y) {
			inner, isMap := x.(map[string]any)
			other, areMaps := y.(map[string]any)
			if depth > 1 && isMap && areMaps {
				out = append(out, differences(inner, other, at+field+"/", depth-1)...)
			} else {
				out = append(out, at+field)
			}
		}
	}
	for field := range before {
		seen(field)
	}
	for field := range after {
		if _, known := before[field]; !known {
			seen(field)
		}
	}
	slices.Sort(out)
	return out
}

// madeFor is true of objects that a Canary controls.
func madeFor(v *store.Version) bool {
	return strings.HasPrefix(holder(v), flaggerv1.CanaryKind+" ")
}

// holder names who controls an object, as kind, name and UID; empty: nobody.
func holder(v *store.Version) string {
	for _, owner := range kinds.Items(within(v.Content(), "metadata")["ownerReferences"]) {
		if held, _ := owner["controller"].(bool); held {
			kind, _ := owner["kind"].(string)
			uid, _ := owner["uid"].(string)
			return kind + " " + uid
		}
	}
	return ""
}

// noSecrets is I10.
type noSecrets struct {
	*ledger
	without
}

func (c *noSecrets) see(happening any) {
	switch h := happening.(type) {
	case kinds.Said:
		if strings.Contains(h.Message, planted) {
			c.violate("I10", nil, "an event of %s has a secret: %s", h.Of.Name, h.Message)
		}
	case wrote:
		if !h.ours || h.Type == store.Deleted || h.Kind == secretKind {
			return
		}
		content := h.New.Content()
		if h.Kind == canaryKind {
			content = within(content, "status") // people may write secrets into their specs
		}
		var old map[string]any
		if h.Old != nil {
			old = h.Old.Content()
			if h.Kind == canaryKind {
				old = within(old, "status")
			}
		}
		if text := revealed(content, old); text != "" {
			c.violate("I10", nil, "%s %s has a secret: %s", h.Kind.Kind, h.Key.Name, text)
		}
	}
}

// revealed is a string with a secret in what is new of a value.
func revealed(value, old any) string {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, planted) {
			return v
		}
	case map[string]any:
		before, _ := old.(map[string]any)
		if same(value, old) {
			return ""
		}
		for field, item := range v {
			if text := revealed(item, before[field]); text != "" {
				return text
			}
		}
	case []any:
		for _, item := range v {
			if text := revealed(item, nil); text != "" {
				return text
			}
		}
	}
	return ""
}

// preconditions is I12.
type preconditions struct {
	*ledger
	without
}

func (c *preconditions) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours {
		return
	}
	switch {
	case h.Verb == store.Create:
		if generated, _ := within(h.New.Content(), "metadata")["generateName"].(string); generated != "" {
			c.violate("I12", nil, "%s %s was made under a name that nobody can find again", h.Kind.Kind, h.Key.Name)
		}
	case h.Basis.ResourceVersion == "":
		c.violate("I12", nil, "%s of %s %s names no version that it was decided on", h.Verb, h.Kind.Kind, h.Key.Name)
	case h.Verb == store.Delete && h.Basis.UID == "":
		c.violate("I12", nil, "the deletion of %s %s does not name its UID", h.Kind.Kind, h.Key.Name)
	}
}

// oneScaler is I18.
type oneScaler struct {
	*ledger
	without
}

func (c *oneScaler) see(happening any) {
	h, ok := happening.(rolled)
	if !ok || !h.ours || h.Type != store.Modified || h.was == h.is {
		return
	}
	r := h.of
	switch {
	case h.primary && h.content == "" && r.primary.content != "" && r.phase() != flaggerv1.CanaryPhaseInitializing && !c.withTemplate(h):
		c.violate("I18", r, "the primary's replicas went from %d to %d without its template", h.was, h.is)
	case h.primary, r.phase() == flaggerv1.CanaryPhaseTerminating, leaving(r):
	case h.is > h.was && h.was != 0:
		c.violate("I18", r, "the target's replicas went from %d to %d, although it had some", h.was, h.is)
	case h.is < h.was && h.is != 0:
		c.violate("I18", r, "the target's replicas went from %d to %d, and not to none", h.was, h.is)
	case resting(r.phase()) && !r.rested.After(c.then()):
		c.violate("I18", r, "at rest (%s) the target's replicas went from %d to %d", r.phase(), h.was, h.is)
	}
}

// withTemplate is true when other fields that are copied changed along.
func (c *oneScaler) withTemplate(h rolled) bool {
	paths := differences(within(h.Old.Content(), "spec"), within(h.New.Content(), "spec"), "", 1)
	return len(paths) > 1
}

// noFight is I19.
type noFight struct {
	*ledger
	without
}

func (c *noFight) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Kind == canaryKind || h.Type != store.Modified {
		return
	}
	for _, r := range h.of {
		if r.rested.IsZero() || r.rested.After(c.then()) || leaving(r) || len(h.of) > 1 {
			return
		}
		at := thing{h.Kind, h.Key}
		w := c.objects[at]
		late := w != nil && r.carries(at) && r.route.outpaced.Equal(w.last) // a weight that a process set which did not lead any more
		saved := r.carries(at) && r.rescued(h)
		if w != nil && !w.unanswered && !late && !saved && !c.caused(r, w.last) && !c.late(w.by) && !c.late(h.Actor) {
			c.violate("I19", r, "at rest %s %s was written again, although nobody else had written anything since the last time", h.Kind.Kind, h.Key.Name)
		}
	}
}

// rescued is true of a write that takes users off a target without pods. Since when it has none does not matter, nor who sent
// them there: it may have had to wait for a primary that answers.
func (r *record) rescued(h wrote) bool {
	return r.weightsOf(h.Old).canary > 0 && r.weightsOf(h.New).canary == 0 && r.target.replicas == 0 && !r.target.serves
}

// caused is true when something else changed of late, or since the object was written last, that a release follows: its
// spec, its target, its configuration, what a person commands. A write that is refused comes late.
func (c *noFight) caused(r *record, last time.Time) bool {
	then := c.then()
	if last.Before(then) {
		then = last
	}
	if n := len(r.specs); n > 1 && r.specs[n-2].until.After(then) || r.told("retry", then) {
		return true
	}
	for _, at := range r.places() {
		if !c.objects[at].quiet(then) {
			return true
		}
	}
	return false
}

// late is true of a process that has just begun, and whose first lists may have been old.
func (l *ledger) late(by string) bool {
	return l.relists && l.life(by).began.After(l.then())
}

// boundedWork is I21.
type boundedWork struct {
	*ledger
	without
	again  map[types.NamespacedName]int
	passes map[types.NamespacedName]int
	events int
}

// mostAgain is how often a release may be queued at once without a change, mostPasses how many passes each thing that
// happens may cost, and each second.
const (
	mostAgain  = 3
	mostPasses = 20
)

func (c *boundedWork) see(happening any) {
	switch h := happening.(type) {
	case sim.Passed:
		c.pass(h)
		if h.Err != nil || h.Result.RequeueAfter <= 0 || h.Result.RequeueAfter > time.Millisecond {
			delete(c.again, h.Release)
			return
		}
		if c.again == nil {
			c.again = map[types.NamespacedName]int{}
		}
		if c.again[h.Release]++; c.again[h.Release] > mostAgain {
			c.violate("I21", c.named[h.Release], "it was queued at once %d times, and nothing had changed", c.again[h.Release])
		}
	case wrote, answered, sim.Faulted, sim.Crashed:
		c.events++
		clear(c.again)
	}
}

// pass counts passes against what happened in the whole world, and how long it took.
func (c *boundedWork) pass(h sim.Passed) {
	if c.passes == nil {
		c.passes = map[types.NamespacedName]int{}
	}
	c.passes[h.Release]++
	if most := mostPasses * (10 + c.events + int(c.now().Sub(c.began)/time.Second)); c.passes[h.Release] > most {
		c.violate("I21", c.named[h.Release], "it was looked at %d times, but only %d things have happened", c.passes[h.Release], c.events)
	}
}

// promotedConfig is I28.
type promotedConfig struct {
	*ledger
	without
}

func (c *promotedConfig) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Type != store.Modified || h.Kind != configMapKind && h.Kind != secretKind || !strings.HasSuffix(h.Key.Name, ending) {
		return
	}
	if equal(h.Old.Content()["data"], h.New.Content()["data"]) && equal(h.Old.Content()["binaryData"], h.New.Content()["binaryData"]) {
		return
	}
	for _, r := range h.of {
		made := r.primary.version == nil // again, after somebody deleted it; what it runs is for I6 to judge
		if resting(r.phase()) && !r.rested.After(c.then()) && !made {
			c.violate("I28", r, "at rest (%s) the content of %s %s changed", r.phase(), h.Kind.Kind, h.Key.Name)
		}
	}
}

// oneOwner is I31.
type oneOwner struct {
	*ledger
}

// rivals are the older Canaries with the same target.
func (l *ledger) rivals(r *record) []*record {
	var out []*record
	for _, other := range l.all {
		if other != r && other.deleted.IsZero() && other.key.Namespace == r.key.Namespace &&
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
	late := slices.ContainsFunc(l.all, func(other *record) bool {
		return other.deleted.After(l.then()) && other.key.Namespace == r.key.Namespace && sameTarget(other.canary.Spec.TargetRef, r.canary.Spec.TargetRef)
	})
	return !late && len(l.rivals(r)) == 0 && (r.canary.Spec.TargetRef.Kind == deploymentKind.Kind || !l.replaced(r))
}

// replaced is true when another Canary releases the Deployment of the name that this one points at.
func (l *ledger) replaced(r *record) bool {
	return slices.ContainsFunc(l.all, func(other *record) bool {
		ref := other.canary.Spec.TargetRef
		return other != r && other.deleted.IsZero() && other.key.Namespace == r.key.Namespace &&
			ref.Kind == deploymentKind.Kind && ref.Name == r.canary.Spec.TargetRef.Name
	})
}

func older(a, b *record) bool {
	x, y := a.canary.CreationTimestamp, b.canary.CreationTimestamp
	if !x.Equal(&y) {
		return x.Before(&y)
	}
	return a.uid < b.uid
}

func (c *oneOwner) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Type != store.Added {
		return
	}
	owner := strings.TrimPrefix(holder(h.New), flaggerv1.CanaryKind+" ")
	r := c.records[types.UID(owner)]
	if r == nil || !r.deleted.IsZero() {
		return
	}
	for _, other := range c.rivals(r) {
		if other.aimed.Before(c.then()) {
			c.violate("I31", r, "%s %s was made for it, although %s has the same target", h.Kind.Kind, h.Key.Name, other.key.Name)
		}
	}
}

func (c *oneOwner) end() {
	for _, r := range c.all {
		if !r.deleted.IsZero() || leaving(r) || len(c.rivals(r)) == 0 || r.canary.Spec.Suspend {
			continue
		}
		if !r.blocked() {
			c.violate("I31", r, "it has the target of %s, and no condition says so", c.rivals(r)[0].key.Name)
		}
	}
}

// nothingLeft is I27.
type nothingLeft struct {
	*ledger
}

func (c *nothingLeft) see(happening any) {
	h, ok := happening.(wrote)
	if !ok || !h.ours || h.Type != store.Added || h.Kind == canaryKind {
		return
	}
	if !madeFor(h.New) {
		c.violate("I27", nil, "%s %s was made, and no Canary owns it", h.Kind.Kind, h.Key.Name)
	}
}

func (c *nothingLeft) end() {
	for _, r := range c.all {
		if !r.deleted.IsZero() || leaving(r) || r.canary.Spec.Suspend || len(c.rivals(r)) > 0 {
			continue
		}
		succeeded := r.phase() == flaggerv1.CanaryPhaseSucceeded
		if succeeded && !r.unbegun && (r.route.canary > 0 || r.route.mirrored) && r.route.foreign.Before(r.rested) {
			c.violate("I27", r, "it is Succeeded, and the canary still has %d %% of the traffic (mirrored: %t)", r.route.canary, r.route.mirrored)
		}
		failed := r.phase() == flaggerv1.CanaryPhaseFailed && r.canary.Status.CanaryWeight == 0 && r.mine() && !r.orphaned && !r.blocked()
		if failed && r.route.canary > 0 && r.route.foreign.Before(r.rested) {
			c.violate("I27", r, "it is Failed, and the canary still has %d %% of the traffic", r.route.canary)
		}
		if s := r.canary.Status.Serin; s != nil && r.mine() && resting(r.phase()) && (s.Window != nil || s.DrainUntil != nil || s.Started || s.Unreachable != nil) {
			c.violate("I27", r, "it is %s, and its status still has something of the run", r.phase())
		}
	}
}
