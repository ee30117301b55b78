package workload

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/jsontree"
	"github.com/serin-dev/serin/internal/workload/peerhash"
)

// Ask is something that Observe looks up only when it is asked to, because it costs a request.
type Ask int

// AskReplicaSets fills Observation.NewestReplicaSet: one live LIST.
const AskReplicaSets Ask = iota + 1

// Observation is what holds pods for a Canary, as it is.
type Observation struct {
	// Problem says why the target cannot be used at all; empty when it can. A person has to mend it.
	Problem string
	// SelectorLabel and SelectorValue tell the target's pods from others; the primary's have the value with -primary.
	SelectorLabel, SelectorValue string
	// Target and Primary are the two Deployments.
	Target, Primary State
	// Same is true when the primary runs what the target says: template and configuration are equal, names rewritten.
	Same bool
	// Configs are Serin's checksums (data and binaryData) of the tracked configuration, by configmap/NAME or
	// secret/NAME; PeerConfigs are Flagger's (data), nil when tracking is off.
	Configs, PeerConfigs map[string]string
	// Sources are all ConfigMaps and Secrets that the target's template names: those that are tracked, and those that may
	// become so (optional ones that are not there, ones that opt out). Empty when tracking is off.
	Sources []ConfigRef
	// NewestReplicaSet is when the target's newest ReplicaSet was made: when its template last became a new one. Zero
	// when there is none, and when it was not asked for.
	NewestReplicaSet time.Time
	// Scaling is true while an autoscaler still moves the target's replicas. Autoscalers of Kubernetes do not say so.
	Scaling bool
	// ScalerProblem says why the autoscaler that the Canary names cannot be used; empty when it can.
	ScalerProblem string
}

// State is one Deployment.
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

