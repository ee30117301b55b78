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

// Ask is an optional part of an observation, which costs a request.
type Ask int

// AskHistory sets Observation.NewestTemplate, with one live LIST.
const AskHistory Ask = iota + 1

// Observation is the observed state of the workloads of a Canary.
type Observation struct {
	// Problem is why the target cannot be used at all; empty when it can. The user must fix it.
	Problem string
	// SelectorLabel and SelectorValue select the target's pods; the value for the primary's has the suffix -primary.
	SelectorLabel, SelectorValue string
	// Target and Primary are the two workloads.
	Target, Primary State
	// Same is true when the primary runs the target's template and configuration, with names rewritten.
	Same bool
	// Configs are Serin's checksums (data and binaryData) of the tracked configuration, by configmap/NAME or
	// secret/NAME; PeerConfigs are Flagger's (data), nil when tracking is off.
	Configs, PeerConfigs map[string]string
	// Reads are all objects whose change may change the observation, whether they exist or not: those of Kind.Reads,
	// and those that the target refers to (with tracking, every ConfigMap and Secret that has a copy or may get one).
	Reads []Object
	// NewestTemplate is when the target last got a template that it never had before. Zero if its history does not
	// contain it, or if it was not requested.
	NewestTemplate time.Time
	// ScalerProblem is why the autoscaler of the Canary cannot be used; empty when it can.
	ScalerProblem string
	// NotInstalled is true when a problem is a kind that is not installed: no watch reports its installation.
	NotInstalled bool
}

// State is one workload.
type State struct {
	// Found is false when the workload does not exist; all other fields are zero then.
	Found bool
	UID   types.UID
	// Revision is Serin's hash of what the target runs: s1- and 32 hexadecimal digits. Empty for the primary, whose
	// template contains other names.
	Revision string
	// PeerHash is Flagger 1.44's hash of the target's template. Empty for the primary. No decision depends on it.
	PeerHash string
	// ID is the annotation flagger-id of the pod template.
	ID string
	// Replicas is the desired number; Kubernetes counts the others.
	Replicas                         int32
	Total, Updated, Ready, Available int32
	// Readiness is evaluated with the Canary's threshold for this workload.
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
		seen.primary = nil // another owner's: it must not receive traffic; recreating the primary adopts it or reports the owner
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

// Reads returns both workloads and both autoscalers.
func (d templated) Reads(c *flaggerv1.Canary) []Object {
	reads := []Object{{d.kind(), c.Spec.TargetRef.Name}, {d.kind(), c.Spec.TargetRef.Name + suffix}}
	if of, known := scalerOf(c); known {
		name := c.Spec.AutoscalerRef.Name
		reads = append(reads, Object{of.kind, name}, Object{of.kind, name + suffix})
	}
	return reads
}

// view is the state that both observing and acting start from.
type view struct {
	problem         string
	target, primary *unstructured.Unstructured // nil if they do not exist
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

// both reads target and primary. Client returns neither older than our own last write: a decision on an older one would
// repeat that write, or treat a target that was just scaled up as one without pods.
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

// shown returns the configuration of a revision for the status. No decision depends on it. For a Secret it is the
// version, which reveals nothing of the content: a user who may read Canaries could otherwise verify guesses of a
// password.
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

// tracked returns the keys of the configuration that has a copy.
func (v view) tracked() map[string]bool {
	keys := make(map[string]bool, len(v.configs))
	for _, config := range v.configs {
		keys[config.Key()] = true
	}
	return keys
}

// derived is computed from whole templates, which costs more than the rest of an observation.
type derived struct {
	from               source
	revision, peerHash string
	sameTemplate       bool
}

// made returns the source of a template that is copied from the target now.
func (k derived) made() Made { return Made{Revision: k.revision, PeerHash: k.peerHash} }

// source contains all inputs of derived. A generation identifies one spec of one object: every change of the spec, and
// nothing else, increments it.
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

// derive returns the state derived from the templates, and computes it only when one of them or the configuration has
// changed.
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

// sameTemplate compares the primary's template with the one that the target's would be copied to. A template that
// Flagger wrote is compared by Flagger's rules: they rewrite other names than ours, which is not a change by the user.
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

// sameConfigs compares the copies of the configuration with their sources. A copy that was replaced by a promotion
// which never changed the template is not what the primary runs: its pods read the stored previous content.
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

// withoutBinary reports whether Flagger created the copy, which omits binaryData.
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
	share := func(threshold *int) int { // the plan reports a threshold above 100 percent
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
