package readyourwrites

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// WriteCheck returns an error if an object must not be written.
type WriteCheck func(ctx context.Context, written client.Object) error

type writeCheckKey struct{}

// WithWriteCheck returns a context with a check before each write of a Client. It serves conditions for all writes of a
// reconciliation, whichever code makes them.
func WithWriteCheck(ctx context.Context, check WriteCheck) context.Context {
	return context.WithValue(ctx, writeCheckKey{}, check)
}

// CheckWrite calls the check of a context. Without a check every write is permitted.
func CheckWrite(ctx context.Context, written client.Object) error {
	if check, ok := ctx.Value(writeCheckKey{}).(WriteCheck); ok {
		return check(ctx, written)
	}
	return nil
}
