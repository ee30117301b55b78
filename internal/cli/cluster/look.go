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

// atOnce is how many releases are looked at side by side.
const atOnce = 8

// View is what one look showed.
type View struct {
	// Releases sorted by namespace, name and kind, or in the order in which they were named.
	Releases []explain.Seen
	// Controller that acts on them.
	Controller explain.Controller
	// Unread says which releases could not be listed, one sentence each.
	Unread []string
}

// Look is one look at the selected releases. Errors: ErrNotFound for a name that does not exist, ErrAmbiguous,
// ErrUnreachable.
func (s *Session) Look(ctx context.Context, sel Selection) (View, error) {
	found, err := s.objects(ctx, sel)
	if err != nil {
		return View{}, err
	}
	who := s.findControllers(ctx, found.objects)
	told, unread := s.events(ctx, sel)
	seen, err := s.seeAll(ctx, found.objects, who.flags)
	if err != nil {
		return View{}, err
	}
	for i, one := range seen {
		around := one.Surroundings()
		around.Events = told[one.Key()]
		around.Unread = append(around.Unread, unread...)
		around.Peer = who.peerOf(ctx, objectOf(one), around.Events, s.Clock.Now())
		seen[i] = one.In(around)
	}
	return View{Releases: seen, Controller: who.summary(found.objects, s.Clock.Now()), Unread: found.unread}, nil
}

