//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// waitForObject waits until check returns nil for an object. The object is nil if it does not exist.
func (s *environment) waitForObject(what string, resource schema.GroupVersionResource, name string, check func(*unstructured.Unstructured) error) {
	s.t.Helper()
	s.waitForObjectIn(shared.Dynamic, what, resource, name, check)
}

// waitForObjectIn is waitForObject in any cluster.
func (s *environment) waitForObjectIn(cluster dynamic.Interface, what string, resource schema.GroupVersionResource, name string, check func(*unstructured.Unstructured) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	client := cluster.Resource(resource).Namespace(s.namespace)
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	last := errors.New("nothing was observed")
	_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, func(store cache.Store) (bool, error) {
		if len(store.List()) == 0 {
			last = check(nil)
		}
		return last == nil, nil
	}, func(event watch.Event) (bool, error) {
		object, _ := event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Deleted {
			object = nil
		}
		last = check(object)
		return last == nil, nil
	})
	if err != nil {
		s.t.Fatalf("wait until %s: %v; last error: %v", what, err, last)
	}
}

// checkAbsent returns an error unless the object is nil, which means that it does not exist.
func checkAbsent(object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	return fmt.Errorf("%s %s still exists", object.GetKind(), object.GetName())
}

// waitForDeployment waits until check returns nil for a Deployment whose current generation was observed.
func (s *environment) waitForDeployment(what, name string, check func(appsv1.Deployment) error) {
	s.t.Helper()
	s.waitForObject(fmt.Sprintf("Deployment %s %s", name, what), deployments, name, func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		d := convert[appsv1.Deployment](s.t, object)
		if d.Status.ObservedGeneration < d.Generation {
			return errors.New("its controller has not observed it yet")
		}
		return check(d)
	})
}

