package release

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// readImages returns the images of the release by platform.
func readImages(t *testing.T) map[string]v1.Image {
	t.Helper()
	folder := t.TempDir()
	for name, content := range readTar(t, bytes.NewReader(read(t, dist, "serin-image_"+number()+".tar"))) {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(outer); err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("got %+v, %v, want one index", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		if images[descriptor.Platform.String()], err = index.Image(descriptor.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return images
}

func TestImagesContainTheReleasedBinaries(t *testing.T) {
	images := readImages(t)
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, slices.Sorted(maps.Keys(images))); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
	for platform, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS+"/"+config.Architecture != platform || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/usr/local/bin/serin"}) {
			t.Errorf("%s: got %+v", platform, config)
		}
		filesystem := mutate.Extract(image)
		content := readTar(t, filesystem)
		filesystem.Close()
		want := []string{"etc/group", "etc/passwd", "etc/ssl/certs/ca-certificates.crt", "usr/local/bin/serin"}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(content))); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", platform, diff)
		}
		if !bytes.Equal(content["usr/local/bin/serin"], readArchive(t, platform)["serin"]) {
			t.Errorf("%s: the image and the archive contain different binaries", platform)
		}
		roots := 0
		for block, rest := pem.Decode(content["etc/ssl/certs/ca-certificates.crt"]); block != nil; block, rest = pem.Decode(rest) {
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				t.Error(err)
			}
			roots++
		}
		if roots < 100 {
			t.Errorf("%s: %d root certificates, want those of Mozilla, which are more than 100", platform, roots)
		}
	}
}
