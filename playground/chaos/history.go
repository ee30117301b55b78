//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// history contains the states of the objects of a namespace, as a watch of its own returns them. The watch sends its requests
// directly to the API server; states during a restart of the API server may be missing.
type history struct {
	clock clock.WithTicker

	mu     sync.Mutex
	states map[objectKey][]state
	news   chan struct{} // closed when a state is added, and replaced
}

type objectKey struct{ kind, name string }

// state is an object at the time of its observation.
type state struct {
	at     time.Time
	object *unstructured.Unstructured
}

// watch records the objects of some resources until life ends, and returns when the existing ones were recorded.
func (h *history) watch(ctx, life context.Context, running *sync.WaitGroup, client dynamic.Interface, namespace string, resources ...schema.GroupVersionResource) error {
	add := func(raw any) {
		object := raw.(*unstructured.Unstructured)
		h.mu.Lock()
		defer h.mu.Unlock()
		key := objectKey{object.GetKind(), object.GetName()}
		h.states[key] = append(h.states[key], state{h.clock.Now(), object})
		close(h.news)
		h.news = make(chan struct{})
	}
	for _, resource := range resources {
		informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{}, nil).Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, object any) { add(object) }}); err != nil {
			return fmt.Errorf("watch %s: %w", resource.Resource, err)
		}
		running.Go(func() { informer.RunWithContext(life) })
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return fmt.Errorf("watch %s: %w", resource.Resource, context.Cause(ctx))
		}
	}
	return nil
}

// latest returns the last state of an object, nil if there was none.
func (h *history) latest(kind, name string) *unstructured.Unstructured {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.states[objectKey{kind, name}]; len(all) > 0 {
		return all[len(all)-1].object
	}
	return nil
}

// since returns the states of an object from a time on, after the one that was current at that time.
func (h *history) since(kind, name string, from time.Time) []state {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.states[objectKey{kind, name}]
	first := 0
	for i, s := range all {
		if s.at.Before(from) {
			first = i
		}
	}
	return all[first:len(all):len(all)]
}

// waitUntil waits until check returns nil, which it calls whenever a state was added. Errors contain the last one of check.
func (h *history) waitUntil(ctx context.Context, what string, timeout time.Duration, check func() error) error {
	expired := h.clock.NewTimer(timeout)
	defer expired.Stop()
	for {
		h.mu.Lock()
		news := h.news
		h.mu.Unlock()
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-news:
		case <-expired.C():
			return fmt.Errorf("wait until %s: it took more than %s: %w", what, timeout, err)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		}
	}
}

var errUnobserved = errors.New("it was not observed yet")

// latestAs returns the last state of an object as a type.
func latestAs[T any](h *history, kind, name string) (typed T, err error) {
	object := h.latest(kind, name)
	if object == nil {
		return typed, fmt.Errorf("%s %s: %w", kind, name, errUnobserved)
	}
	return convert[T](object)
}

func convert[T any](object *unstructured.Unstructured) (typed T, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		return typed, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return typed, nil
}