// waitForAvailable waits until all pods of a Deployment are updated and available.
func (s *environment) waitForAvailable(name string, replicas int32) {
	s.t.Helper()
	s.waitForDeployment("serves", name, func(d appsv1.Deployment) error {
		if st := d.Status; st.UpdatedReplicas != replicas || st.Replicas != replicas || st.AvailableReplicas != replicas {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
}

// waitForPodsDeleted waits until all pods with these labels are deleted, because requests may be lost until the last one has
// terminated.
func (s *environment) waitForPodsDeleted(selector string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	client := shared.Dynamic.Resource(pods).Namespace(s.namespace)
	remaining := map[string]bool{}
	_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return client.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, func(store cache.Store) (bool, error) {
		for _, key := range store.ListKeys() {
			remaining[key] = true
		}
		return len(remaining) == 0, nil
	}, func(event watch.Event) (bool, error) {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		key := object.GetNamespace() + "/" + object.GetName()
		if event.Type == watch.Deleted {
			delete(remaining, key)
		} else {
			remaining[key] = true
		}
		return len(remaining) == 0, nil
	})
	if err != nil {
		s.t.Fatalf("wait until no pod has the labels %s: %v; remaining pods: %v", selector, err, remaining)
	}
}

// release is the history of one Canary from a point in time on.
type release struct {
	*environment
	name string
	// next is the position in the history after the last state that a wait returned; first is the position of the first state.
	next, first int
	// firstEvent is the position of the first event.
	firstEvent int
}

// follow returns the history of a Canary from now on. Earlier states and events are ignored.
func (s *environment) follow(name string) *release {
	return &release{environment: s, name: name, next: s.canaries.length(), first: s.canaries.length(), firstEvent: s.events.length()}
}

// forCanary returns the history of another Canary from the same point in time on.
func (r *release) forCanary(name string) *release {
	other := *r
	other.name = name
	return &other
}

// waitFor waits for the next state for which check returns nil.
func (r *release) waitFor(what string, check func(canary) error) canary {
	r.t.Helper()
	last := errors.New("it has not been observed since")
	found, next := r.canaries.waitForState(r.t, fmt.Sprintf("Canary %s %s", r.name, what), r.next, func(s state[canary]) error {
		switch {
		case s.name != r.name: // the error remains that of the last state of this Canary
			return last
		case s.deleted:
			last = errors.New("it is deleted")
		default:
			if last = check(s.object); last == nil {
				return nil
			}
			last = fmt.Errorf("%w: %s", last, s.object)
		}
		return last
	})
	r.next = next
	return found.object
}

// waitForPhase waits for one of the phases.
func (r *release) waitForPhase(phases ...string) canary {
	r.t.Helper()
	return r.waitFor("reaches phase "+strings.Join(phases, " or "), inPhase(phases...))
}

// inPhase returns a check of the phase of a Canary.
func inPhase(phases ...string) func(canary) error {
	return func(c canary) error {
		if !slices.Contains(phases, c.Status.Phase) {
			return errors.New("another phase")
		}
		return nil
	}
}

// waitForEnd waits for the end of a release and checks its phase.
func (r *release) waitForEnd(phase string) canary {
	r.t.Helper()
	c := r.waitForPhase("Succeeded", "Failed")
	if c.Status.Phase != phase {
		r.t.Fatalf("Canary %s ended as %s, want %s", r.name, c, phase)
	}
	return c
}

// states returns the states of the Canary since the release started.
func (r *release) states() []state[canary] {
	all, _ := r.canaries.statesFrom(r.first)
	var own []state[canary]
	for _, s := range all {
		if s.name == r.name && !s.deleted {
			own = append(own, s)
		}
	}
	return own
}

// window is the observation window of one weight or iteration. failedChecks is the number of checks that failed before it.
type window struct {
	start                            time.Time
	weight, iterations, failedChecks int
}

// windows returns the observation windows since the release started, in order.
func (r *release) windows() []window {
	var windows []window
	known := map[string]bool{}
	for _, s := range r.states() {
		start := s.object.window()
		if start == "" || known[start] {
			continue
		}
		known[start] = true
		st := s.object.Status
		windows = append(windows, window{st.Serin.Window.Start.Time, st.CanaryWeight, st.Iterations, st.FailedChecks})
	}
	return windows
}

// eventMessages returns the messages of the events of the Canary since the release started, in order. A repeated event occurs
// once.
func (r *release) eventMessages() []string {
	all, _ := r.events.statesFrom(r.firstEvent)
	var own []string
	known := map[string]bool{}
	for _, e := range all {
		if e.object.InvolvedObject.Kind == "Canary" && e.object.InvolvedObject.Name == r.name && !known[e.name] {
			known[e.name] = true
			own = append(own, e.object.Message)
		}
	}
	return own
}

// waitForEvent waits for an event whose message contains the text.
func (r *release) waitForEvent(text string) string {
	r.t.Helper()
	found, _ := r.events.waitForState(r.t, fmt.Sprintf("Canary %s has an event with %q", r.name, text), r.firstEvent, func(s state[corev1.Event]) error {
		if s.object.InvolvedObject.Kind != "Canary" || s.object.InvolvedObject.Name != r.name {
			return fmt.Errorf("the last event is of %s %s", s.object.InvolvedObject.Kind, s.object.InvolvedObject.Name)
		}
		if !strings.Contains(s.object.Message, text) {
			return fmt.Errorf("the last message is %q", s.object.Message)
		}
		return nil
	})
	return found.object.Message
}

// countEvents returns the number of events of a Canary whose message begins with the text, including repetitions.
func (s *environment) countEvents(canary, text string) int32 {
	all, _ := s.events.statesFrom(0)
	counts := map[string]int32{}
	for _, e := range all {
		if e.object.InvolvedObject.Kind == "Canary" && e.object.InvolvedObject.Name == canary && strings.HasPrefix(e.object.Message, text) {
			counts[e.name] = max(e.object.Count, 1)
		}
	}
	var sum int32
	for _, n := range counts {
		sum += n
	}
	return sum
}