// Observe reads both Deployments, the configuration and the autoscaler from the cache.
func (d *Deployments) Observe(ctx context.Context, c *flaggerv1.Canary, asks ...Ask) (Observation, error) {
	seen, err := d.look(ctx, c)
	if err != nil {
		return Observation{}, err
	}
	d.memory.sweep(keyOf(c))
	o := Observation{
		Problem: seen.problem, SelectorLabel: seen.pair.label, SelectorValue: seen.pair.value,
		Configs: seen.checksums(),
	}
	if d.Options.ConfigTracking {
		o.PeerConfigs = map[string]string{}
		for _, config := range seen.configs {
			o.PeerConfigs[config.Key()] = config.sums.peer
		}
	}
	primaryThreshold, canaryThreshold := thresholds(c)
	if seen.primary != nil {
		o.Primary = stateOf(seen.primary, primaryThreshold)
	}
	if seen.target == nil {
		return o, nil
	}
	o.Target = stateOf(seen.target, canaryThreshold)
	if d.Options.ConfigTracking {
		o.Sources = Sources(templateOf(seen.target))
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
	if o.ScalerProblem, err = d.scalerProblem(ctx, c); err != nil {
		return Observation{}, err
	}
	if slices.Contains(asks, AskReplicaSets) {
		if o.NewestReplicaSet, err = d.newestReplicaSet(ctx, c, seen.target); err != nil {
			return Observation{}, err
		}
	}
	return o, nil
}

// Forget drops what is remembered of a Canary that is gone.
func (d *Deployments) Forget(key types.NamespacedName) { d.memory.forget(key) }

// view is what both observing and acting begin with.
type view struct {
	problem         string
	target, primary *unstructured.Unstructured // nil when there is none
	pair            pair
	configs         []config
}

// look reads both Deployments and the tracked configuration.
func (d *Deployments) look(ctx context.Context, c *flaggerv1.Canary) (view, error) {
	var seen view
	var err error
	if seen.target, seen.primary, err = d.both(ctx, c); err != nil {
		return view{}, err
	}
	if seen.target == nil {
		seen.problem = missing(c)
		return seen, nil
	}
	if seen.pair, seen.problem = pairOf(seen.target, d.Options.selectorLabels()); seen.problem != "" {
		return seen, nil
	}
	problem := ""
	if seen.configs, problem, err = d.configsOf(ctx, c, templateOf(seen.target)); err != nil {
		return view{}, err
	}
	if problem != "" && seen.primary == nil {
		problem = "createPrimaryDeployment failed: " + problem
	}
	if problem == "" {
		problem = portProblem(c, templateOf(seen.target))
	}
	seen.problem = problem
	return seen, nil
}

// both reads target and primary. Client shows neither older than our own last write: whoever decided on that would write
// the same again, or take a target that was just scaled up for one without pods.
func (d *Deployments) both(ctx context.Context, c *flaggerv1.Canary) (target, primary *unstructured.Unstructured, err error) {
	if target, err = d.read(ctx, c, deploymentKind, c.Spec.TargetRef.Name); err != nil {
		return nil, nil, err
	}
	if primary, err = d.read(ctx, c, deploymentKind, c.Spec.TargetRef.Name+suffix); err != nil {
		return nil, nil, err
	}
	return target, primary, nil
}

// missing is the problem of a Canary without its target.
func missing(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	// The cache names the kind where the API server names the resource; people know the latter.
	return fmt.Sprintf("deployment %s.%s get query error: %v", name, c.Namespace, apierrors.NewNotFound(deploymentsOfApps, name))
}

func (v view) checksums() map[string]string {
	sums := make(map[string]string, len(v.configs))
	for _, config := range v.configs {
		sums[config.Key()] = config.sums.ours
	}
	return sums
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
func (d *Deployments) derive(c *flaggerv1.Canary, seen view) (derived, error) {
	from := source{generationOf(seen.target), generationOf(seen.primary), fmt.Sprint(seen.configs), seen.problem == ""}
	known := d.memory.derived(keyOf(c))
	if known.from == from {
		return known, nil
	}
	revision, err := revisionOf(templateOf(seen.target), seen.checksums())
	if err != nil {
		return derived{}, err
	}
	known = derived{
		from: from, revision: revision, peerHash: peerhash.Of(templateOf(seen.target)),
		sameTemplate: seen.primary != nil && from.usable && sameTemplate(seen),
	}
	d.memory.derive(keyOf(c), known)
	return known, nil
}

// sameTemplate compares the primary's template with what the target's would make of it. One that Flagger made counts as
// the same by Flagger's rules: those differ from ours in what they rewrite, which is no change of the user's.
func sameTemplate(seen view) bool {
	is := said(templateOf(seen.primary))
	for _, by := range []rules{ourRules, peerRules} {
		shall := primaryTemplate(templateOf(seen.target), seen.pair, seen.tracked(), idOf(is), by)
		if jsontree.Equal(is, said(shall)) {
			return true
		}
	}
	return false
}

// sameConfigs compares the copies of the configuration with their sources.
func (d *Deployments) sameConfigs(ctx context.Context, c *flaggerv1.Canary, seen view) (bool, error) {
	for _, config := range seen.configs {
		found, copied, err := d.sumsOf(ctx, c, ConfigRef{Kind: config.Kind, Name: config.Name + suffix})
		if err != nil {
			return false, err
		}
		if !found || copied.ours != config.sums.ours && !withoutBinary(copied, config.sums) {
			return false, nil
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
	if analysis.PrimaryReadyThreshold != nil {
		primary = *analysis.PrimaryReadyThreshold
	}
	if analysis.CanaryReadyThreshold != nil {
		canary = *analysis.CanaryReadyThreshold
	}
	return primary, canary
}

func stateOf(obj *unstructured.Unstructured, threshold int) State {
	count := func(field string) int32 { return int32(integer(obj.Object, 0, "status", field)) } //nolint:gosec // the API has int32
	return State{
		Found: true, UID: obj.GetUID(), ID: idOf(templateOf(obj)),
		Replicas: int32(integer(obj.Object, 1, "spec", "replicas")), //nolint:gosec // the API has int32
		Total:    count("replicas"), Updated: count("updatedReplicas"), Ready: count("readyReplicas"), Available: count("availableReplicas"),
		Readiness: DeploymentReadiness(obj, threshold),
	}
}

// newestReplicaSet is when the newest ReplicaSet of a Deployment was made.
func (d *Deployments) newestReplicaSet(ctx context.Context, c *flaggerv1.Canary, obj *unstructured.Unstructured) (time.Time, error) {
	selector, err := selectorOf(obj)
	if err != nil {
		return time.Time{}, err
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(replicaSetKind.GroupVersion().WithKind(replicaSetKind.Kind + "List"))
	if err := d.Reader.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return time.Time{}, fmt.Errorf("list ReplicaSets of Deployment %s.%s: %w", obj.GetName(), c.Namespace, err)
	}
	var newest time.Time
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], obj) && list.Items[i].CreationTimestamp.After(newest) {
			newest = list.Items[i].CreationTimestamp.Time
		}
	}
	return newest, nil
}

// selectorOf is the whole selector of a workload.
func selectorOf(obj *unstructured.Unstructured) (labels.Selector, error) {
	fields, _, _ := unstructured.NestedMap(obj.Object, "spec", "selector")
	selector := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, selector); err != nil {
		return nil, fmt.Errorf("read the selector of Deployment %s.%s: %w", obj.GetName(), obj.GetNamespace(), err)
	}
	return metav1.LabelSelectorAsSelector(selector)
}