// seeAll looks at releases side by side.
func (s *Session) seeAll(ctx context.Context, objects []client.Object, flags flags) ([]explain.Seen, error) {
	lens, err := newLens(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	seen := make([]explain.Seen, len(objects))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range objects {
		group.Go(func() error {
			var err error
			switch object := objects[i].(type) {
			case *flaggerv1.Canary:
				seen[i], err = s.see(ctx, lens, object, flags)
			case *argov1.Rollout:
				seen[i], err = s.seeRollout(ctx, lens, object, flags)
			default:
				err = fmt.Errorf("%T is no release", object)
			}
			return err
		})
	}
	return seen, group.Wait()
}

// see looks at everything around one Canary. What the person may not read is assumed to be as the status says, and
// listed.
func (s *Session) see(ctx context.Context, l *lens, object *flaggerv1.Canary, flags flags) (*explain.Canary, error) {
	reading := &lenient{WithWatch: s.Client, denied: map[string]string{}}
	settings, options := flags.of(object)
	routers := flags.Routers()
	asked := object.DeepCopy()
	asked.ManagedFields = nil
	out := &explain.Canary{Object: object}
	now := s.Clock.Now()
	metricTypes := operator.MetricTypes()
	for {
		observer := controller.Observer{
			Client: reading, Workloads: &workload.Workloads{Client: reading, Reader: reading, Options: options},
			Routers: routers, Applier: &traffic.Applier{Client: reading}, Settings: settings, Line: lineOf(flags.limits(turnOf(object)), flags, l), MetricTypes: metricTypes,
			Rival: func(ctx context.Context, c *flaggerv1.Canary) (string, error) { return rivalOf(ctx, l, c) },
		}
		snapshot, err := observer.Snapshot(ctx, asked, now)
		denied := reading.kinds()
		switch {
		case err == nil && metricTypes != nil && denied[flaggerv1.MetricTemplateKind]:
			metricTypes = nil // what a template says is not known
			continue
		case err == nil:
			out.Snapshot = snapshot
		case !forbidden(err):
			return nil, explained("look at Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
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
	snapshot.Pruned = object.Status.Serin == nil && !object.Status.LastTransitionTime.IsZero()
	denied := reading.kinds()
	if len(out.Assumed) == 0 && (denied["ConfigMap"] || denied["Secret"]) {
		sameConfiguration(snapshot)
	}
	if snapshot.Plan.Routed && len(out.Assumed) == 0 && routeDenied(routers, object, snapshot.Plan.Provider, denied) {
		snapshot.Route = canary.Route{Found: true, Canary: object.Status.CanaryWeight, Confirmation: canary.CannotTell}
		out.Assumed = []release.Part{release.RoutePart}
	}
	out.Unread = reading.sentences()
	return out, nil
}

// rivalOf is the Rollout that releases the target of a Canary; empty: there is none, or none that the person may know of.
func rivalOf(ctx context.Context, l *lens, c *flaggerv1.Canary) (string, error) {
	rival, err := operator.RolloutBeside(ctx, l, c)
	if unknown(err) || forbidden(err) {
		return "", nil
	}
	return rival, err
}

// features are what the router of a plan declares, which needs no cluster.
func features(routers traffic.Registry, object *flaggerv1.Canary) func(string) canary.Features {
	return func(provider string) canary.Features { return controller.Features(routers, object, provider) }
}

// routes are the objects that carry the traffic of a Canary.
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

// fromStatus is the snapshot of a world as the status implies it.
func fromStatus(object *flaggerv1.Canary, settings canary.Settings, now time.Time) canary.Snapshot {
	status := object.Status
	s := canary.Snapshot{
		Now: now, UID: string(object.UID), Generation: object.Generation, Plan: canary.NewPlan(object, settings), Status: *status.DeepCopy(),
		Deleting: object.DeletionTimestamp != nil,
		Route:    canary.Route{Found: true, Canary: status.CanaryWeight, Confirmation: canary.CannotTell},
	}
	standing := canary.Copy{
		Found: true, Replicas: 1, Total: 1, Available: 1, Ready: true, Enough: 1,
		Endpoints: release.Endpoints{Unknown: "assumed"},
	}
	s.Workload = canary.Workload{Target: standing, Primary: standing, PeerConfigs: status.TrackedConfigs}
	s.Workload.Target.PeerHash = status.LastAppliedSpec
	s.Workload.Target.Revision = takenUp(status)
	if own := status.Serin; own != nil {
		s.Workload.Configs = own.Configs
	}
	return s
}

// takenUp is the revision that the status says the target has.
func takenUp(status flaggerv1.CanaryStatus) string {
	if own := status.Serin; own != nil && own.Revision != "" {
		return own.Revision
	}
	return "of " + status.LastAppliedSpec
}

// sameConfiguration takes configuration that could not be read for the one that was taken up: a command that sees less
// must not see a new revision for that.
func sameConfiguration(s *canary.Snapshot) {
	w := &s.Workload
	w.PeerConfigs = s.Status.TrackedConfigs
	if own := s.Status.Serin; own != nil {
		w.Configs = own.Configs
	}
	if w.Target.PeerHash == s.Status.LastAppliedSpec && w.Target.PeerHash != "" {
		w.Target.Revision = takenUp(s.Status)
	}
	if s.Status.Phase == flaggerv1.CanaryPhaseInitializing {
		w.Same = true
	}
}

// events are what people were told about the selected releases, oldest first. They explain; nothing depends on them.
func (s *Session) events(ctx context.Context, sel Selection) (map[explain.Key][]explain.Event, []string) {
	out := map[explain.Key][]explain.Event{}
	for _, kind := range sel.wanted() {
		var list corev1.EventList
		switch err := s.Client.List(ctx, &list, eventOptions(sel, kind)...); {
		case forbidden(err):
			return nil, []string{"Events" + inNamespace(sel.Namespace) + " may not be read."}
		case err != nil:
			return nil, []string{"Events" + inNamespace(sel.Namespace) + " cannot be read: " + err.Error() + "."}
		}
		by := map[explain.Key]map[string]explain.Event{}
		for i := range list.Items {
			remember(by, &list.Items[i])
		}
		for key, events := range by {
			out[key] = oldestFirst(events)
		}
	}
	return out, nil
}

// remember keeps an event under the release that it is about, by its name.
func remember(by map[explain.Key]map[string]explain.Event, e *corev1.Event) (of map[string]explain.Event) {
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
	at = release.Later(release.Later(at, e.EventTime.Time), e.FirstTimestamp.Time)
	return explain.Event{At: at.UTC(), Type: e.Type, Message: e.Message, Count: int(e.Count)}
}

// oldestFirst orders events by their time, which has whole seconds only, and then by their names, in which all known
// writers put a finer one.
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

// lenient remembers what may not be read, and does without it where a release can be explained without.
type lenient struct {
	client.WithWatch
	denied map[string]string // by kind, in which namespace
}

func (l *lenient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := l.WithWatch.Get(ctx, key, obj, opts...)
	if !forbidden(err) {
		return err
	}
	kind := l.deny(obj, key.Namespace)
	if kind == flaggerv1.MetricTemplateKind {
		return nil // whether it is there is the controller's business
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
		return err // an empty list would say that nobody can be reached
	}
	return nil // rivals and histories of ReplicaSets: without them the status is believed
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
		out = append(out, fmt.Sprintf("%s%s may not be read.", plural(kind), inNamespace(namespace)))
	}
	slices.Sort(out)
	return out
}

// plural is several objects of a kind, as people say it.
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
