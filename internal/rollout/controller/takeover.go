package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// takeOver keeps a process from acting on a Rollout as it was long ago: the first list may come from an API server that
// lags, and what that spec asked for may be what the present one forbids. Before the first write for a Rollout of which this
// process has written no version, it is read once from the API server; nothing older is acted on from then on. Writes of
// the Rollout itself name the version that they were decided on, and prove by themselves that it is the newest.
//
// Errors of the check: ownwrites.ErrBehind while the cache is older, and those of the API server.
func (r *Reconciler) takeOver(object *argov1.Rollout) ownwrites.Check {
	return func(ctx context.Context, written client.Object) error {
		if _, itself := written.(*argov1.Rollout); itself {
			return nil
		}
		key := client.ObjectKeyFromObject(object)
		least := r.memory.least(key)
		if least == "" {
			live := &argov1.Rollout{}
			switch err := r.Reader.Get(ctx, key, live); {
			case apierrors.IsNotFound(err), err == nil && live.UID != object.UID:
				return behind(key)
			case err != nil:
				return fmt.Errorf("read Rollout %s from the API server: %w", key, err)
			}
			least = live.ResourceVersion
			r.memory.knows(key, least)
		}
		if ownwrites.Older(object.ResourceVersion, least) {
			return behind(key)
		}
		return nil
	}
}

// takeOverWorkload is the same of the workload whose template a Rollout has: by one of long ago a release would begin to what
// was there before. It is asked at writes of the Rollout itself as well, whose version says nothing of the workload.
func (r *Reconciler) takeOverWorkload(s *seen, check ownwrites.Check) ownwrites.Check {
	if s.workload == nil || s.workload.object == nil || s.workload.object.GroupVersionKind() == replicaSetKind { // which is read anew in each pass
		return check
	}
	object := s.workload.object
	return func(ctx context.Context, written client.Object) error {
		least := r.memory.lender(s.key())
		if least.uid != object.GetUID() {
			live := &unstructured.Unstructured{}
			live.SetGroupVersionKind(object.GroupVersionKind())
			switch err := r.Reader.Get(ctx, client.ObjectKeyFromObject(object), live); {
			case apierrors.IsNotFound(err), err == nil && live.GetUID() != object.GetUID():
				return behind(s.key())
			case err != nil:
				return fmt.Errorf("read %s %s.%s from the API server: %w", object.GetKind(), object.GetName(), object.GetNamespace(), err)
			}
			least = lender{uid: live.GetUID(), version: live.GetResourceVersion()}
			r.memory.lends(s.key(), least)
		}
		if ownwrites.Older(object.GetResourceVersion(), least.version) {
			return behind(s.key())
		}
		return check(ctx, written)
	}
}

// lender is a version of a workload that lends its template; empty: none is known.
type lender struct {
	uid     types.UID
	version string
}

// lender is the oldest version of the workload of a Rollout that may be acted on.
func (m *memory) lender(key types.NamespacedName) lender {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).lender
}

// lends remembers a version of the workload that the API server gave.
func (m *memory) lends(key types.NamespacedName, version lender) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).lender = version
}

func behind(key types.NamespacedName) error {
	return fmt.Errorf("look at Rollout %s: %w", key, ownwrites.ErrBehind)
}

// least is the oldest version of a Rollout that may be acted on; empty: none is known.
func (m *memory) least(key types.NamespacedName) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entry(key).known
}

// proves remembers that a version was the newest, where none is known.
func (m *memory) proves(key types.NamespacedName, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entry(key); e.known == "" {
		e.known = version
	}
}

// doubts forgets it: a write that failed may have been done, and the answer lost. What was decided before it must not be
// decided again on the same view.
func (m *memory) doubts(key types.NamespacedName) { m.knows(key, "") }

// knows remembers a version that the API server gave.
func (m *memory) knows(key types.NamespacedName, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).known = version
}
