package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/queue"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/watching"
	"github.com/serin-dev/serin/internal/workload"
)

// finalizer is Flagger's finalizer.
const finalizer = "finalizer.flagger.app"

// Observer creates snapshots. It reads caches. The CLI uses it too, with the permissions of the user.
type Observer struct {
	Client    client.Client
	Workloads Workloads
	Routers   traffic.Registry
	Applier   *traffic.Applier
	Settings  canary.Settings
	// MetricTypes are the provider types that templates may have; nil: unknown, so none is refused.
	MetricTypes []string
	// Indexed is true if Client has the index of IndexTargets.
	Indexed bool
	// FindConflict returns a message if something other than a Canary releases the target of a Canary; empty: nothing does. A nil function:
	// nothing can.
	FindConflict func(ctx context.Context, c *flaggerv1.Canary) (string, error)
	// Queue is the queue of releases beyond the maximum number in progress; nil: there is no maximum. Add registers the Canaries of
	// the process.
	Queue *queue.Queue
	// OtherController detects another controller that acts on the same objects; nil: snapshots assume that there is none.
	OtherController *watching.OtherController
	// EndpointsUnread is the reason why endpoints cannot be read; empty: they can.
	EndpointsUnread string
}

// Workloads finds the workload of a Canary.
type Workloads interface {
	// ForCanary returns the workload that a Canary targets; nil if its kind is not supported.
	ForCanary(c *flaggerv1.Canary) workload.Workload
	// ScalesTarget reports whether the autoscaler in the spec of a Canary scales its target.
	ScalesTarget(ctx context.Context, c *flaggerv1.Canary) (bool, error)
	// Forget drops the cached data of a deleted Canary.
	Forget(key types.NamespacedName)
	// CachedKeys returns the Canaries with cached data.
	CachedKeys() []types.NamespacedName
}

// byTarget is the index of Canaries by their target.
const byTarget = "spec.targetRef"

// IndexTargets adds the index with which caches find the Canaries of one target.
func IndexTargets(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &flaggerv1.Canary{}, byTarget, func(object client.Object) []string {
		if c, ok := object.(*flaggerv1.Canary); ok {
			return targetKeys(c)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Canaries by target: %w", err)
	}
	return nil
}

// canaryKind is the kind of Canaries.
var canaryKind = flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind).GroupKind()

func targetKey(c *flaggerv1.Canary) string {
	ref := c.Spec.TargetRef
	if ref.Knative() {
		return flaggerv1.KnativeGroup + "/" + ref.Name // its kind, Service, is ambiguous
	}
	return ref.Kind + "/" + ref.Name
}

// targetKeys are the keys of the target in the spec of a Canary and, if its release or its deletion is about another one, of that
// target. Until it has ended, another Canary must not release that target.
func targetKeys(c *flaggerv1.Canary) []string {
	keys := []string{targetKey(c)}
	if used, next := withUsedTarget(c); next != "" {
		keys = append(keys, targetKey(used))
	}
	return keys
}

// withUsedTarget is WithFormerTarget for a Canary as the API server stores it.
func withUsedTarget(c *flaggerv1.Canary) (used *flaggerv1.Canary, next string) {
	decoded := *c // the object may be that of the cache
	decoded.Status = flaggerv1.DecodeState(c.Status)
	return canary.WithFormerTarget(&decoded)
}

// withTarget returns a Canary with that one of its targets.
func withTarget(c *flaggerv1.Canary, key string) *flaggerv1.Canary {
	if targetKey(c) == key {
		return c
	}
	used, _ := withUsedTarget(c)
	return used
}

