// Package actors contains what all kinds of releases share in the simulator: the frame of a kind, which creates its releases and
// decides when a run has settled; the client of users and tools, their recurring actions, and the script of a story; versions
// and how their pods behave; the delivery of queries, and the faults of external services; the events and logs of a process; and
// the comparison of final states.
//
// A kind of release embeds a Frame and sets its Terms. It adds the actions of users, the external services and the production
// controllers of its API.
//
// It must not know any kind of release. It draws from random streams whose names are part of the meaning of a seed.
package actors

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/test/sim"
	"github.com/serin-dev/serin/test/sim/store"
)

// LongestBackoff is the longest delay before a reconciliation that has failed repeatedly is retried.
const LongestBackoff = 1000 * time.Second

// IsSerin reports whether an actor is a process of Serin.
func IsSerin(actor string) bool { return strings.HasPrefix(actor, "serin") }

// Typed returns an object of the store in the type of its kind, or nil if it does not exist or has another type. It must not be
// modified.
func Typed[T client.Object](w *sim.World, v *store.Version) T {
	var none T
	if v == nil {
		return none
	}
	object, err := v.Typed(w.Scheme)
	if err != nil {
		return none
	}
	typed, _ := object.(T)
	return typed
}

// WatchedForm returns an object in the form in which production watches its kind, or nil if there is none.
func WatchedForm(w *sim.World, v *store.Version, typed bool) client.Object {
	switch {
	case v == nil:
		return nil
	case typed:
		object, err := v.Typed(w.Scheme)
		if err != nil {
			panic(err) // the store admitted an object that does not match its type
		}
		return object
	default:
		return &unstructured.Unstructured{Object: v.Content()}
	}
}

// WatchedChange returns a change in the form in which production watches its kind.
func WatchedChange(w *sim.World, c store.Change, typed bool) (before, after client.Object) {
	return WatchedForm(w, c.Old, typed), WatchedForm(w, c.New, typed)
}

// Items returns the objects of a list.
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

// AddIndexes adds the indexes of the controllers to the cache of a process.
func AddIndexes(i *sim.Instance, indexes ...func(context.Context, client.FieldIndexer) error) {
	for _, index := range indexes {
		if err := index(context.Background(), i.Cache); err != nil {
			panic(err) // a programming error
		}
	}
}

// Repeat repeats an action of a user or a tool until over returns true.
func Repeat(w *sim.World, interval time.Duration, over func() bool, do func()) {
	w.After(interval, func() {
		if !over() {
			do()
			Repeat(w, interval, over, do)
		}
	})
}

// TraceWrites adds the writes of Serin to the trace. describe returns a description of the content.
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

// Labels returns the labels of an object.
func Labels(object map[string]any) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(object, "metadata", "labels")
	return labels
}

// ControllerOf returns the owner that controls an object, or an empty reference.
func ControllerOf(meta metav1.Object) metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(meta); owner != nil {
		return *owner
	}
	return metav1.OwnerReference{}
}

// The kinds of Kubernetes that releases consist of.
var (
	DeploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	DaemonSetKind  = schema.GroupKind{Group: "apps", Kind: "DaemonSet"}
	ReplicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	PodKind        = schema.GroupKind{Kind: "Pod"}
	JobKind        = schema.GroupKind{Group: "batch", Kind: "Job"}
	ServiceKind    = schema.GroupKind{Kind: "Service"}
	ConfigMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	SecretKind     = schema.GroupKind{Kind: "Secret"}
	AutoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
)
