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
	"github.com/serin-dev/serin/internal/workload/flaggerhash"
)

// ObserveOption is an optional part of an observation, which costs a request.
type ObserveOption int

// WithHistory sets Observation.NewestTemplate, with one live LIST.
const WithHistory ObserveOption = iota + 1

// Observation is the observed state of the workloads of a Canary.
type Observation struct {
	// Problem is the reason why the target cannot be used at all; empty means that it can. The user must fix it.
	Problem string
	// SelectorLabel and SelectorValue select the target's pods; the value for the primary's pods has the suffix -primary.
	SelectorLabel, SelectorValue string
	// Target and Primary are the two workloads.
	Target, Primary State
	// Images are the images of the target's containers, in their order; none if it has no pod template.
	Images []string
	// PrimaryUpToDate is true when the primary runs the target's template and configuration, with names rewritten.
	PrimaryUpToDate bool
	// ApexSelectsTarget is true when the Service that clients call selects pods of the target.
	ApexSelectsTarget bool
	// ApexSelectsPrimary is true when that Service selects pods of the primary.
	ApexSelectsPrimary bool
	// ServicesSelectOther is true when the Service of the primary selects pods of another workload.
	ServicesSelectOther bool
	// CanaryServiceSelectsOther is true when the Canary is being deleted and the Service of the canary selects pods of another workload.
	CanaryServiceSelectsOther bool
	// Configs are Serin's checksums (data and binaryData) of the tracked configuration, by configmap/NAME or
	// secret/NAME; FlaggerConfigs are Flagger's (data), nil when tracking is off.
	Configs, FlaggerConfigs map[string]string
	// Dependencies are all objects whose change may change the observation, whether they exist or not: those of
	// Workload.Dependencies, and those that the target refers to (with tracking, every ConfigMap and Secret with a present or
	// future copy).
	Dependencies []Object
	// NewestTemplate is the last time at which the target got a template that it never had before. It is zero if the history does
	// not contain it, or without WithHistory.
	NewestTemplate time.Time
	// ScalerProblem is the reason why the autoscaler of the Canary cannot be used; empty means that it can.
	ScalerProblem string
	// TargetLimit is the maximum of the autoscaler of the target, in pods; 0: there is none.
	TargetLimit int32
	// PortWarning is a message about a target port that no container declares; empty: one does, or none declares any port. Declared
	// ports are only documentation to Kubernetes, so the Service may work.
	PortWarning string
	// Read are the workloads as they were read, without those that do not exist. They must not be modified.
	Read []*unstructured.Unstructured
	// KindNotInstalled is true if a kind is not installed: no watch reports its installation.
	KindNotInstalled bool
}

// State is one workload.
type State struct {
	// Found is false if the workload does not exist; all other fields are zero then.
	Found bool
	UID   types.UID
	// Revision is Serin's hash of the target's template and configuration: s1- and 32 hexadecimal digits. Empty for the primary,
	// whose template contains other names.
	Revision string
	// FlaggerHash is Flagger 1.44's hash of the target's template. Empty for the primary. No decision depends on it.
	FlaggerHash string
	// PromotionID is the annotation flagger-id of the pod template.
	PromotionID string
	// Replicas is the desired number of pods; the others are the counts in the status.
	Replicas                         int32
	Total, Updated, Ready, Available int32
	// Readiness is evaluated with the Canary's threshold for this workload.
	Readiness Readiness
}

// templateWorkload is the Workload for targets that have a pod template.
type templateWorkload struct {
	targetPair
	configCopies
	podScaling
	podServices
}

func newTemplateWorkload(w *Workloads, kind templateKind) templateWorkload {
	pair := targetPair{w, kind}
	return templateWorkload{pair, configCopies{pair}, podScaling{pair}, podServices{pair}}
}

var _ Workload = templateWorkload{}