// observation is an observed Canary: the object, its dependencies and the snapshot.
type observation struct {
	object                  *flaggerv1.Canary      // with its decoded status
	stored                  flaggerv1.CanaryStatus // as the API server stores it
	snapshot                canary.Snapshot
	renderer                traffic.Renderer
	target                  traffic.Target
	versions                traffic.Versions             // of the objects of the route, as they were read
	workloadsRead           []*unstructured.Unstructured // the workloads that exist
	selector, selectorValue string
	dependencies            []watching.Object
	// workloads and routes are the kinds of the objects that were read, which have to be watched.
	workloads, routes []schema.GroupVersionKind
	// needsRetry is true if no watch notifies of the expected change, for example of a permission or a CustomResourceDefinition.
	needsRetry bool
	// warnings are about objects that the Canary refers to; they do not block it.
	warnings []release.Event
	// unreported is the parent of the route about which no router has reported; nil: there is none.
	unreported *traffic.UnreportedParent
	// podsDue is the time at which the pods of an unready workload have to be listed again; zero: never.
	podsDue time.Time
	// otherControllerDue is the time at which another controller that acts on the Canary has to be detected again; zero: never.
	otherControllerDue time.Time
}

// observedVersions returns the versions of the objects that change most often: the Canary, the workloads and the route.
func (s *observation) observedVersions() []watching.ObjectVersion {
	out := []watching.ObjectVersion{watching.VersionOf(canaryKind, s.object)}
	for _, object := range s.workloadsRead {
		out = append(out, watching.VersionOf(object.GroupVersionKind().GroupKind(), object))
	}
	for id, version := range s.versions.All() {
		out = append(out, watching.ObjectVersion{Object: watching.Object{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}, Version: version})
	}
	return out
}

// queryKey is the key of the Canary in the query runner.
func (s *observation) queryKey() queryrunner.Key {
	return queryrunner.Key{NamespacedName: client.ObjectKeyFromObject(s.object), UID: s.object.UID}
}

// Snapshot returns the current snapshot of a Canary, without answers.
func (o *Observer) Snapshot(ctx context.Context, object *flaggerv1.Canary, now time.Time) (canary.Snapshot, error) {
	other, err := actingController(ctx, o.OtherController, object.Namespace, now)
	if err != nil {
		return canary.Snapshot{}, err
	}
	s, err := o.observe(ctx, object, now, other)
	if err != nil {
		return canary.Snapshot{}, err
	}
	if s.unreported != nil {
		s.snapshot.Route.Unreported.Message = o.Applier.DescribeUnreported(ctx, *s.unreported)
	}
	return s.snapshot, nil
}

