//go:build linux

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestCanariesOfProvidersThatDoNotRunHere runs releases with providers of which only the CRDs are installed, and deletes the
// Canaries: the API server admits the objects of Serin, and its permissions are sufficient.
func TestCanariesOfProvidersThatDoNotRunHere(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "told", "-drain-delay", "0s")
	s.keepPodsReady(t)
	for provider := range strings.SplitSeq("appmesh:v1beta2 contour gloo kuma osm", " ") {
		t.Run(provider, func(t *testing.T) {
			s := s.in(t)
			name, _, _ := strings.Cut(provider, ":")
			s.apply(deploymentByHand(name, 1))
			r := s.follow(name)
			s.apply(fmt.Sprintf(`
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: %s}
spec:
  provider: %q
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  revertOnDeletion: true
  service: {port: 80, targetPort: 8080}
  analysis: {interval: 1s, threshold: 1, stepWeight: 50}
`, name, provider))
			r.waitForPhase("Initialized")
			r = s.follow(name)
			s.deployVersion(name, "v2")
			r.waitForEnd("Succeeded")
			s.kubectl("", "delete", "canary", name)
		})
	}
}
