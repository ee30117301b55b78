package ownwrites

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Check says why an object must not be written; nil: it may be.
type Check func(ctx context.Context, written client.Object) error

type checked struct{}

// Checked has each write of a Client that is given this context ask first. It is for what is true of all writes of one
// pass, by whomever they are made.
func Checked(ctx context.Context, check Check) context.Context {
	return context.WithValue(ctx, checked{}, check)
}

// Allowed is what the check of a context says; without one everything may be written.
func Allowed(ctx context.Context, written client.Object) error {
	if check, ok := ctx.Value(checked{}).(Check); ok {
		return check(ctx, written)
	}
	return nil
}
