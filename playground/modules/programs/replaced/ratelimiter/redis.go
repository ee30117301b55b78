// Package ratelimiter replaces Traefik's rate limiter in Redis, which is a part of its package of the same
// name.
//
// The original links the client of Redis. The playground has no Redis. The package must declare what Traefik uses of
// these files, and nothing else.
package ratelimiter

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"golang.org/x/time/rate"
)

var errNotBuilt = errors.New("the Traefik of the playground is built without Redis")

type redisLimiter struct{}

func newRedisLimiter(context.Context, rate.Limit, int64, time.Duration, int, dynamic.RateLimit, *zerolog.Logger) (*redisLimiter, error) {
	return nil, errNotBuilt
}

// Allow returns an error.
func (*redisLimiter) Allow(context.Context, string) (*time.Duration, error) { return nil, errNotBuilt }
