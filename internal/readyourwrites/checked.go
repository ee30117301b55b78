package readyourwrites

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteCheck says why an object must not be written; nil: it may be.
type WriteCheck func(ctx context.Context, written client.Object) error

type writeCheckKey struct{}

// WithWriteCheck has each write of a Client that is given this context ask first. It is for what is true of all writes of one
// pass, by whomever they are made.
func WithWriteCheck(ctx context.Context, check WriteCheck) context.Context {
	return context.WithValue(ctx, writeCheckKey{}, check)
}

// CheckWrite is what the check of a context says; without one everything may be written.
func CheckWrite(ctx context.Context, written client.Object) error {
	if check, ok := ctx.Value(writeCheckKey{}).(WriteCheck); ok {
		return check(ctx, written)
	}
	return nil
}
