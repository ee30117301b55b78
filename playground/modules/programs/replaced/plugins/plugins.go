// Package plugins replaces Traefik's plugins.
//
// The original links an interpreter of Go, with tables of the whole standard library, and a WebAssembly runtime. The
// playground has no plugins. The package must declare what Traefik uses of the original, and nothing else.
package plugins

import (
	"context"
	"errors"
	"net/http"

	"github.com/traefik/traefik/v3/pkg/provider"
)

var errNotBuilt = errors.New("the Traefik of the playground is built without plugins")

// Descriptor is the configuration of a plugin, which has no effect.
type Descriptor struct{ ModuleName string }

// LocalDescriptor is the configuration of a local plugin, which has no effect.
type LocalDescriptor struct{ ModuleName string }

// Constructor builds the handler of a plugin.
type Constructor func(context.Context, http.Handler) (http.Handler, error)

// RegistryDownloaderOptions are the options of a downloader.
type RegistryDownloaderOptions struct {
	HTTPClient   *http.Client
	ArchivesPath string
}

// RegistryDownloader downloads nothing.
type RegistryDownloader struct{}

// NewRegistryDownloader returns an error.
func NewRegistryDownloader(RegistryDownloaderOptions) (*RegistryDownloader, error) {
	return nil, errNotBuilt
}

// ManagerOptions are the options of a manager.
type ManagerOptions struct{ Output string }

// Manager manages no plugins.
type Manager struct{}

// NewManager returns an error.
func NewManager(*RegistryDownloader, ManagerOptions) (*Manager, error) { return nil, errNotBuilt }

// SetupRemotePlugins returns an error.
func SetupRemotePlugins(*Manager, map[string]Descriptor) error { return errNotBuilt }

// SetupLocalPlugins returns an error.
func SetupLocalPlugins(map[string]LocalDescriptor) error { return errNotBuilt }

// Builder builds no plugins.
type Builder struct{}

// NewBuilder returns a builder. Traefik calls it also where its configuration names no plugin.
func NewBuilder(*Manager, map[string]Descriptor, map[string]LocalDescriptor) (*Builder, error) {
	return &Builder{}, nil
}

// Build returns an error.
func (Builder) Build(string, map[string]any, string) (Constructor, error) { return nil, errNotBuilt }

// BuildProvider returns an error.
func (Builder) BuildProvider(string, map[string]any) (provider.Provider, error) {
	return nil, errNotBuilt
}
