package watching

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Left remembers which releases are left to a peer, and why. Its zero value knows of none.
type Left struct {
	mu  sync.Mutex
	why map[types.NamespacedName]string
}

// Note says why a release is left; empty: it is not. Whoever runs Serin is told when it begins to leave releases to a peer,
// and when it goes on; show, where not nil, gets a reason for which some are left after that, and an empty one for none.
func (l *Left) Note(ctx context.Context, key types.NamespacedName, why string, show func(sentence string)) {
	began, ended, some := l.note(key, why)
	logger := log.FromContext(ctx)
	if began != "" {
		logger.Info("Stood back from releases that another controller acts on", "why", began)
	}
	if ended != "" {
		logger.Info("Went on, because the other controller is gone", "was", ended)
	}
	if show != nil && (began != "" || ended != "") {
		show(some)
	}
}

// Forget is for a release that is gone.
func (l *Left) Forget(key types.NamespacedName) { l.note(key, "") }

// note gives the reason for which no release was left before, the one for which none is any more, and one that holds.
func (l *Left) note(key types.NamespacedName, why string) (began, ended, some string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.why[key]
	if old == why {
		return "", "", ""
	}
	if why != "" && !l.holds(why) {
		began = why
	}
	l.set(key, why)
	if old != "" && !l.holds(old) {
		ended = old
	}
	if reasons := slices.Sorted(maps.Values(l.why)); len(reasons) > 0 {
		some = reasons[0]
	}
	return began, ended, some
}

func (l *Left) holds(why string) bool {
	return slices.Contains(slices.Collect(maps.Values(l.why)), why)
}

func (l *Left) set(key types.NamespacedName, why string) {
	if why == "" {
		delete(l.why, key)
		return
	}
	if l.why == nil {
		l.why = map[types.NamespacedName]string{}
	}
	l.why[key] = why
}