// Observe reads both workloads, the configuration and the autoscaler from the cache.
func (d templateWorkload) Observe(ctx context.Context, c *flaggerv1.Canary, asks ...ObserveOption) (Observation, error) {
	seen, err := d.readWorkloads(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	d.cache.dropUnused(objectKey(c))
	read := slices.DeleteFunc([]*unstructured.Unstructured{seen.target, seen.primary}, func(o *unstructured.Unstructured) bool { return o == nil })
	if seen.primary != nil && !controlledBy(seen.primary, c) {
		seen.primary = nil // it has another owner and must not receive traffic; EnsurePrimary adopts it or reports the owner
	}
	o := Observation{
		Dependencies: d.Dependencies(c), Read: read,
		Problem: seen.problem, SelectorLabel: seen.selectorPair.label, SelectorValue: seen.selectorPair.value,
		Configs: seen.displayedChecksums(),
	}
	if d.Options.ConfigTracking {
		o.FlaggerConfigs = map[string]string{}
		for _, config := range seen.configs {
			o.FlaggerConfigs[config.Key()] = config.checksums.flaggerSum
		}
	}
	primaryThreshold, canaryThreshold := readinessThresholds(c)
	if seen.primary != nil {
		o.Primary = d.workloadState(seen.primary, primaryThreshold)
		if o.ApexSelectsPrimary, err = d.apexSelects(ctx, c, seen.primary); err != nil {
			return Observation{}, err
		}
	}
	if seen.target == nil {
		return o, nil
	}
	o.Target, o.Images = d.workloadState(seen.target, canaryThreshold), imagesOf(podTemplate(seen.target))
	if o.ApexSelectsTarget, err = d.apexSelects(ctx, c, seen.target); err != nil {
		return Observation{}, err
	}
	if o.ServicesSelectOther, err = d.primaryServiceSelectsOther(ctx, c, seen.selectorPair, seen.target); err != nil {
		return Observation{}, err
	}
	if c.DeletionTimestamp != nil {
		if o.CanaryServiceSelectsOther, err = d.canaryServiceSelectsOther(ctx, c, seen.target); err != nil {
			return Observation{}, err
		}
	}
	if d.Options.ConfigTracking {
		for _, source := range ListConfigRefs(podTemplate(seen.target)) {
			kind := corev1.SchemeGroupVersion.WithKind(source.Kind)
			o.Dependencies = append(o.Dependencies, Object{kind, source.Name}, Object{kind, source.Name + primarySuffix})
		}
	}
	o.PortWarning = portWarning(c, podTemplate(seen.target))
	known, err := d.deriveState(c, seen)
	if err != nil {
		return Observation{}, err
	}
	o.Target.Revision, o.Target.FlaggerHash = known.revision, known.flaggerHash
	if known.sameTemplate {
		if o.PrimaryUpToDate, err = d.sameConfigs(ctx, c, seen); err != nil {
			return Observation{}, err
		}
	}
	if err := d.observeScaler(ctx, c, &o); err != nil {
		return Observation{}, err
	}
	if slices.Contains(asks, WithHistory) {
		if o.NewestTemplate, err = d.newestTemplateTime(ctx, c, seen.target); err != nil {
			return Observation{}, err
		}
	}
	return o, nil
}

// Dependencies returns both workloads and both autoscalers.
func (d templateWorkload) Dependencies(c *flaggerv1.Canary) []Object {
	reads := []Object{{d.kind(), c.Spec.TargetRef.Name}, {d.kind(), c.Spec.TargetRef.Name + primarySuffix}}
	if scaler, known := scalerOf(c); known {
		name := c.Spec.AutoscalerRef.Name
		reads = append(reads, Object{scaler.kind, name}, Object{scaler.kind, name + primarySuffix})
	}
	return reads
}

// workloadView is the state that both observing and acting start from.
type workloadView struct {
	problem         string
	target, primary *unstructured.Unstructured // nil if they do not exist
	selectorPair    selectorPair
	configs         []configSource
}

// readWorkloads reads both workloads and the tracked configuration.
func (d templateWorkload) readWorkloads(ctx context.Context, c *flaggerv1.Canary) (workloadView, error) {
	var seen workloadView
	var err error
	if seen.target, seen.primary, err = d.targetAndPrimary(ctx, c); err != nil {
		return workloadView{}, err
	}
	if seen.target == nil {
		seen.problem = d.missingTargetProblem(c)
		return seen, nil
	}
	if seen.selectorPair, seen.problem = findSelectorPair(seen.target, d.displayName(), d.Options.selectorLabels()); seen.problem != "" {
		return seen, nil
	}
	problem := ""
	if seen.configs, problem, err = d.readConfigs(ctx, c, podTemplate(seen.target)); err != nil {
		return workloadView{}, err
	}
	problem = cmp.Or(d.templateKind.problem(seen.target), problem)
	if problem != "" && seen.primary == nil {
		problem = d.creationErrorPrefix() + problem
	}
	if problem == "" {
		problem = portProblem(c, d.kind().Kind, podTemplate(seen.target))
	}
	seen.problem = problem
	return seen, nil
}

func (v workloadView) configChecksums() map[string]string {
	sums := make(map[string]string, len(v.configs))
	for _, config := range v.configs {
		sums[config.Key()] = config.checksums.serinSum
	}
	return sums
}

// displayedChecksums returns the configuration of a revision for the status. No decision depends on it. For a Secret it is the
// resourceVersion, which reveals nothing of the content: with a checksum, a user who may read Canaries could verify guesses of
// a password.
func (v workloadView) displayedChecksums() map[string]string {
	shown := make(map[string]string, len(v.configs))
	for _, config := range v.configs {
		shown[config.Key()] = config.checksums.serinSum
		if config.Kind == secretKind {
			shown[config.Key()] = "resourceVersion " + config.checksums.version
		}
	}
	return shown
}

// trackedConfigKeys returns the keys of the configuration that has a copy.
func (v workloadView) trackedConfigKeys() map[string]bool {
	keys := make(map[string]bool, len(v.configs))
	for _, config := range v.configs {
		keys[config.Key()] = true
	}
	return keys
}

// derivedState is computed from whole templates, which costs more than the rest of an observation.
type derivedState struct {
	inputs                derivationInputs
	revision, flaggerHash string
	sameTemplate          bool
}

// templateSource returns the source of a template that is copied from the current target.
func (k derivedState) templateSource() TemplateSource {
	return TemplateSource{Revision: k.revision, FlaggerHash: k.flaggerHash}
}

// derivationInputs are all inputs of derivedState. A generation identifies one spec of one object: every change of the spec, and
// nothing else, increments it.
type derivationInputs struct {
	target, primary objectGeneration
	configs         string
	isUsable        bool
}

type objectGeneration struct {
	uid    types.UID
	number int64
}

func generationOf(obj *unstructured.Unstructured) objectGeneration {
	if obj == nil {
		return objectGeneration{}
	}
	return objectGeneration{obj.GetUID(), obj.GetGeneration()}
}

// deriveState returns the state derived from the templates, and computes it only when one of them or the configuration has
// changed.
func (d templateWorkload) deriveState(c *flaggerv1.Canary, seen workloadView) (derivedState, error) {
	inputs := derivationInputs{generationOf(seen.target), generationOf(seen.primary), fmt.Sprint(seen.configs), seen.problem == ""}
	known := d.cache.lastDerived(objectKey(c))
	if known.inputs == inputs {
		return known, nil
	}
	template := d.templateKind.template(seen.target)
	revision, err := workloadRevision(template, seen.configChecksums())
	if err != nil {
		return derivedState{}, err
	}
	known = derivedState{
		inputs: inputs, revision: revision, flaggerHash: flaggerhash.HashTemplate(d.templateKind.templateForFlaggerHash(template)),
		sameTemplate: seen.primary != nil && inputs.isUsable && d.sameTemplate(seen),
	}
	d.cache.storeDerived(objectKey(c), known)
	return known, nil
}

// sameTemplate compares the primary's template with the copy of the target's. A template that Flagger wrote is compared by
// Flagger's rules: they rewrite other names than Serin's, which is not a change by the user.
func (d templateWorkload) sameTemplate(seen workloadView) bool {
	actual := withoutDefaults(d.templateKind.template(seen.primary))
	for _, rules := range []rewriteRules{serinRules, d.templateKind.kindNames().flaggerRules} {
		desired := primaryTemplate(d.templateKind.template(seen.target), seen.selectorPair, seen.trackedConfigKeys(), promotionID(actual), rules)
		if jsontree.Equal(actual, withoutDefaults(desired)) {
			return true
		}
	}
	return false
}

// sameConfigs compares the copies of the configuration with their sources. If a promotion replaced a copy but never changed the
// template, the copies do not count as the same: the primary's configuration is the stored previous content.
func (d templateWorkload) sameConfigs(ctx context.Context, c *flaggerv1.Canary, seen workloadView) (bool, error) {
	id := promotionID(podTemplate(seen.primary))
	for _, config := range seen.configs {
		ref := ConfigRef{Kind: config.Kind, Name: config.Name + primarySuffix}
		found, copied, err := d.readChecksums(ctx, c, ref)
		if err != nil {
			return false, err
		}
		if !found || copied.serinSum != config.checksums.serinSum && !isFlaggerCopy(copied, config.checksums) {
			return false, nil
		}
		if ahead, err := d.isCopyAheadOf(ctx, c, ref, copied, id); ahead || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isFlaggerCopy reports whether a copy without binaryData was created by Flagger, which omits it.
func isFlaggerCopy(copied, source checksums) bool {
	return source.hasBinaryData && !copied.hasBinaryData && copied.flaggerSum == source.flaggerSum
}

func readinessThresholds(c *flaggerv1.Canary) (primary, canary int) {
	primary, canary = 100, 100
	analysis := c.Spec.EffectiveAnalysis()
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
func (d templateWorkload) workloadState(obj *unstructured.Unstructured, threshold int) State {
	pods := d.templateKind.podCounts(obj)
	return State{
		Found: true, UID: obj.GetUID(), PromotionID: promotionID(podTemplate(obj)),
		Replicas: int32(d.templateKind.desiredReplicas(obj)),
		Total:    int32(pods.total), Updated: int32(pods.updated), Ready: int32(pods.ready), Available: int32(pods.available),
		Readiness: d.templateKind.readiness(obj, threshold),
	}
}
