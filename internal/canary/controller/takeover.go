package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/ownwrites"
)

// takeOver keeps a process from acting on a release as it was long ago: the first list may come from an API server that
// lags, and what that phase asked for may be what the present one forbids. A release that is about to do something, and
// whose status this process did not write, is read once from the API server; nothing older is acted on from then on.
// Errors: ownwrites.ErrBehind while the cache is older, and those of the API server.
func (r *Reconciler) takeOver(ctx context.Context, object *flaggerv1.Canary, acts bool) error {
	key := client.ObjectKeyFromObject(object)
	least := r.memory.least(key, object.UID)
	if least == "" && acts {
		live := &flaggerv1.Canary{}
		err := r.Reader.Get(ctx, key, live)
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != object.UID:
			return behind(key)
		case err != nil:
			return fmt.Errorf("read Canary %s from the API server: %w", key, err)
		}
		least = live.ResourceVersion
		r.memory.knows(key, versionOf(live))
	}
	if ownwrites.Older(object.ResourceVersion, least) {
		return behind(key)
	}
	return nil
}

func behind(key types.NamespacedName) error {
	return fmt.Errorf("look at Canary %s: %w", key, ownwrites.ErrBehind)
}

// least is the oldest version of a Canary that may be acted on; empty: none is known.
func (m *memory) least(key types.NamespacedName, uid types.UID) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.entry(key).known; known.uid == uid {
		return known.resourceVersion
	}
	return ""
}

// doubts forgets it: a write that failed may have been done, and the answer lost; where it was a conflict, somebody else was
// faster, and what was seen is known to be old. What was decided before it must not be decided again on the same view.
func (m *memory) doubts(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).known = version{}
}

// knows remembers a version that the API server gave.
func (m *memory) knows(key types.NamespacedName, v version) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(key).known = v
}
