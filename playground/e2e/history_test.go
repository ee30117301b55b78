//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// waitTimeout bounds every wait for an expected state. It is not a requirement on how fast the state must be reached.
const waitTimeout = 3 * time.Minute

// history contains all observed states of the objects of one kind in a namespace, in the order of their observation.
type history[T any] struct {
	mu     sync.Mutex
	states []state[T]
	news   chan struct{} // closed when a state is added, and replaced
}

// state is an object at the time of its observation.
type state[T any] struct {
	name    string
	at      time.Time
	deleted bool
	object  T
}

// recordHistory starts a history, which ends with the test.
func recordHistory[T any](t *testing.T, resource schema.GroupVersionResource, namespace string) *history[T] {
	t.Helper()
	h := &history[T]{news: make(chan struct{})}
	informer := dynamicinformer.NewFilteredDynamicInformer(shared.Dynamic, resource, namespace, 0, cache.Indexers{}, nil).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.add(t, object, false) },
		UpdateFunc: func(_, object any) { h.add(t, object, false) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			h.add(t, object, true)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synced, stop := context.WithTimeout(t.Context(), waitTimeout)
	defer stop()
	if !cache.WaitForCacheSync(synced.Done(), informer.HasSynced) {
		t.Fatalf("watch %s in %s: %v", resource.Resource, namespace, context.Cause(synced))
	}
	return h
}

func (h *history[T]) add(t *testing.T, object any, deleted bool) {
	raw := object.(*unstructured.Unstructured)
	s := state[T]{name: raw.GetName(), at: time.Now(), deleted: deleted}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, &s.object); err != nil {
		t.Errorf("read %s %s: %v", raw.GetKind(), raw.GetName(), err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, s)
	close(h.news)
	h.news = make(chan struct{})
}

// statesFrom returns the states from a position on, and a channel that is closed when a state is added.
func (h *history[T]) statesFrom(position int) ([]state[T], <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.states[position:len(h.states):len(h.states)], h.news
}

func (h *history[T]) length() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.states)
}

// waitForState waits for a state from the position on for which check returns nil, and returns it with the next position.
func (h *history[T]) waitForState(t *testing.T, what string, position int, check func(state[T]) error) (state[T], int) {
	t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	last := fmt.Errorf("nothing was observed")
	for {
		states, news := h.statesFrom(position)
		for i, s := range states {
			if last = check(s); last == nil {
				return s, position + i + 1
			}
		}
		position += len(states)
		select {
		case <-news:
		case <-deadline.C:
			t.Fatalf("wait until %s: it took more than %s; last error: %v", what, waitTimeout, last)
		case <-shared.Done():
			t.Fatalf("wait until %s: the cluster ended: %v", what, shared.Err())
		}
	}
}

// canary contains the fields of a Canary that the tests use.
type canary struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   canaryStatus      `json:"status"`
}

type canaryStatus struct {
	Phase            string             `json:"phase"`
	CanaryWeight     int                `json:"canaryWeight"`
	FailedChecks     int                `json:"failedChecks"`
	Iterations       int                `json:"iterations"`
	LastAppliedSpec  string             `json:"lastAppliedSpec"`
	LastPromotedSpec string             `json:"lastPromotedSpec"`
	TrackedConfigs   map[string]string  `json:"trackedConfigs"`
	Conditions       []metav1.Condition `json:"conditions"`
	Cookie           string             `json:"sessionAffinityCookie"`
	PreviousCookie   string             `json:"previousSessionAffinityCookie"`
	Serin            struct {
		Run    string `json:"run"`
		Window *struct {
			Start metav1.MicroTime `json:"start"`
		} `json:"window"`
		Queue *struct {
			Aside bool `json:"aside"`
		} `json:"queue"`
		Gates []gate `json:"gates"`
	} `json:"serin"`
}

type gate struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Message string `json:"message"`
	Opener  string `json:"opener"`
	Query   string `json:"query"`
	Value   string `json:"value"`
	Limit   string `json:"limit"`
}

// window returns the start of the current observation window in full precision, or "".
func (c canary) window() string {
	if c.Status.Serin.Window == nil {
		return ""
	}
	return c.Status.Serin.Window.Start.UTC().Format(metav1.RFC3339Micro)
}

func (c canary) condition(kind string) metav1.Condition {
	for _, each := range c.Status.Conditions {
		if each.Type == kind {
			return each
		}
	}
	return metav1.Condition{}
}

// String returns one line, for the messages of failed tests.
func (c canary) String() string {
	text := fmt.Sprintf("phase %s, weight %d, iterations %d, failed checks %d, window %q", c.Status.Phase, c.Status.CanaryWeight, c.Status.Iterations, c.Status.FailedChecks, c.window())
	for _, each := range c.Status.Conditions {
		text += fmt.Sprintf(", %s %s %s: %s", each.Type, each.Status, each.Reason, each.Message)
	}
	return text
}
