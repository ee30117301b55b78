// Package redis replaces Traefik's provider of configuration from Redis.
//
// The original links the client of Redis. The playground has no Redis. The package must declare what Traefik uses of
// the original, and nothing else.
package redis

import (
	"errors"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/safe"
)

var errNotBuilt = errors.New("the Traefik of the playground is built without the provider for Redis")

// Provider is a provider of configuration that cannot be used.
type Provider struct{}

// SetDefaults has nothing to set.
func (*Provider) SetDefaults() {}

// Init returns an error.
func (*Provider) Init() error { return errNotBuilt }

// Provide returns an error.
func (*Provider) Provide(chan<- dynamic.Message, *safe.Pool) error { return errNotBuilt }