// observe reads everything that a Canary depends on. other is another controller that acts on it.
func (o *Observer) observe(ctx context.Context, object *flaggerv1.Canary, now time.Time, other canary.OtherController) (*observation, error) {
	object, nextTarget := canary.WithFormerTarget(object)
	if nextTarget != "" {
		scaled, err := o.Workloads.ScalesTarget(ctx, object)
		if err != nil {
			return nil, fmt.Errorf("find the autoscaler of %s %s: %w", object.Spec.TargetRef.Kind, object.Spec.TargetRef.Name, err)
		}
		if !scaled {
			object.Spec.AutoscalerRef = nil // it is that of the next target
		}
	}
	settings := o.Settings
	settings.Features = func(provider string) canary.Features { return Features(o.Routers, object, provider) }
	plan := canary.NewPlan(object, settings)
	s := &observation{object: object}
	s.snapshot = canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Plan: plan, Status: *object.Status.DeepCopy(),
		Deleting: object.DeletionTimestamp != nil, Finalizer: slices.Contains(object.Finalizers, finalizer),
		Command: object.Annotations[canary.CommandAnnotation], CommandBy: canary.CommandBy(object.Annotations), NextTarget: nextTarget, OtherController: other,
	}
	s.dependencies = o.initialDependencies(object)
	if other.Acts() && !canary.IsOwnRelease(object.Status) {
		return s, nil // nothing else matters until it is gone
	}
	if err := o.findTargetConflict(ctx, s); err != nil {
		return nil, err
	}
	target := o.Workloads.ForCanary(object)
	if target == nil {
		return s, nil // the plan has a validation error
	}
	var options []workload.ObserveOption
	blocked := s.snapshot.TargetConflict != "" // observed again at intervals, which must not cause requests
	if !blocked && !object.Status.LastTransitionTime.IsZero() && (object.Status.Serin == nil || object.Status.Serin.Revision == "") && object.Status.LastAppliedSpec != "" {
		options = append(options, workload.WithHistory) // a status that another controller wrote
	}
	observed, err := target.Observe(ctx, object, options...)
	if err != nil {
		return nil, fmt.Errorf("observe %s %s: %w", object.Spec.TargetRef.Kind, object.Spec.TargetRef.Name, err)
	}
	s.snapshot.Workload, s.workloadsRead = workloadOf(observed), observed.Read
	s.selector, s.selectorValue, s.needsRetry = observed.SelectorLabel, observed.SelectorValue, s.needsRetry || observed.KindNotInstalled
	for _, read := range observed.Dependencies {
		s.dependencies = append(s.dependencies, watching.Object{Kind: read.Kind.GroupKind(), Namespace: object.Namespace, Name: read.Name})
		s.workloads = appendKind(s.workloads, read.Kind)
	}
	if err := o.readEndpoints(ctx, s); err != nil {
		return nil, err
	}
	if err := o.readRoute(ctx, s); err != nil {
		return nil, err
	}
	if err := o.findMissingReferences(ctx, s); err != nil {
		return nil, err
	}
	if err := o.findMissingAlertProviders(ctx, s); err != nil {
		return nil, err
	}
	s.warnings = append(s.warnings, hookLimitWarnings(object)...)
	s.snapshot.Queue, err = o.queueState(ctx, s)
	return s, err
}

func appendKind(kinds []schema.GroupVersionKind, kind schema.GroupVersionKind) []schema.GroupVersionKind {
	if slices.Contains(kinds, kind) {
		return kinds
	}
	return append(kinds, kind)
}

// initialDependencies are the objects whose changes requeue this Canary, whether they exist or not. Those of its workload and its
// route are added when they are known.
func (o *Observer) initialDependencies(c *flaggerv1.Canary) []watching.Object {
	apex := c.Spec.ApexName()
	var dependencies []watching.Object
	for _, name := range []string{apex, apex + "-primary", apex + "-canary"} {
		dependencies = append(dependencies, watching.Object{Kind: schema.GroupKind{Kind: "Service"}, Namespace: c.Namespace, Name: name})
		if name != apex || readsApexEndpoints(c.Status.Phase) {
			dependencies = append(dependencies, endpoints.Of(c.Namespace, name))
		}
	}
	for _, key := range templateKeys(c) {
		dependencies = append(dependencies, watching.Object{Kind: schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.MetricTemplateKind}, Namespace: key.Namespace, Name: key.Name})
	}
	for _, alert := range analysisOf(c).Alerts {
		key := referenceKey(c.Namespace, alert.ProviderRef)
		dependencies = append(dependencies, watching.Object{Kind: schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.AlertProviderKind}, Namespace: key.Namespace, Name: key.Name})
	}
	return dependencies
}

// templateKeys are the metric templates that a Canary refers to.
func templateKeys(c *flaggerv1.Canary) []types.NamespacedName {
	var out []types.NamespacedName
	for _, metric := range analysisOf(c).Metrics {
		if ref := metric.TemplateRef; ref != nil {
			out = append(out, referenceKey(c.Namespace, *ref))
		}
	}
	return out
}

func referenceKey(namespace string, ref flaggerv1.CrossNamespaceObjectReference) types.NamespacedName {
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	return types.NamespacedName{Namespace: namespace, Name: ref.Name}
}

