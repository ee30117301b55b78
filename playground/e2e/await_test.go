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

// await waits for an object to which check has no objection. A nil object says that there is none.
func (s *environment) waitForObject(what string, resource schema.GroupVersionResource, name string, check func(*unstructured.Unstructured) error) {
	s.t.Helper()
	s.waitForObjectIn(shared.Dynamic, what, resource, name, check)
}

// awaitIn is the same in any cluster.
func (s *environment) waitForObjectIn(cluster dynamic.Interface, what string, resource schema.GroupVersionResource, name string, check func(*unstructured.Unstructured) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	client := cluster.Resource(resource).Namespace(s.namespace)
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	last := errors.New("nothing was seen")
	_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
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
		s.t.Fatalf("wait until %s: %v; last: %v", what, err, last)
	}
}

// absent is the objection to every object.
func checkAbsent(object *unstructured.Unstructured) error {
	if object == nil {
		return nil
	}
	return fmt.Errorf("%s %s is still there", object.GetKind(), object.GetName())
}

// awaitDeployment waits for a Deployment to which check has no objection.
func (s *environment) waitForDeployment(what, name string, check func(appsv1.Deployment) error) {
	s.t.Helper()
	s.waitForObject(fmt.Sprintf("Deployment %s %s", name, what), deployments, name, func(object *unstructured.Unstructured) error {
		if object == nil {
			return errors.New("it does not exist")
		}
		d := convert[appsv1.Deployment](s.t, object)
		if d.Status.ObservedGeneration < d.Generation {
			return errors.New("its controller has not seen it yet")
		}
		return check(d)
	})
}

// serves waits until all pods of a Deployment are available.
func (s *environment) waitForAvailable(name string, replicas int32) {
	s.t.Helper()
	s.waitForDeployment("serves", name, func(d appsv1.Deployment) error {
		if st := d.Status; st.UpdatedReplicas != replicas || st.Replicas != replicas || st.AvailableReplicas != replicas {
			return fmt.Errorf("status %+v", st)
		}
		return nil
	})
}

// left waits until the last pod with these labels is gone: its end is what may cost a request.
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
		s.t.Fatalf("wait until no pod has %s: %v; there are %v", selector, err, remaining)
	}
}

// release follows one Canary from a moment on.
type release struct {
	*environment
	name string
	// mark is the position in the history behind which states are looked at, began the one at which the release began.
	mark, began int
	// told is the same for events.
	firstEvent int
}

// follow begins to follow a Canary; what was seen before does not count.
func (s *environment) follow(name string) *release {
	return &release{environment: s, name: name, mark: s.canaries.length(), began: s.canaries.length(), firstEvent: s.events.length()}
}

// of follows another Canary from the same moment on.
func (r *release) forCanary(name string) *release {
	other := *r
	other.name = name
	return &other
}

// until waits for the next state to which check has no objection.
func (r *release) waitFor(what string, check func(canary) error) canary {
	r.t.Helper()
	found, next := r.canaries.waitForState(r.t, fmt.Sprintf("Canary %s %s", r.name, what), r.mark, func(s state[canary]) error {
		if s.name != r.name {
			return fmt.Errorf("that was %s", s.name)
		}
		if s.deleted {
			return errors.New("it is gone")
		}
		if err := check(s.object); err != nil {
			return fmt.Errorf("%w: %s", err, s.object)
		}
		return nil
	})
	r.mark = next
	return found.object
}

// reaches waits for one of the phases.
func (r *release) waitForPhase(phases ...string) canary {
	r.t.Helper()
	return r.waitFor("reaches phase "+strings.Join(phases, " or "), inPhase(phases...))
}

func inPhase(phases ...string) func(canary) error {
	return func(c canary) error {
		if !slices.Contains(phases, c.Status.Phase) {
			return errors.New("another phase")
		}
		return nil
	}
}

// ends waits for the end of a release and wants it to be that.
func (r *release) waitForEnd(phase string) canary {
	r.t.Helper()
	c := r.waitForPhase("Succeeded", "Failed")
	if c.Status.Phase != phase {
		r.t.Fatalf("Canary %s ended as %s, want %s", r.name, c, phase)
	}
	return c
}

// states are those of the Canary since the release began.
func (r *release) states() []state[canary] {
	all, _ := r.canaries.statesFrom(r.began)
	var own []state[canary]
	for _, s := range all {
		if s.name == r.name && !s.deleted {
			own = append(own, s)
		}
	}
	return own
}

// window is one observation of one weight or iteration. failed is the number of checks that failed before it.
type window struct {
	start                      time.Time
	weight, iterations, failed int
}

// windows are those that were seen since the release began, in order.
func (r *release) windows() []window {
	var all []window
	seen := map[string]bool{}
	for _, s := range r.states() {
		start := s.object.window()
		if start == "" || seen[start] {
			continue
		}
		seen[start] = true
		st := s.object.Status
		all = append(all, window{st.Serin.Window.Start.Time, st.CanaryWeight, st.Iterations, st.FailedChecks})
	}
	return all
}

// messages are the events of the Canary since the release began, in order; one that was told again comes once.
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

// tells waits for an event whose message contains the text.
func (r *release) waitForEvent(text string) string {
	r.t.Helper()
	found, _ := r.events.waitForState(r.t, fmt.Sprintf("Canary %s tells %q", r.name, text), r.firstEvent, func(s state[corev1.Event]) error {
		if s.object.InvolvedObject.Kind != "Canary" || s.object.InvolvedObject.Name != r.name {
			return fmt.Errorf("that was of %s %s", s.object.InvolvedObject.Kind, s.object.InvolvedObject.Name)
		}
		if !strings.Contains(s.object.Message, text) {
			return fmt.Errorf("it told %q", s.object.Message)
		}
		return nil
	})
	return found.object.Message
}

// count is how often events of a Canary whose message begins with the text were told, repeats included.
func (s *environment) countEvents(canary, text string) int32 {
	all, _ := s.events.statesFrom(0)
	times := map[string]int32{}
	for _, e := range all {
		if e.object.InvolvedObject.Kind == "Canary" && e.object.InvolvedObject.Name == canary && strings.HasPrefix(e.object.Message, text) {
			times[e.name] = max(e.object.Count, 1)
		}
	}
	var sum int32
	for _, n := range times {
		sum += n
	}
	return sum
}
