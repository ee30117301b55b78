package cluster

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// maxConcurrent is the maximum number of releases that are observed concurrently.
const maxConcurrent = 8

// Observations contains the observations of the selected releases at one time.
type Observations struct {
	// Releases are sorted by namespace, name and kind, or have the order of the names in the selection.
	Releases []explain.Observation
	// Controller reports whether a controller acts on them.
	Controller explain.Controller
	// Unread has one sentence for each kind of release that could not be listed.
	Unread []string
}

// Observe observes the selected releases once. Errors: ErrNotFound for a name that does not exist, ErrAmbiguous,
// ErrUnreachable.
func (s *Session) Observe(ctx context.Context, sel Selection) (Observations, error) {
	found, err := s.readObjects(ctx, sel)
	if err != nil {
		return Observations{}, err
	}
	controllers := s.findControllers(ctx, found.objects)
	events, unread := s.events(ctx, sel)
	observed, err := s.observeAll(ctx, found.objects, controllers.flags)
	if err != nil {
		return Observations{}, err
	}
	for i, one := range observed {
		shared := one.Shared()
		shared.Events = oldestFirst(events[one.Key()], objectOf(one).GetUID())
		shared.Unread = append(shared.Unread, unread...)
		shared.OtherController = controllers.otherControllerFor(ctx, objectOf(one), shared.Events, s.Clock.Now())
		observed[i] = one.WithShared(shared)
	}
	return Observations{Releases: observed, Controller: controllers.summary(found.objects, s.Clock.Now()), Unread: found.unread}, nil
}