// canariesOfTarget are the Canaries with a target.
func (o *Observer) canariesOfTarget(ctx context.Context, namespace, key string) ([]flaggerv1.Canary, error) {
	var all flaggerv1.CanaryList
	options := []client.ListOption{client.InNamespace(namespace)}
	if o.Indexed {
		// The objects are not modified: neither copies nor our own latest writes are needed.
		options = append(options, client.MatchingFields{byTarget: key}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	}
	if err := o.Client.List(ctx, &all, options...); err != nil {
		return nil, fmt.Errorf("list the Canaries of %s: %w", namespace, err)
	}
	return slices.DeleteFunc(all.Items, func(other flaggerv1.Canary) bool { return !slices.Contains(targetKeys(&other), key) }), nil
}

// findTargetConflict sets the target conflict if another Canary releases the target.
func (o *Observer) findTargetConflict(ctx context.Context, s *observation) error {
	others, err := o.canariesOfTarget(ctx, s.object.Namespace, targetKey(s.object))
	if err != nil {
		return err
	}
	releasing, err := o.releasingCanary(ctx, s.object, others)
	if err != nil {
		return err
	}
	if releasing.UID != s.object.UID {
		s.snapshot.TargetConflict = fmt.Sprintf("Canary %s already releases %s %s, so %s does nothing: delete one of the two, or point it at another target",
			releasing.Name, s.object.Spec.TargetRef.Kind, s.object.Spec.TargetRef.Name, s.object.Name)
		s.needsRetry = true // the watch of Canaries requeues nothing if it cannot list those with the same target
		return nil
	}
	if o.FindConflict == nil {
		return nil
	}
	s.snapshot.TargetConflict, err = o.FindConflict(ctx, s.object)
	s.needsRetry = s.needsRetry || s.snapshot.TargetConflict != "" // no watch of this controller notifies of the deletion of the other
	return err
}

// CanariesTargeting returns the Canaries whose target is that workload, with that target. The reader needs the index of IndexTargets.
func CanariesTargeting(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]flaggerv1.Canary, error) {
	var all flaggerv1.CanaryList
	err := reader.List(ctx, &all, client.InNamespace(namespace), client.MatchingFields{byTarget: kind + "/" + name},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	if err != nil {
		return nil, fmt.Errorf("list the Canaries of %s %s.%s: %w", kind, name, namespace, err)
	}
	for i := range all.Items {
		all.Items[i] = *withTarget(&all.Items[i], kind+"/"+name)
	}
	return all.Items, nil
}

// releasingCanary returns the Canary that releases the target of a Canary. others are the Canaries with the same target. Nothing is
// read unless there are several.
func (o *Observer) releasingCanary(ctx context.Context, c *flaggerv1.Canary, others []flaggerv1.Canary) (*flaggerv1.Canary, error) {
	candidates := []targetCandidate{{canary: c}}
	for i := range others {
		if others[i].UID != c.UID {
			candidates = append(candidates, targetCandidate{canary: withTarget(&others[i], targetKey(c))})
		}
	}
	if len(candidates) == 1 {
		return c, nil
	}
	for i := range candidates {
		target := o.Workloads.ForCanary(candidates[i].canary)
		if target == nil {
			continue
		}
		var err error
		if candidates[i].owned, err = target.Ownership(ctx, candidates[i].canary); err != nil {
			return nil, fmt.Errorf("find the Canary that releases %s %s: %w", c.Spec.TargetRef.Kind, c.Spec.TargetRef.Name, err)
		}
	}
	releasing := candidates[0]
	for _, other := range candidates[1:] {
		if other.precedes(releasing) {
			releasing = other
		}
	}
	return releasing.canary, nil
}

// targetCandidate is one of several Canaries with the same target.
type targetCandidate struct {
	canary *flaggerv1.Canary
	owned  workload.Ownership
}

// precedes reports whether a releases the target rather than b: the owner of the primary does, otherwise the owner of a Service,
// otherwise the older one. Age alone is not sufficient: of two Canaries that were created in the same second, the one with the higher
// UID may have created its objects before the other one existed. Each would then wait until the other one is deleted.
func (a targetCandidate) precedes(b targetCandidate) bool {
	switch {
	case a.owned.Primary != b.owned.Primary:
		return a.owned.Primary
	case a.owned.Services != b.owned.Services:
		return a.owned.Services
	default:
		return older(a.canary, b.canary)
	}
}

// older reports whether a was created before b.
func older(a, b *flaggerv1.Canary) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

func workloadOf(o workload.Observation) canary.Workload {
	return canary.Workload{
		Problem: o.Problem, ScalerProblem: o.ScalerProblem, TargetLimit: o.TargetLimit, PortWarning: o.PortWarning, SameTemplate: o.PrimaryUpToDate,
		Configs: o.Configs, FlaggerConfigs: o.FlaggerConfigs, NewestTemplateTime: o.NewestTemplate,
		ApexSelectsTarget: o.ApexSelectsTarget, ApexSelectsPrimary: o.ApexSelectsPrimary, ServicesSelectOther: o.ServicesSelectOther,
		CanaryServiceSelectsOther: o.CanaryServiceSelectsOther, Images: o.Images,
		Target: workloadState(o.Target), Primary: workloadState(o.Primary),
	}
}

func workloadState(s workload.State) canary.WorkloadState {
	return canary.WorkloadState{
		Found: s.Found, Revision: s.Revision, FlaggerHash: s.FlaggerHash, ID: s.PromotionID,
		Replicas: s.Replicas, Total: s.Total, Available: s.Available, Updated: s.Updated, ReadyPods: s.Ready,
		Ready: s.Readiness.Ready, RequiredPods: s.Readiness.RequiredAvailable, DeadlineExceeded: s.Readiness.DeadlineExceeded, Message: s.Readiness.Message,
	}
}

// Features converts the features that the router of a provider declares for a Canary to those of a plan.
func Features(routers traffic.Registry, c *flaggerv1.Canary, provider string) canary.Features {
	if provider == canary.ProviderKubernetes {
		return canary.Features{Known: true}
	}
	renderer, ok := routers.ForCanary(provider)
	if !ok {
		return canary.Features{}
	}
	target := traffic.NewCanaryTarget(c, provider, "")
	f := renderer.Features(target)
	return canary.Features{
		Known: true, Weights: f.Weights, Matches: f.Matches, Mirror: f.Mirror, WeightedMirror: f.WeightedMirror, Sticky: f.Sticky, ServiceMatch: f.ServiceMatch,
		RouteBeforePods: slices.ContainsFunc(renderer.Refs(target, release.Route{}, nil), func(ref traffic.Ref) bool { return ref.SelectsPods }),
	}
}

// readRoute reads the route. A permanent error is part of the snapshot; only a transient one ends the reconciliation.
func (o *Observer) readRoute(ctx context.Context, s *observation) error {
	provider := s.snapshot.Plan.Provider
	renderer, ok := o.Routers.ForCanary(provider)
	if !ok || !s.snapshot.Plan.HasRouter {
		return nil
	}
	s.renderer, s.target = renderer, s.targetOf(provider)
	for _, ref := range renderer.Refs(s.target, release.Route{}, nil) {
		s.dependencies = append(s.dependencies, watching.Object{Kind: ref.GVK.GroupKind(), Namespace: ref.Namespace, Name: ref.Name})
		s.routes = appendKind(s.routes, ref.GVK)
	}
	observed, versions, err := o.Applier.Observe(ctx, renderer, s.target)
	s.versions = versions
	switch {
	case reconciler.NeedsUser(err), reconciler.IsRejected(err):
		s.snapshot.Route = canary.Route{Problem: err.Error()}
		s.needsRetry = s.needsRetry || errors.Is(err, traffic.ErrNotInstalled) || reconciler.IsRejected(err)
		return nil
	case errors.Is(err, traffic.ErrUnreadable): // as if there were no route: the recorded weight is written
		s.warnings = append(s.warnings, release.Event{Type: release.Warning, Persistent: true, ObjectOnly: true, Message: err.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("read the route of %s: %w", s.object.Name, err)
	}
	s.snapshot.Route = canary.Route{
		Found: observed.Found, Canary: observed.Route.Canary, Mirrored: observed.Route.Mirror.Enabled,
		OtherMatches: observed.HasOtherMatches(s.snapshot.Plan.Strategy == canary.ABTesting),
		Confirmation: canary.Confirmation(observed.Confirmed), Reason: observed.Reason,
	}
	if s.unreported = observed.Unreported; s.unreported != nil {
		s.snapshot.Route.Unreported.Since = s.unreported.RouteCreated
	}
	return nil
}

func (s *observation) targetOf(provider string) traffic.Target {
	target := traffic.NewCanaryTarget(s.object, provider, s.selector)
	target.SelectorValue = s.selectorValue
	return target
}

// hookLimitWarnings returns warnings about webhooks whose timeout or retries exceed the maximum.
func hookLimitWarnings(c *flaggerv1.Canary) []release.Event {
	var warnings []release.Event
	for _, h := range analysisOf(c).Webhooks {
		if _, _, cut, _ := hookLimits(h); cut != "" { // an invalid timeout is reported by its call
			warnings = append(warnings, release.Event{Type: release.Warning, Persistent: true, ObjectOnly: true, Message: fmt.Sprintf(
				"webhook %s: %s", release.Truncate(h.Name, reconciler.MaxGateName), cut,
			)})
		}
	}
	return warnings
}

// findMissingReferences finds references to objects that do not exist or cannot be used.
func (o *Observer) findMissingReferences(ctx context.Context, s *observation) error {
	for _, key := range templateKeys(s.object) {
		var template flaggerv1.MetricTemplate
		err := o.Client.Get(ctx, key, &template)
		switch {
		case apierrors.IsNotFound(err):
			s.snapshot.MissingReferences = append(s.snapshot.MissingReferences, metric.TemplateMissing(key.Name, key.Namespace, templateNotFound(key.Name)))
		case err != nil:
			return fmt.Errorf("get metric template %s: %w", key, err)
		case o.MetricTypes != nil && !slices.Contains(o.MetricTypes, template.Spec.Provider.Type):
			s.snapshot.Plan.ValidationErrors = append(s.snapshot.Plan.ValidationErrors, fmt.Sprintf(
				"metric template %s.%s has provider type %s, which this version of Serin does not support: use one of %s",
				key.Name, key.Namespace, template.Spec.Provider.Type, strings.Join(o.MetricTypes, ", "),
			))
		case template.Spec.Provider.InsecureSkipVerify:
			s.warnings = append(s.warnings, release.Event{Type: release.Warning, Persistent: true, ObjectOnly: true, Message: fmt.Sprintf(
				"metric template %s.%s disables certificate verification (insecureSkipVerify), so its responses can be forged: use a trusted certificate for the service",
				key.Name, key.Namespace,
			)})
		}
	}
	return nil
}

// findMissingAlertProviders finds alerts whose provider does not exist. A reference that is refused needs no provider.
func (o *Observer) findMissingAlertProviders(ctx context.Context, s *observation) error {
	for i, alert := range analysisOf(s.object).Alerts {
		key := referenceKey(s.object.Namespace, alert.ProviderRef)
		if o.Settings.NoCrossNamespace && key.Namespace != s.object.Namespace {
			continue
		}
		switch err := o.Client.Get(ctx, key, &flaggerv1.AlertProvider{}); {
		case apierrors.IsNotFound(err):
			s.snapshot.MissingAlertProviders = append(s.snapshot.MissingAlertProviders, fmt.Sprintf(
				"alert provider %s.%s does not exist, so the alerts of %q are not sent: create it, or correct spec.analysis.alerts[%d].providerRef",
				key.Name, key.Namespace, alert.Name, i,
			))
		case err != nil:
			return fmt.Errorf("get alert provider %s: %w", key, err)
		}
	}
	return nil
}
