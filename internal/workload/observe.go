package workload

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/workload/peerhash"
)

// Ask is something that Observe looks up only when it is asked to, because it costs a request.
type Ask int

// AskHistory fills Observation.NewestTemplate: one live LIST.
const AskHistory Ask = iota + 1

// Observation is what holds pods for a Canary, as it is.
type Observation struct {
	// Problem says why the target cannot be used at all; empty when it can. A person has to mend it.
	Problem string
	// SelectorLabel and SelectorValue tell the target's pods from others; the primary's have the value with -primary.
	SelectorLabel, SelectorValue string
	// Target and Primary are the two workloads.
	Target, Primary State
	// Same is true when the primary runs what the target says: template and configuration are equal, names rewritten.
	Same bool
	// Configs are Serin's checksums (data and binaryData) of the tracked configuration, by configmap/NAME or
	// secret/NAME; PeerConfigs are Flagger's (data), nil when tracking is off.
	Configs, PeerConfigs map[string]string
	// Reads are all objects whose change may give another observation, found or not: those of Kind.Reads, and what the
	// target names (with tracking, every ConfigMap and Secret that has a copy or may get one).
	Reads []Object
	// NewestTemplate is when the target last got a template that it never had before. Zero when its history does not
	// say, and when it was not asked for.
	NewestTemplate time.Time
	// ScalerProblem says why the autoscaler that the Canary names cannot be used; empty when it can.
	ScalerProblem string
	// NotInstalled is true when a problem is that the cluster does not know a kind: nothing tells when it does.
	NotInstalled bool
}

// State is one workload.
type State struct {
	// Found is false when there is none; nothing else is set then.
	Found bool
	UID   types.UID
	// Revision is Serin's identity of what the target runs: s1- and 32 hex digits. Empty for the primary, whose template
	// has other names.
	Revision string
	// PeerHash is Flagger 1.44's hash of the target's template. Empty for the primary. No decision rests on it.
	PeerHash string
	// ID is the annotation flagger-id of the pod template.
	ID string
	// Replicas are asked for; the others are counted by Kubernetes.
	Replicas                         int32
	Total, Updated, Ready, Available int32
	// Readiness by the threshold of the Canary for this one of the two.
	Readiness Readiness
}