// observeAll observes releases concurrently.
func (s *Session) observeAll(ctx context.Context, objects []client.Object, flags flags) ([]explain.Observation, error) {
	reader, err := newReaderOf(ctx, s.Client, objects)
	if err != nil {
		return nil, err
	}
	observed := make([]explain.Observation, len(objects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for i := range objects {
		group.Go(func() error {
			var err error
			switch object := objects[i].(type) {
			case *flaggerv1.Canary:
				observed[i], err = s.observeCanary(ctx, reader, object, flags)
			case *argov1.Rollout:
				observed[i], err = s.observeRollout(ctx, reader, object, flags)
			default:
				err = fmt.Errorf("%T is not a release", object)
			}
			return err
		})
	}
	return observed, group.Wait()
}

// observeCanary observes one Canary and its related objects. It derives the parts that the user has no permission to read from the
// status, and lists them.
func (s *Session) observeCanary(ctx context.Context, l *cachedReader, object *flaggerv1.Canary, flags flags) (*explain.Canary, error) {
	reader := &lenientClient{WithWatch: l, denied: map[string]string{}}
	settings, options := flags.settingsFor(object)
	routers := flags.Routers()
	input := object.DeepCopy()
	input.ManagedFields = nil
	out := &explain.Canary{Object: object}
	now := s.Clock.Now()
	metricTypes := operator.MetricTypes()
	for {
		observer := controller.Observer{
			Client: reader, Workloads: &workload.Workloads{Client: reader, APIReader: reader, Options: options},
			Routers: routers, Applier: &traffic.Applier{Client: reader, APIReader: reader}, Settings: settings, Queue: newQueue(flags.concurrencyLimits(canaryTurnMessage(object)), flags, l), MetricTypes: metricTypes,
			FindConflict: func(ctx context.Context, c *flaggerv1.Canary) (string, error) { return conflictingRollout(ctx, l, c) }, Indexed: l.hasMany,
		}
		snapshot, err := observer.Snapshot(ctx, input, now)
		denied := reader.deniedKinds()
		switch {
		case err == nil && metricTypes != nil && denied[flaggerv1.MetricTemplateKind]:
			metricTypes = nil // the templates are unknown
			continue
		case err == nil:
			out.Snapshot = snapshot
		case !isForbidden(err):
			return nil, describeError("observe Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
		case options.ConfigTracking && (denied["ConfigMap"] || denied["Secret"]):
			options.ConfigTracking = false
			continue
		case input.Spec.AutoscalerRef != nil && denied[input.Spec.AutoscalerRef.Kind]:
			input.Spec.AutoscalerRef = nil
			continue
		default:
			settings.Features = features(routers, object)
			out.Snapshot = canarySnapshotFromStatus(object, settings, now)
			out.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
		}
		break
	}
	snapshot := &out.Snapshot
	denied := reader.deniedKinds()
	if len(out.Assumed) == 0 && (denied["ConfigMap"] || denied["Secret"]) {
		assumeConfiguration(snapshot)
	}
	if snapshot.Plan.HasRouter && len(out.Assumed) == 0 && routeDenied(routers, object, snapshot.Plan.Provider, denied) {
		snapshot.Route = canary.Route{Found: true, Canary: object.Status.CanaryWeight, Confirmation: canary.CannotTell}
		out.Assumed = []release.Part{release.RoutePart}
	}
	if !slices.Contains(out.Assumed, release.WorkloadPart) {
		if err := observeCanaryPods(ctx, &workload.Workloads{Client: reader, APIReader: reader, Options: options}, out); err != nil {
			return nil, describeError("observe Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
		}
	}
	out.Unread = reader.deniedSentences()
	return out, nil
}

// conflictingRollout returns the Rollout that releases the target of a Canary; empty: there is none, or the user has no permission
// to read it.
func conflictingRollout(ctx context.Context, l *cachedReader, c *flaggerv1.Canary) (string, error) {
	rollout, err := operator.ConflictingRollout(ctx, l, &workload.Workloads{Client: l, APIReader: l}, c)
	if isUnknownKind(err) || isForbidden(err) {
		return "", nil
	}
	return rollout, err
}

// features returns a function for the declared features of a provider, which requires no request.
func features(routers traffic.Registry, object *flaggerv1.Canary) func(string) canary.Features {
	return func(provider string) canary.Features { return controller.Features(routers, object, provider) }
}

// routeRefs returns references to the objects that route the traffic of a Canary.
func routeRefs(routers traffic.Registry, object *flaggerv1.Canary, provider string) []traffic.Ref {
	renderer, ok := routers.ForCanary(provider)
	if !ok || provider == canary.ProviderKubernetes {
		return nil
	}
	return renderer.Refs(traffic.NewCanaryTarget(object, provider, ""), release.Route{}, nil)
}

func routeDenied(routers traffic.Registry, object *flaggerv1.Canary, provider string, denied map[string]bool) bool {
	return slices.ContainsFunc(routeRefs(routers, object, provider), func(ref traffic.Ref) bool { return denied[ref.GVK.Kind] })
}

// canarySnapshotFromStatus derives a snapshot from the status.
func canarySnapshotFromStatus(object *flaggerv1.Canary, settings canary.Settings, now time.Time) canary.Snapshot {
	status := object.Status
	s := canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Plan: canary.NewPlan(object, settings), Status: *status.DeepCopy(),
		Deleting: object.DeletionTimestamp != nil,
		Route:    canary.Route{Found: true, Canary: status.CanaryWeight, Confirmation: canary.CannotTell},
	}
	assumed := canary.WorkloadState{
		Found: true, Replicas: 1, Total: 1, Available: 1, Ready: true, RequiredPods: 1,
		Endpoints: release.Endpoints{Unknown: "assumed"},
	}
	s.Workload = canary.Workload{Target: assumed, Primary: assumed, FlaggerConfigs: status.TrackedConfigs}
	s.Workload.Target.FlaggerHash = status.LastAppliedSpec
	s.Workload.Target.Revision = recordedRevision(status)
	if own := status.Serin; own != nil {
		s.Workload.Configs = own.Configs
	}
	return s
}

// recordedRevision returns the revision of the target in the status.
func recordedRevision(status flaggerv1.CanaryStatus) string {
	if own := status.Serin; own != nil && own.Revision != "" {
		return own.Revision
	}
	return "of " + status.LastAppliedSpec
}

// assumeConfiguration uses the recorded checksums of ConfigMaps and Secrets that could not be read, because missing permissions
// must not look like a new revision.
func assumeConfiguration(s *canary.Snapshot) {
	w := &s.Workload
	w.FlaggerConfigs = s.Status.TrackedConfigs
	if own := s.Status.Serin; own != nil {
		w.Configs = own.Configs
	}
	if w.Target.FlaggerHash == s.Status.LastAppliedSpec && w.Target.FlaggerHash != "" {
		w.Target.Revision = recordedRevision(s.Status)
	}
	if s.Status.Phase == flaggerv1.CanaryPhaseInitializing {
		w.SameTemplate = true
	}
}

// events returns the Kubernetes events about the selected releases, oldest first, and a message if they cannot be read. That is no
// error, because no decision depends on events.
func (s *Session) events(ctx context.Context, sel Selection) (map[explain.Key]map[string]involvedEvent, []string) {
	out := map[explain.Key]map[string]involvedEvent{}
	for _, kind := range sel.kindsOrDefault() {
		var list corev1.EventList
		switch err := s.Client.List(ctx, &list, eventOptions(sel, kind)...); {
		case isForbidden(err):
			return nil, []string{noPermission("read Events" + inNamespace(sel.Namespace))}
		case err != nil:
			return nil, []string{"Events" + inNamespace(sel.Namespace) + " cannot be read: " + err.Error() + "."}
		}
		for i := range list.Items {
			addEvent(out, &list.Items[i])
		}
	}
	return out, nil
}

// involvedEvent is an event with the UID of the release that it is about; empty: unknown.
type involvedEvent struct {
	explain.Event

	uid types.UID
}

func involvedKey(e *corev1.Event) explain.Key {
	return explain.Key{Kind: explain.Kind(e.InvolvedObject.Kind), Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
}

// addEvent adds an event to the events of its release, and returns those events by their names.
func addEvent(byKey map[explain.Key]map[string]involvedEvent, e *corev1.Event) (own map[string]involvedEvent) {
	key := involvedKey(e)
	if byKey[key] == nil {
		byKey[key] = map[string]involvedEvent{}
	}
	byKey[key][e.Name] = involvedEvent{newEvent(e), e.InvolvedObject.UID}
	return byKey[key]
}

func eventOptions(sel Selection, kind explain.Kind) []client.ListOption {
	selector := client.MatchingFields{"involvedObject.kind": string(kind)}
	if len(sel.Names) == 1 {
		selector["involvedObject.name"] = sel.Names[0].Name
	}
	return []client.ListOption{client.InNamespace(sel.Namespace), selector}
}

func newEvent(e *corev1.Event) explain.Event {
	at := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	at = release.LaterOf(release.LaterOf(at, e.EventTime.Time), e.FirstTimestamp.Time)
	event := explain.Event{At: at.UTC(), Type: e.Type, Message: e.Message, Count: int(e.Count), ByUser: e.Reason == userActionReason}
	if first := e.FirstTimestamp; e.Count > 1 && !first.IsZero() {
		event.FirstAt = first.UTC()
	}
	return event
}

// oldestFirst returns the events about the release with a UID, without those of a former one with its name. It sorts them by their
// time, which has whole seconds only, and then by their names, which contain a more precise time in the format of all known writers.
func oldestFirst(events map[string]involvedEvent, uid types.UID) []explain.Event {
	names := slices.SortedFunc(maps.Keys(events), func(a, b string) int {
		return cmp.Or(events[a].At.Compare(events[b].At), strings.Compare(a, b))
	})
	var out []explain.Event
	for _, name := range names {
		if event := events[name]; event.uid == uid || event.uid == "" {
			out = append(out, event.Event)
		}
	}
	return out
}

// lenientClient records the kinds that the user has no permission to read. It returns no error for kinds without which a release
// can be described.
type lenientClient struct {
	client.WithWatch
	denied map[string]string // from kind to namespace
}

func (l *lenientClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := l.WithWatch.Get(ctx, key, obj, opts...)
	if !isForbidden(err) {
		return err
	}
	kind := l.recordDenied(obj, key.Namespace)
	switch kind {
	case flaggerv1.MetricTemplateKind, flaggerv1.AlertProviderKind:
		return nil // the controller reports a missing one
	}
	return err
}

func (l *lenientClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := l.WithWatch.List(ctx, list, opts...)
	if !isForbidden(err) {
		return err
	}
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	if l.recordDenied(list, options.Namespace) == endpoints.Kind.Kind {
		return err // an empty list would mean that no pod receives requests
	}
	return nil // other releases of the target, and the history of ReplicaSets: the status replaces them; pods: their problems are unknown
}

type kindHolder interface{ GetObjectKind() schema.ObjectKind }

func (l *lenientClient) recordDenied(obj kindHolder, namespace string) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", obj)
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	kind = strings.TrimSuffix(kind, "List")
	l.denied[kind] = namespace
	return kind
}

func (l *lenientClient) deniedKinds() map[string]bool {
	out := map[string]bool{}
	for kind := range l.denied {
		out[kind] = true
	}
	return out
}

func (l *lenientClient) deniedSentences() []string {
	var out []string
	for kind, namespace := range l.denied {
		out = append(out, noPermission("read "+plural(kind)+inNamespace(namespace)))
	}
	slices.Sort(out)
	return out
}

// noPermission returns the sentence about an action for which the user has no permission.
func noPermission(action string) string { return "No permission to " + action + "." }

// plural returns the plural of a kind.
func plural(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	case strings.HasSuffix(kind, "y"):
		return strings.TrimSuffix(kind, "y") + "ies"
	default:
		return kind + "s"
	}
}
