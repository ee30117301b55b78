// Command image assembles the image of a release from released binaries: each platform's image contains its binary, the
// root certificates of Mozilla and an unprivileged user. It writes an OCI layout with one index.
//
// It needs neither a container runtime nor a registry, so that a release can be built and tested anywhere. It must not
// compile anything: the image contains the same bytes as the archives.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the base image that ko uses, and of the chart.
const user = "65532:65532"

// content describes the image of a release.
type content struct {
	version, revision string
	created           time.Time
	// binaries are the files by platform, such as linux/amd64, in the order of the index.
	binaries []binary
}

type binary struct {
	platform *v1.Platform
	file     string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var c content
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&c.version, "version", "", "version of the image")
	flags.StringVar(&c.revision, "revision", "", "commit that the binaries were built from")
	into := flags.String("into", "", "folder for the OCI layout")
	if err := flags.Parse(args); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	c.created = time.Unix(seconds, 0).UTC()
	for _, arg := range flags.Args() {
		name, file, found := strings.Cut(arg, "=")
		if !found {
			return fmt.Errorf("argument %s is not PLATFORM=BINARY", arg)
		}
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return fmt.Errorf("parse platform %s: %w", name, err)
		}
		c.binaries = append(c.binaries, binary{platform: platform, file: file})
	}
	if *into == "" || len(c.binaries) == 0 {
		return errors.New("set -into, and pass PLATFORM=BINARY for each image")
	}
	index, err := newIndex(c)
	if err != nil {
		return err
	}
	path, err := layout.Write(*into, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", *into, err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": c.version})); err != nil {
		return fmt.Errorf("write %s: %w", *into, err)
	}
	return nil
}

// newIndex returns the index of the images of all platforms.
func newIndex(c content) (v1.ImageIndex, error) {
	base, err := newLayer(baseFiles(), c.created)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range c.binaries {
		program, err := os.ReadFile(b.file)
		if err != nil {
			return nil, err
		}
		layer, err := newLayer([]file{{name: "usr/local/bin/serin", mode: 0o755, content: program}}, c.created)
		if err != nil {
			return nil, err
		}
		image, err := newImage(c, b.platform, base, layer)
		if err != nil {
			return nil, fmt.Errorf("assemble the image for %s: %w", b.platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: b.platform}})
	}
	return mutate.Annotations(index, c.annotations()).(v1.ImageIndex), nil
}

func newImage(c content, platform *v1.Platform, layers ...v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		var err error
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: c.created}, CreatedBy: "make release"}})
		if err != nil {
			return nil, err
		}
	}
	existing, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config := existing.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = v1.Time{Time: c.created}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/usr/local/bin/serin"}, Labels: c.annotations(),
		Env: []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
	}
	return mutate.ConfigFile(image, config)
}

func (c content) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":    "serin",
		"org.opencontainers.image.version":  c.version,
		"org.opencontainers.image.revision": c.revision,
		"org.opencontainers.image.created":  c.created.Format(time.RFC3339),
		"org.opencontainers.image.source":   "https://github.com/serin-dev/serin",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// baseFiles are what the image contains besides the binary.
func baseFiles() []file {
	return []file{
		{name: "etc/group", mode: 0o644, content: []byte("nonroot:x:65532:\n")},
		{name: "etc/passwd", mode: 0o644, content: []byte("nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: rootCertificates()},
	}
}

// rootCertificates returns the root certificates of Mozilla in PEM. It omits those that Mozilla trusts only for certificates
// issued before a date, because PEM cannot express this constraint.
func rootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return out.Bytes()
}

// newLayer returns a layer that depends on the files and the time only.
func newLayer(files []file, modified time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: modified, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("archive a layer: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
}
