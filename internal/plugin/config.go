package plugin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ConfigMapName is the name of the ConfigMap with the configuration, which is that of Argo Rollouts.
const ConfigMapName = "argo-rollouts-config"

// Kind of a plugin: the key of the ConfigMap that contains its list.
type Kind string

// The kinds of plugins.
const (
	Step   Kind = "stepPlugins"
	Metric Kind = "metricProviderPlugins"
	Router Kind = "trafficRouterPlugins"
)

// Item is a plugin in the configuration.
type Item struct {
	// Name of the plugin, as namespace/name.
	Name string `json:"name"`
	// Location is a file:// or https:// URL.
	Location string `json:"location"`
	// SHA256 of the file, in hexadecimal. It is required for https://.
	SHA256 string `json:"sha256"`
	// Disabled is true if the steps of a step plugin are skipped.
	Disabled bool `json:"disabled"`
	// Args are the arguments of the program.
	Args []string `json:"args"`
	// HeadersFrom are Secrets whose entries are sent as headers of the download.
	HeadersFrom []HeadersFrom `json:"headersFrom"`
}

// HeadersFrom names a Secret in the namespace of the controller.
type HeadersFrom struct {
	SecretRef struct {
		Name string `json:"name"`
	} `json:"secretRef"`
}

// Config is the configuration of all plugins.
type Config struct {
	items map[Kind]map[string]Item
	// problems are the errors in items, or under the empty name in a whole list.
	problems map[Kind]map[string]error
}

// namePattern is that of Argo Rollouts: the owner and the name of a repository.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9-]+/[a-zA-Z0-9_.-]+$`)

// ParseConfig returns the configuration in the data of the ConfigMap. A plugin with an error does not affect the others.
func ParseConfig(data map[string]string) Config {
	c := Config{items: map[Kind]map[string]Item{}, problems: map[Kind]map[string]error{}}
	for _, kind := range []Kind{Step, Metric, Router} {
		c.items[kind], c.problems[kind] = map[string]Item{}, map[string]error{}
		var list []Item
		if err := yaml.Unmarshal([]byte(data[string(kind)]), &list); err != nil {
			c.problems[kind][""] = fmt.Errorf("%s of the ConfigMap %s is not a valid list of plugins: %w", kind, ConfigMapName, err)
			continue
		}
		for _, item := range list {
			item.SHA256 = strings.ToLower(strings.TrimSpace(item.SHA256))
			err := item.validate()
			if _, exists := c.items[kind][item.Name]; exists {
				err = fmt.Errorf("it is configured twice in %s of the ConfigMap %s: remove one", kind, ConfigMapName)
			}
			if err != nil {
				c.problems[kind][item.Name] = err
			}
			c.items[kind][item.Name] = item
		}
	}
	return c
}

// validate returns the first error in a plugin, with the correction.
func (i Item) validate() error {
	if !namePattern.MatchString(i.Name) {
		return fmt.Errorf("its name must have the form namespace/name, with letters, digits and dashes: correct it in the ConfigMap %s", ConfigMapName)
	}
	if i.Disabled {
		return nil
	}
	if i.SHA256 != "" {
		if sum, err := hex.DecodeString(i.SHA256); err != nil || len(sum) != 32 {
			return errors.New("its sha256 must consist of 64 hexadecimal digits: set it to the output of sha256sum")
		}
	}
	location, err := url.Parse(i.Location)
	switch {
	case err != nil, i.Location == "":
		return errors.New("its location must be a file:// or https:// URL")
	case location.Scheme == "file" && (location.Host != "" || !filepath.IsAbs(location.Path)):
		return errors.New("its location must contain an absolute path, such as file:///plugins/example")
	case location.Scheme == "file":
		return nil
	case location.Scheme == "http":
		return errors.New("its location is http://, where the file could be replaced on its way: use https://, or mount the file and use file://")
	case location.Scheme != "https" || location.Host == "":
		return errors.New("its location must be a file:// or https:// URL")
	case i.SHA256 == "":
		return errors.New("its location is https:// and it has no sha256, which is required: set it to the output of sha256sum")
	default:
		return nil
	}
}

// Find returns a plugin. The error is a RefusedError.
func (c Config) Find(kind Kind, name string) (Item, error) {
	if err := c.problems[kind][name]; err != nil {
		return Item{}, &RefusedError{name, err}
	}
	item, found := c.items[kind][name]
	switch {
	case found:
		return item, nil
	case c.problems[kind][""] != nil:
		return Item{}, &RefusedError{name, c.problems[kind][""]}
	default:
		return Item{}, &RefusedError{name, fmt.Errorf("%w: add it to %s of the ConfigMap %s", ErrNotConfigured, kind, ConfigMapName)}
	}
}

// contains reports whether the configuration has an entry with this name, which may be one with an error.
func (c Config) contains(kind Kind, name string) bool {
	_, found := c.items[kind][name]
	return found && name != ""
}

// Problems returns all errors of the configuration, sorted.
func (c Config) Problems() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(c.problems)) {
		for _, name := range slices.Sorted(maps.Keys(c.problems[kind])) {
			if name == "" {
				out = append(out, c.problems[kind][name].Error())
			} else {
				out = append(out, fmt.Sprintf("plugin %s: %v", name, c.problems[kind][name]))
			}
		}
	}
	return out
}

// isSame reports whether both plugins are the same program with the same arguments.
func (i Item) isSame(other Item) bool { return reflect.DeepEqual(i, other) }
