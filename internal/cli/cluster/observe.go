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

// maxConcurrent is the number of releases that are observed concurrently.
const maxConcurrent = 8

// Observations are the selected releases at one time.
type Observations struct {
	// Releases sorted by namespace, name and kind, or in the order in which they were named.
	Releases []explain.Observation
	// Controller that acts on them.
	Controller explain.Controller
	// Unread are the releases that could not be listed, one sentence each.
	Unread []string
}

// Observe observes the selected releases once. Errors: ErrNotFound for a name that does not exist, ErrAmbiguous,
// ErrUnreachable.
func (s *Session) Observe(ctx context.Context, sel Selection) (Observations, error) {
	found, err := s.objects(ctx, sel)
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
		around := one.SharedContext()
		around.Events = events[one.Key()]
		around.Unread = append(around.Unread, unread...)
		around.OtherController = controllers.otherControllerOf(ctx, objectOf(one), around.Events, s.Clock.Now())
		observed[i] = one.WithContext(around)
	}
	return Observations{Releases: observed, Controller: controllers.summary(found.objects, s.Clock.Now()), Unread: found.unread}, nil
}

// observeAll observes releases concurrently.
func (s *Session) observeAll(ctx context.Context, objects []client.Object, flags flags) ([]explain.Observation, error) {
	lens, err := newLens(ctx, s.Client)
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
				observed[i], err = s.observeCanary(ctx, lens, object, flags)
			case *argov1.Rollout:
				observed[i], err = s.observeRollout(ctx, lens, object, flags)
			default:
				err = fmt.Errorf("%T is not a release", object)
			}
			return err
		})
	}
	return observed, group.Wait()
}

// observeCanary observes everything around one Canary. Parts that the user has no permission to read are as the status implies, and
// are listed.
func (s *Session) observeCanary(ctx context.Context, l *cachedReader, object *flaggerv1.Canary, flags flags) (*explain.Canary, error) {
	reading := &lenient{WithWatch: s.Client, denied: map[string]string{}}
	settings, options := flags.settingsFor(object)
	routers := flags.Routers()
	asked := object.DeepCopy()
	asked.ManagedFields = nil
	out := &explain.Canary{Object: object}
	now := s.Clock.Now()
	metricTypes := operator.MetricTypes()
	for {
		observer := controller.Observer{
			Client: reading, Workloads: &workload.Workloads{Client: reading, Reader: reading, Options: options},
			Routers: routers, Applier: &traffic.Applier{Client: reading}, Settings: settings, Queue: queueOf(flags.limits(turnOf(object)), flags, l), MetricTypes: metricTypes,
			Rival: func(ctx context.Context, c *flaggerv1.Canary) (string, error) { return rivalOf(ctx, l, c) },
		}
		snapshot, err := observer.Snapshot(ctx, asked, now)
		denied := reading.kinds()
		switch {
		case err == nil && metricTypes != nil && denied[flaggerv1.MetricTemplateKind]:
			metricTypes = nil // the templates are unknown
			continue
		case err == nil:
			out.Snapshot = snapshot
		case !forbidden(err):
			return nil, explained("observe Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
		case options.ConfigTracking && (denied["ConfigMap"] || denied["Secret"]):
			options.ConfigTracking = false
			continue
		case asked.Spec.AutoscalerRef != nil && denied[asked.Spec.AutoscalerRef.Kind]:
			asked.Spec.AutoscalerRef = nil
			continue
		default:
			settings.Features = features(routers, object)
			out.Snapshot = fromStatus(object, settings, now)
			out.Assumed = []release.Part{release.WorkloadPart, release.RoutePart}
		}
		break
	}
	snapshot := &out.Snapshot
	denied := reading.kinds()
	if len(out.Assumed) == 0 && (denied["ConfigMap"] || denied["Secret"]) {
		assumeConfiguration(snapshot)
	}
	if snapshot.Plan.HasRouter && len(out.Assumed) == 0 && routeDenied(routers, object, snapshot.Plan.Provider, denied) {
		snapshot.Route = canary.Route{Found: true, Canary: object.Status.CanaryWeight, Confirmation: canary.CannotTell}
		out.Assumed = []release.Part{release.RoutePart}
	}
	out.Unread = reading.sentences()
	return out, nil
}

// rivalOf is the Rollout that releases the target of a Canary; empty: there is none, or none that the user has permission to read.
func rivalOf(ctx context.Context, l *cachedReader, c *flaggerv1.Canary) (string, error) {
	rival, err := operator.ConflictingRollout(ctx, l, c)
	if unknown(err) || forbidden(err) {
		return "", nil
	}
	return rival, err
}

// features are the declared features of the router of a plan, which need no cluster.
func features(routers traffic.Registry, object *flaggerv1.Canary) func(string) canary.Features {
	return func(provider string) canary.Features { return controller.Features(routers, object, provider) }
}

// routes are the objects that route the traffic of a Canary.
func routes(routers traffic.Registry, object *flaggerv1.Canary, provider string) []traffic.Ref {
	renderer, ok := routers.ForCanary(provider)
	if !ok || provider == canary.ProviderKubernetes {
		return nil
	}
	return renderer.Refs(traffic.NewCanaryTarget(object, provider, ""), release.Route{}, nil)
}

func routeDenied(routers traffic.Registry, object *flaggerv1.Canary, provider string, denied map[string]bool) bool {
	return slices.ContainsFunc(routes(routers, object, provider), func(ref traffic.Ref) bool { return denied[ref.GVK.Kind] })
}

// fromStatus is the snapshot that the status implies.
func fromStatus(object *flaggerv1.Canary, settings canary.Settings, now time.Time) canary.Snapshot {
	status := object.Status
	s := canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Plan: canary.NewPlan(object, settings), Status: *status.DeepCopy(),
		Deleting: object.DeletionTimestamp != nil,
		Route:    canary.Route{Found: true, Canary: status.CanaryWeight, Confirmation: canary.CannotTell},
	}
	standing := canary.WorkloadState{
		Found: true, Replicas: 1, Total: 1, Available: 1, Ready: true, RequiredPods: 1,
		Endpoints: release.Endpoints{Unknown: "assumed"},
	}
	s.Workload = canary.Workload{Target: standing, Primary: standing, FlaggerConfigs: status.TrackedConfigs}
	s.Workload.Target.FlaggerHash = status.LastAppliedSpec
	s.Workload.Target.Revision = recordedRevision(status)
	if own := status.Serin; own != nil {
		s.Workload.Configs = own.Configs
	}
	return s
}

