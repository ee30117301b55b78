package watching

import (
	"container/list"
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// CededReleases remembers which releases are left to another controller, and why. Its zero value knows of none.
//
// When another controller appears or disappears, every release of the cluster is noted once, one after the other, so a
// call must not depend on how many releases there are.
type CededReleases struct {
	mu       sync.Mutex
	releases map[types.NamespacedName]*list.Element // of *reason
	reasons  map[string]*list.Element               // of *reason, by text
	order    list.List                              // of *reason, by the moment since which each applies
}

// cedeReason is one reason for which releases are left, and how many are.
type cedeReason struct {
	text     string
	releases int
}

// SetReason records why a release is left; empty: it is not. It logs when Serin begins to leave releases for a reason, and when
// that reason applies to none any more. Then show, where not nil, gets the oldest reason that still applies; empty: none
// does. show must not call Left.
func (l *CededReleases) SetReason(ctx context.Context, key types.NamespacedName, why string, show func(sentence string)) {
	began, ended := l.setReason(key, why, show)
	logger := log.FromContext(ctx)
	if began {
		logger.Info("Stood back from releases that another controller acts on", "why", why)
	}
	if ended != "" {
		logger.Info("Went on, because the other controller is gone", "was", ended)
	}
}

// Forget is for a release that is gone; show is that of Note.
func (l *CededReleases) Forget(key types.NamespacedName, show func(sentence string)) {
	l.setReason(key, "", show)
}

// setReason returns whether no release was left for this reason before, and the reason for which none is left any more. show is
// called under the lock, so that the last call has the present state.
func (l *CededReleases) setReason(key types.NamespacedName, why string, show func(sentence string)) (began bool, ended string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.releases[key]
	if old == nil && why == "" || old != nil && value(old).text == why {
		return false, ""
	}
	if why != "" {
		began = l.addReason(key, why)
	} else {
		delete(l.releases, key)
	}
	if old != nil {
		if value(old).releases--; value(old).releases == 0 {
			ended = value(old).text
			l.order.Remove(old)
			delete(l.reasons, ended)
		}
	}
	if show != nil && (began || ended != "") {
		oldest := ""
		if first := l.order.Front(); first != nil {
			oldest = value(first).text
		}
		show(oldest)
	}
	return began, ended
}

// addReason records a reason for a release, and returns whether no other release has it.
func (l *CededReleases) addReason(key types.NamespacedName, why string) (first bool) {
	if l.releases == nil {
		l.releases, l.reasons = map[types.NamespacedName]*list.Element{}, map[string]*list.Element{}
	}
	e, known := l.reasons[why]
	if !known {
		e = l.order.PushBack(&cedeReason{text: why})
		l.reasons[why] = e
	}
	value(e).releases++
	l.releases[key] = e
	return !known
}

// Keys are the releases that are left.
func (l *CededReleases) Keys() []types.NamespacedName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.releases))
}

func value(e *list.Element) *cedeReason { return e.Value.(*cedeReason) } //nolint:forcetypeassert // the list has nothing else
