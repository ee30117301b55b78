package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
)

const (
	// maxPluginBytes is the maximum size of the file of a plugin.
	maxPluginBytes = 512 << 20
	// downloadTimeout is the maximum duration of a download.
	downloadTimeout = 5 * time.Minute
	// maxRedirects is the maximum number of redirects of a download. Hosts of releases redirect to hosts of files.
	maxRedirects = 5
)

// store provides the files of plugins. A file with a configured SHA-256 is executed from a copy that is named after its content,
// so that it cannot be replaced between its verification and its start.
type store struct {
	dir    string
	client *outbound.Client
	// readSecret reads a Secret in the namespace of the controller.
	readSecret func(ctx context.Context, name string) (map[string][]byte, error)
}

// provide returns the path of the verified file of a plugin.
func (s store) provide(ctx context.Context, item Item) (string, error) {
	location, err := url.Parse(item.Location)
	if err != nil {
		return "", err
	}
	if item.SHA256 == "" {
		return location.Path, nil // only the file:// of an administrator
	}
	path := filepath.Join(s.dir, item.SHA256)
	if sum, err := hashFile(path); err == nil && sum == item.SHA256 {
		return path, nil
	}
	fetch := func(w io.Writer) error { return s.download(ctx, item, w) }
	if location.Scheme == "file" {
		fetch = func(w io.Writer) error { return copyFile(location.Path, w) }
	}
	if err := s.save(path, item.SHA256, fetch); err != nil {
		return "", err
	}
	return path, nil
}

// save stores what fetch writes, if it has the hash.
func (s store) save(path, sum string, fetch func(w io.Writer) error) (err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil { //nolint:gosec // the user of the plugins must be able to read it
		return fmt.Errorf("create the directory of plugins: %w", err)
	}
	file, err := os.CreateTemp(s.dir, "incomplete-")
	if err != nil {
		return fmt.Errorf("create the file of the plugin: %w", err)
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	hash := sha256.New()
	if err := fetch(io.MultiWriter(file, hash)); err != nil {
		return err
	}
	if actual := hex.EncodeToString(hash.Sum(nil)); actual != sum {
		return fmt.Errorf("the file has the SHA-256 %s, and %s is configured: correct sha256, or restore the file", actual, sum)
	}
	if err := file.Chmod(0o555); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// download writes the file of an https:// location. Each redirect must be https:// too. Configured headers are sent to the
// configured host only.
func (s store) download(ctx context.Context, item Item, w io.Writer) error {
	first, err := outbound.ParseURL(item.Location)
	if err != nil {
		return err
	}
	header, err := s.headers(ctx, item)
	if err != nil {
		return err
	}
	for target, redirects := first, 0; redirects <= maxRedirects; redirects++ {
		if target.Scheme != "https" {
			return fmt.Errorf("%s redirects to %s://, where the file could be replaced on its way", first.Hostname(), target.Scheme)
		}
		request := outbound.Request{URL: target.String(), Limit: maxPluginBytes, Timeout: downloadTimeout}
		if target.Host == first.Host {
			request.Header = header
		}
		response, err := s.client.Download(ctx, request, w)
		if err != nil {
			return fmt.Errorf("download the plugin: %w", err)
		}
		switch next := response.Header.Get("Location"); {
		case response.Truncated:
			return fmt.Errorf("the file is larger than %d MiB", maxPluginBytes>>20)
		case response.IsSuccess():
			return nil
		case response.Code/100 != 3 || next == "":
			return fmt.Errorf("download the plugin: %s answered %s", target.Hostname(), response.Status())
		default:
			if target, err = target.Parse(next); err != nil {
				return fmt.Errorf("download the plugin: %w", outbound.RedactError(err))
			}
		}
	}
	return fmt.Errorf("download the plugin: more than %d redirects", maxRedirects)
}

// headers returns the headers of a download.
func (s store) headers(ctx context.Context, item Item) (http.Header, error) {
	header := http.Header{}
	for _, from := range item.HeadersFrom {
		data, err := s.readSecret(ctx, from.SecretRef.Name)
		if err != nil {
			return nil, fmt.Errorf("read the Secret %s of headersFrom: %w", from.SecretRef.Name, err)
		}
		for name, value := range data {
			header.Set(name, strings.TrimSpace(string(value)))
		}
	}
	return header, nil
}

func copyFile(path string, w io.Writer) error {
	file, err := os.Open(path) //nolint:gosec // the administrator configures it
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	n, err := io.Copy(w, io.LimitReader(file, maxPluginBytes+1))
	if n > maxPluginBytes {
		return fmt.Errorf("the file is larger than %d MiB", maxPluginBytes>>20)
	}
	return err
}

// hashFile returns the SHA-256 of a file in hexadecimal.
func hashFile(path string) (string, error) {
	hash := sha256.New()
	if err := copyFile(path, hash); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// checkExecutable returns the reason why a file cannot be executed.
func checkExecutable(path string) error {
	switch info, err := os.Stat(path); {
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0:
		return fmt.Errorf("%s is not an executable file: correct its mode, or the location", path)
	default:
		return nil
	}
}
