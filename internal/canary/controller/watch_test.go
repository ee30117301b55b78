package controller

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestSecretsAreWatchedForConfigTrackingOnly: a process that does not track configuration starts without permission to list
// them.
func TestSecretsAreWatchedForConfigTrackingOnly(t *testing.T) {
	r := New(Parts{})
	for _, tracking := range []bool{true, false} {
		watched := r.watchedKinds(tracking)
		for _, kind := range []string{"Secret", "ConfigMap"} {
			if got := slices.ContainsFunc(watched, func(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == kind }); got != tracking {
				t.Errorf("with config tracking %v, %s is watched: %v", tracking, kind, got)
			}
		}
	}
}
