// Package actors has what all kinds of releases share in the simulator: the client of users and tools, their recurring actions,
// the script of a story, versions and how their pods run, the faults of external services, the events and logs of a process,
// and the comparison of final states.
//
// It must not know any kind of release. It draws from random streams whose names are part of the meaning of a seed.
package actors

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

// LongestBackoff is after what time a reconciliation that failed again and again is tried once more.
const LongestBackoff = 1000 * time.Second

// IsSerin is true of its processes.
func IsSerin(actor string) bool { return strings.HasPrefix(actor, "serin") }

// Typed is an object of the store in the type of its kind; nil: there is none, or it has another type. It must not be
// changed.
func Typed[T client.Object](w *sim.World, v *store.Version) T {
	var none T
	if v == nil {
		return none
	}
	object, err := v.Typed(w.Scheme)
	if err != nil {
		return none
	}
	of, _ := object.(T)
	return of
}

// Watched is an object in the form in which production watches its kind, nil for none.
func Watched(w *sim.World, v *store.Version, typed bool) client.Object {
	switch {
	case v == nil:
		return nil
	case typed:
		object, err := v.Typed(w.Scheme)
		if err != nil {
			panic(err) // what the store admitted does not fit its own type
		}
		return object
	default:
		return &unstructured.Unstructured{Object: v.Content()}
	}
}

// WatchedChange is a change in the form in which production watches its kind.
func WatchedChange(w *sim.World, c store.Change, typed bool) (before, after client.Object) {
	return Watched(w, c.Old, typed), Watched(w, c.New, typed)
}

// Items are the objects of a list.
func Items(value any) []map[string]any {
	list, _ := value.([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			out = append(out, object)
		}
	}
	return out
}

// Index lets the cache of a process find what its controllers look for.
func Index(i *sim.Instance, indexes ...func(context.Context, client.FieldIndexer) error) {
	for _, index := range indexes {
		if err := index(context.Background(), i.Cache); err != nil {
			panic(err) // a mistake in the program
		}
	}
}

// UnderWay describes what is still in progress; empty: nothing is.
func UnderWay(w *sim.World, people *Script, asked Pending, c *cluster.Cluster) string {
	switch {
	case people.Active():
		return "users have not finished"
	case asked.Any(w):
		return "an answer is out"
	case !c.Settled():
		return "the cluster moves: " + c.Unsettled()
	case !w.Quiet():
		return "Serin is busy"
	default:
		return ""
	}
}

// Every repeats what a user or a tool does, until it is over.
func Every(w *sim.World, interval time.Duration, over func() bool, do func()) {
	w.After(interval, func() {
		if !over() {
			do()
			Every(w, interval, over, do)
		}
	})
}

// TraceWrites adds the writes of Serin to the trace, each with what describe says of its content.
func TraceWrites(w *sim.World, describe func(*store.Event) string) {
	w.Subscribe(func(event any) {
		if e, ok := event.(sim.ObjectWritten); ok && IsSerin(e.Actor) {
			content := ""
			if e.Type != store.Deleted {
				content = describe(e.Event)
			}
			w.Trace("  %s → %s %s %s%s", e.Actor, e.Verb, strings.ToLower(e.Kind.Kind), e.Key.Name, content)
		}
	})
}

// The providers of routes that runs have. Without one, the numbers of pods, or Services, share the traffic.
const (
	NoRouter   = "kubernetes"
	Istio      = "istio"
	GatewayAPI = "gatewayapi:v1"
)

// RouteKind is the kind of the object that has the weights of a provider; false: it has none.
func RouteKind(provider string) (schema.GroupKind, bool) {
	switch provider {
	case Istio:
		return VirtualServiceKind, true
	case GatewayAPI:
		return HTTPRouteKind, true
	default:
		return schema.GroupKind{}, false
	}
}

// Destinations are the receivers of each rule of a route, with their weights, in place.
func Destinations(content map[string]any) [][]map[string]any {
	var out [][]map[string]any
	for _, place := range [][2]string{{"http", "route"}, {"rules", "backendRefs"}} {
		rules, _, _ := unstructured.NestedFieldNoCopy(content, "spec", place[0])
		for _, rule := range Items(rules) {
			out = append(out, Items(rule[place[1]]))
		}
	}
	return out
}

// Reweigh gives the canary a weight, and the stable side the rest, where a rule has both. It is false where none has.
func Reweigh(content map[string]any, canary func(destination map[string]any) bool, weight int64) bool {
	changed := false
	for _, to := range Destinations(content) {
		if len(to) != 2 {
			continue
		}
		for _, destination := range to {
			destination["weight"] = 100 - weight
			if canary(destination) {
				destination["weight"] = weight
			}
		}
		changed = true
	}
	return changed
}

// Labels are those in the metadata of an object.
func Labels(object map[string]any) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(object, "metadata", "labels")
	return labels
}

// The kinds of Kubernetes, Istio and the Gateway API that releases have.
var (
	DeploymentKind      = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	DaemonSetKind       = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	ReplicaSetKind      = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	PodKind             = schema.GroupKind{Kind: "Pod"}
	JobKind             = schema.GroupKind{Group: "batch", Kind: "Job"}
	ServiceKind         = schema.GroupKind{Kind: "Service"}
	ConfigMapKind       = schema.GroupKind{Kind: "ConfigMap"}
	SecretKind          = schema.GroupKind{Kind: "Secret"}
	AutoscalerKind      = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	VirtualServiceKind  = schema.GroupKind{Group: "networking.istio.io", Kind: "VirtualService"}
	DestinationRuleKind = schema.GroupKind{Group: "networking.istio.io", Kind: "DestinationRule"}
	HTTPRouteKind       = schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}
)
