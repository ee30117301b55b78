package dashboard

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// reviewTime is the time for which the review of a permission is valid, maxReviews the number of reviews that are remembered.
const (
	reviewTime = 30 * time.Second
	maxReviews = 10_000
)

// reviews remembers the permissions of one viewer for a short time, so that pages that are opened one after the other share the
// requests. Only the API server decides: it refuses a command whose permission was withdrawn meanwhile.
type reviews struct {
	isPermitted func(context.Context, cluster.Permission) (bool, error)
	clock       clock.PassiveClock

	mu    sync.Mutex
	known map[cluster.Permission]review
}

// review is the result of one review.
type review struct {
	isPermitted bool
	until       time.Time
}

// missing returns those of the permissions that the viewer lacks, in their order and without duplicates.
func (r *reviews) missing(ctx context.Context, needed []cluster.Permission) ([]string, error) {
	var out []string
	for i, permission := range needed {
		if slices.Contains(needed[:i], permission) {
			continue
		}
		isPermitted, err := r.review(ctx, permission)
		if err != nil {
			return nil, err
		}
		if !isPermitted {
			out = append(out, permission.String())
		}
	}
	return out, nil
}

func (r *reviews) review(ctx context.Context, permission cluster.Permission) (bool, error) {
	r.mu.Lock()
	known, ok := r.known[permission]
	r.mu.Unlock()
	if ok && r.clock.Now().Before(known.until) {
		return known.isPermitted, nil
	}
	isPermitted, err := r.isPermitted(ctx, permission)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	maps.DeleteFunc(r.known, func(_ cluster.Permission, old review) bool { return !now.Before(old.until) })
	if len(r.known) < maxReviews {
		r.known[permission] = review{isPermitted, now.Add(reviewTime)}
	}
	return isPermitted, nil
}
