// Package ecs replaces Traefik's provider for Amazon ECS.
//
// The original links the clients of three services of AWS, whose generated code takes as long to compile as all of
// Traefik. The playground has no ECS. The package must declare what Traefik uses of the original, and nothing else.
package ecs

import (
	"errors"

	"github.com/traefik/traefik/v3/pkg/config/dynamic"
	"github.com/traefik/traefik/v3/pkg/safe"
)

var errNotBuilt = errors.New("the Traefik of the playground is built without the provider for Amazon ECS")

// Provider is a provider of configuration that cannot be used.
type Provider struct{}

// SetDefaults has nothing to set.
func (*Provider) SetDefaults() {}

// Init returns an error.
func (*Provider) Init() error { return errNotBuilt }

// Provide returns an error.
func (*Provider) Provide(chan<- dynamic.Message, *safe.Pool) error { return errNotBuilt }
