package release

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// TestPublishedArtifactsAreSigned publishes to a registry in this process, with a temporary key: the identity with which the
// workflow signs exists on GitHub only.
func TestPublishedArtifactsAreSigned(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")

	work := t.TempDir()
	private, public := filepath.Join(work, "test.key"), filepath.Join(work, "test.pub")
	mustRun(t, "cosign", "generate-key-pair", "--output-key-prefix", strings.TrimSuffix(private, ".key"))
	copied := filepath.Join(work, "dist") // publish.sh adds a signature
	if err := os.CopyFS(copied, os.DirFS(dist)); err != nil {
		t.Fatal(err)
	}
	out, err := script(t.Context(), "../publish.sh", []string{
		"DIST=" + copied, "REGISTRY=" + host + "/serin-dev", "HELM_FLAGS=--plain-http",
		"COSIGN_FLAGS=--tlog-upload=false --key " + private, "COSIGN_PASSWORD=",
	}, *version)
	if err != nil {
		t.Fatalf("publish: %v\n%s", err, out)
	}

	image, chart := host+"/serin-dev/serin:"+number(), host+"/serin-dev/charts/serin:"+number()
	offline := []string{"--insecure-ignore-tlog", "--key", public}
	mustRun(t, append(append([]string{"cosign", "verify"}, offline...), image)...)
	mustRun(t, append(append([]string{"cosign", "verify"}, offline...), chart)...)
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		digest := strings.TrimSpace(mustRun(t, "crane", "digest", "--platform", platform, image))
		mustRun(t, append(append([]string{"cosign", "verify-attestation", "--type", "cyclonedx"}, offline...), host+"/serin-dev/serin@"+digest)...)
	}

	checksums := filepath.Join(copied, "checksums.txt")
	verify := append(append([]string{"cosign", "verify-blob", "--bundle", checksums + ".sigstore.json"}, offline...), checksums)
	mustRun(t, verify...)
	if err := os.WriteFile(checksums, []byte(strings.Repeat("0", 64)+"  serin.tar.gz\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := tool(t.Context(), verify...); err == nil {
		t.Errorf("a modified checksums.txt has a valid signature: %s", out)
	}
	if out, err := script(t.Context(), "../publish.sh", []string{"DIST=" + copied, "REGISTRY=" + host + "/modified"}, *version); err == nil {
		t.Errorf("files that do not match their checksums were published: %s", out)
	}
}