// Observe reads both workloads, the configuration and the autoscaler from the cache.
func (d templated) Observe(ctx context.Context, c *flaggerv1.Canary, asks ...Ask) (Observation, error) {
	seen, err := d.look(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	d.memory.sweep(keyOf(c))
	if seen.primary != nil && !controlledBy(seen.primary, c) {
		seen.primary = nil // somebody else's, to which nobody may be sent; what makes the primary again takes it over or says whose it is
	}
	o := Observation{
		Reads:   d.Reads(c),
		Problem: seen.problem, SelectorLabel: seen.pair.label, SelectorValue: seen.pair.value,
		Configs: seen.shown(),
	}
	if d.Options.ConfigTracking {
		o.PeerConfigs = map[string]string{}
		for _, config := range seen.configs {
			o.PeerConfigs[config.Key()] = config.sums.peer
		}
	}
	primaryThreshold, canaryThreshold := thresholds(c)
	if seen.primary != nil {
		o.Primary = d.stateOf(seen.primary, primaryThreshold)
	}
	if seen.target == nil {
		return o, nil
	}
	o.Target = d.stateOf(seen.target, canaryThreshold)
	if d.Options.ConfigTracking {
		for _, source := range Sources(templateOf(seen.target)) {
			kind := corev1.SchemeGroupVersion.WithKind(source.Kind)
			o.Reads = append(o.Reads, Object{kind, source.Name}, Object{kind, source.Name + suffix})
		}
	}
	known, err := d.derive(c, seen)
	if err != nil {
		return Observation{}, err
	}
	o.Target.Revision, o.Target.PeerHash = known.revision, known.peerHash
	if known.sameTemplate {
		if o.Same, err = d.sameConfigs(ctx, c, seen); err != nil {
			return Observation{}, err
		}
	}
	if err := d.observeScaler(ctx, c, &o); err != nil {
		return Observation{}, err
	}
	if slices.Contains(asks, AskHistory) {
		if o.NewestTemplate, err = d.newestTemplate(ctx, c, seen.target); err != nil {
			return Observation{}, err
		}
	}
	return o, nil
}

// Reads are both workloads and both autoscalers.
func (d templated) Reads(c *flaggerv1.Canary) []Object {
	reads := []Object{{d.kind(), c.Spec.TargetRef.Name}, {d.kind(), c.Spec.TargetRef.Name + suffix}}
	if of, known := scalerOf(c); known {
		name := c.Spec.AutoscalerRef.Name
		reads = append(reads, Object{of.kind, name}, Object{of.kind, name + suffix})
	}
	return reads
}

// view is what both observing and acting begin with.
type view struct {
	problem         string
	target, primary *unstructured.Unstructured // nil when there is none
	pair            pair
	configs         []config
}

// look reads both workloads and the tracked configuration.
func (d templated) look(ctx context.Context, c *flaggerv1.Canary) (view, error) {
	var seen view
	var err error
	if seen.target, seen.primary, err = d.both(ctx, c); err != nil {
		return view{}, err
	}
	if seen.target == nil {
		seen.problem = d.missing(c)
		return seen, nil
	}
	if seen.pair, seen.problem = pairOf(seen.target, d.word(), d.Options.selectorLabels()); seen.problem != "" {
		return seen, nil
	}
	problem := ""
	if seen.configs, problem, err = d.configsOf(ctx, c, templateOf(seen.target)); err != nil {
		return view{}, err
	}
	problem = cmp.Or(d.form.problem(seen.target), problem)
	if problem != "" && seen.primary == nil {
		problem = d.creating() + problem
	}
	if problem == "" {
		problem = portProblem(c, d.kind().Kind, templateOf(seen.target))
	}
	seen.problem = problem
	return seen, nil
}

// both reads target and primary. Client shows neither older than our own last write: whoever decided on that would write
// the same again, or take a target that was just scaled up for one without pods.
func (d templated) both(ctx context.Context, c *flaggerv1.Canary) (target, primary *unstructured.Unstructured, err error) {
	if target, err = d.read(ctx, c, d.kind(), c.Spec.TargetRef.Name); err != nil {
		return nil, nil, err
	}
	if primary, err = d.read(ctx, c, d.kind(), c.Spec.TargetRef.Name+suffix); err != nil {
		return nil, nil, err
	}
	return target, primary, nil
}

func (v view) checksums() map[string]string {
	sums := make(map[string]string, len(v.configs))
	for _, config := range v.configs {
		sums[config.Key()] = config.sums.ours
	}
	return sums
}

// shown is what the status says of the configuration of a revision. Nothing is decided by it. Of a Secret it is the version, which
// says nothing about the content: whoever may read Canaries could otherwise test guesses of a password.
func (v view) shown() map[string]string {
	shown := make(map[string]string, len(v.configs))
	for _, config := range v.configs {
		shown[config.Key()] = config.sums.ours
		if config.Kind == secretKind {
			shown[config.Key()] = "resourceVersion " + config.sums.version
		}
	}
	return shown
}

// tracked are the keys of the configuration that has a copy.
func (v view) tracked() map[string]bool {
	keys := make(map[string]bool, len(v.configs))
	for _, config := range v.configs {
		keys[config.Key()] = true
	}
	return keys
}

// derived is what is reckoned from whole templates, which costs more than all the rest of an observation.
type derived struct {
	from               source
	revision, peerHash string
	sameTemplate       bool
}

// made is what a template is made of that is made of the target's now.
func (k derived) made() Made { return Made{Revision: k.revision, PeerHash: k.peerHash} }

// source is all that derived follows from. A generation is one spec of one object: every change of the spec, and
// nothing else, makes a new one.
type source struct {
	target, primary generation
	configs         string
	usable          bool
}

type generation struct {
	uid    types.UID
	number int64
}

func generationOf(obj *unstructured.Unstructured) generation {
	if obj == nil {
		return generation{}
	}
	return generation{obj.GetUID(), obj.GetGeneration()}
}

// derive is what follows from the templates, reckoned anew when one of them or the configuration has changed.
func (d templated) derive(c *flaggerv1.Canary, seen view) (derived, error) {
	from := source{generationOf(seen.target), generationOf(seen.primary), fmt.Sprint(seen.configs), seen.problem == ""}
	known := d.memory.derived(keyOf(c))
	if known.from == from {
		return known, nil
	}
	template := d.form.template(seen.target)
	revision, err := revisionOf(template, seen.checksums())
	if err != nil {
		return derived{}, err
	}
	known = derived{
		from: from, revision: revision, peerHash: peerhash.Of(d.form.hashed(template)),
		sameTemplate: seen.primary != nil && from.usable && d.sameTemplate(seen),
	}
	d.memory.derive(keyOf(c), known)
	return known, nil
}

// sameTemplate compares the primary's template with what the target's would make of it. One that Flagger made counts as
// the same by Flagger's rules: those differ from ours in what they rewrite, which is no change of the user's.
func (d templated) sameTemplate(seen view) bool {
	is := said(d.form.template(seen.primary))
	for _, by := range []rules{ourRules, d.form.names().peer} {
		shall := primaryTemplate(d.form.template(seen.target), seen.pair, seen.tracked(), idOf(is), by)
		if jsontree.Equal(is, said(shall)) {
			return true
		}
	}
	return false
}

// sameConfigs compares the copies of the configuration with their sources. A copy that a promotion replaced which did not
// come to the template is not what the primary runs: its pods read what is kept of it.
func (d templated) sameConfigs(ctx context.Context, c *flaggerv1.Canary, seen view) (bool, error) {
	id := idOf(templateOf(seen.primary))
	for _, config := range seen.configs {
		ref := ConfigRef{Kind: config.Kind, Name: config.Name + suffix}
		found, copied, err := d.sumsOf(ctx, c, ref)
		if err != nil {
			return false, err
		}
		if !found || copied.ours != config.sums.ours && !withoutBinary(copied, config.sums) {
			return false, nil
		}
		if ahead, err := d.aheadOf(ctx, c, ref, copied, id); ahead || err != nil {
			return false, err
		}
	}
	return true, nil
}

// withoutBinary is true for a copy by Flagger, which leaves binaryData out.
func withoutBinary(copied, source sums) bool {
	return source.binary && !copied.binary && copied.peer == source.peer
}

func thresholds(c *flaggerv1.Canary) (primary, canary int) {
	primary, canary = 100, 100
	analysis := c.Spec.Analysis
	if analysis == nil {
		analysis = c.Spec.CanaryAnalysis
	}
	if analysis == nil {
		return primary, canary
	}
	share := func(threshold *int) int { // what is beyond all pods is all pods, and the plan says so
		if threshold == nil {
			return 100
		}
		return min(max(*threshold, 0), 100)
	}
	return share(analysis.PrimaryReadyThreshold), share(analysis.CanaryReadyThreshold)
}

//nolint:gosec // the API has int32
func (d templated) stateOf(obj *unstructured.Unstructured, threshold int) State {
	is := d.form.counts(obj)
	return State{
		Found: true, UID: obj.GetUID(), ID: idOf(templateOf(obj)),
		Replicas: int32(d.form.asked(obj)),
		Total:    int32(is.total), Updated: int32(is.updated), Ready: int32(is.ready), Available: int32(is.available),
		Readiness: d.form.readiness(obj, threshold),
	}
}