// recordedRevision is the revision of the target in the status.
func recordedRevision(status flaggerv1.CanaryStatus) string {
	if own := status.Serin; own != nil && own.Revision != "" {
		return own.Revision
	}
	return "of " + status.LastAppliedSpec
}

// assumeConfiguration uses the recorded checksums of configuration that could not be read: missing permissions must not look like a
// new revision.
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

// events are the Kubernetes events about the selected releases, oldest first. No decision depends on them.
func (s *Session) events(ctx context.Context, sel Selection) (map[explain.Key][]explain.Event, []string) {
	out := map[explain.Key][]explain.Event{}
	for _, kind := range sel.wanted() {
		var list corev1.EventList
		switch err := s.Client.List(ctx, &list, eventOptions(sel, kind)...); {
		case forbidden(err):
			return nil, []string{noPermission("read Events" + inNamespace(sel.Namespace))}
		case err != nil:
			return nil, []string{"Events" + inNamespace(sel.Namespace) + " cannot be read: " + err.Error() + "."}
		}
		by := map[explain.Key]map[string]explain.Event{}
		for i := range list.Items {
			addEvent(by, &list.Items[i])
		}
		for key, events := range by {
			out[key] = oldestFirst(events)
		}
	}
	return out, nil
}

// addEvent adds an event to those of its release, by its name.
func addEvent(by map[explain.Key]map[string]explain.Event, e *corev1.Event) (of map[string]explain.Event) {
	key := explain.Key{Kind: explain.Kind(e.InvolvedObject.Kind), Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}
	if by[key] == nil {
		by[key] = map[string]explain.Event{}
	}
	by[key][e.Name] = eventOf(e)
	return by[key]
}

func eventOptions(sel Selection, kind explain.Kind) []client.ListOption {
	about := client.MatchingFields{"involvedObject.kind": string(kind)}
	if len(sel.Names) == 1 {
		about["involvedObject.name"] = sel.Names[0].Name
	}
	return []client.ListOption{client.InNamespace(sel.Namespace), about}
}

func eventOf(e *corev1.Event) explain.Event {
	at := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(at) {
		at = e.Series.LastObservedTime.Time
	}
	at = release.LaterOf(release.LaterOf(at, e.EventTime.Time), e.FirstTimestamp.Time)
	return explain.Event{At: at.UTC(), Type: e.Type, Message: e.Message, Count: int(e.Count)}
}

// oldestFirst orders events by their time, which has whole seconds only, and then by their names, which contain a more precise time
// for all known writers.
func oldestFirst(events map[string]explain.Event) []explain.Event {
	names := slices.SortedFunc(maps.Keys(events), func(a, b string) int {
		return cmp.Or(events[a].At.Compare(events[b].At), strings.Compare(a, b))
	})
	out := make([]explain.Event, 0, len(names))
	for _, name := range names {
		out = append(out, events[name])
	}
	return out
}

// lenient records which kinds the user has no permission to read, and reads them as empty where a release can be described without
// them.
type lenient struct {
	client.WithWatch
	denied map[string]string // namespaces, by kind
}

func (l *lenient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := l.WithWatch.Get(ctx, key, obj, opts...)
	if !forbidden(err) {
		return err
	}
	kind := l.deny(obj, key.Namespace)
	if kind == flaggerv1.MetricTemplateKind {
		return nil // the controller reports a missing one
	}
	return err
}

func (l *lenient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := l.WithWatch.List(ctx, list, opts...)
	if !forbidden(err) {
		return err
	}
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	if l.deny(list, options.Namespace) == endpoints.Kind.Kind {
		return err // an empty list would mean that no pod receives requests
	}
	return nil // other releases of the target, and the history of ReplicaSets: the status replaces them
}

type typed interface{ GetObjectKind() schema.ObjectKind }

func (l *lenient) deny(obj typed, namespace string) string {
	kind := obj.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = fmt.Sprintf("%T", obj)
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	kind = strings.TrimSuffix(kind, "List")
	l.denied[kind] = namespace
	return kind
}

func (l *lenient) kinds() map[string]bool {
	out := map[string]bool{}
	for kind := range l.denied {
		out[kind] = true
	}
	return out
}

func (l *lenient) sentences() []string {
	var out []string
	for kind, namespace := range l.denied {
		out = append(out, noPermission("read "+plural(kind)+inNamespace(namespace)))
	}
	slices.Sort(out)
	return out
}

// noPermission is the sentence about an action for which the user has no permission.
func noPermission(action string) string { return "No permission to " + action + "." }

// plural is the plural of a kind.
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
