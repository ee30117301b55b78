package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
)

// Definitions are the definitions of custom kinds. They are read once, each kind is compiled on first use, and all servers of a
// process may share them.
type Definitions struct {
	kinds map[schema.GroupKind]*definition

	pruning sync.Once
	pruned  *Definitions // see WithoutSerinStatus
}

// definition is the definition of one kind, compiled or not.
type definition struct {
	resource *apiextensionsv1.CustomResourceDefinition
	compile  func() (*custom, error)
}

// Compile reads definitions from streams of YAML. If kinds are given, it reads only their definitions, because some streams are
// long.
func Compile(streams [][]byte, kinds ...schema.GroupKind) (*Definitions, error) {
	d := &Definitions{kinds: map[schema.GroupKind]*definition{}}
	for _, stream := range streams {
		reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read definitions: %w", err)
			}
			if !mayBeRequested(document, kinds) {
				continue
			}
			resource := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(document, resource); err != nil {
				return nil, fmt.Errorf("read definitions: %w", err)
			}
			if resource.Kind == "CustomResourceDefinition" {
				d.add(resource)
			}
		}
	}
	return d, nil
}

// kindLine matches the line of a definition that names its kind.
var kindLine = regexp.MustCompile(`(?m)^(?:    |  names: \{)kind: ([^\s,]+)`)

// mayBeRequested avoids decoding documents that were not requested.
func mayBeRequested(document []byte, kinds []schema.GroupKind) bool {
	if len(kinds) == 0 {
		return true
	}
	found := kindLine.FindSubmatch(document)
	if found == nil {
		return false
	}
	for _, kind := range kinds {
		if kind.Kind == string(found[1]) && bytes.Contains(document, []byte("group: "+kind.Group+"\n")) {
			return true
		}
	}
	return false
}

func (d *Definitions) add(resource *apiextensionsv1.CustomResourceDefinition) {
	kind := schema.GroupKind{Group: resource.Spec.Group, Kind: resource.Spec.Names.Kind}
	d.kinds[kind] = &definition{resource: resource, compile: sync.OnceValues(func() (*custom, error) { return compileCustom(resource) })}
}

// And returns these definitions and others, which take precedence.
func (d *Definitions) And(others *Definitions) *Definitions {
	both := &Definitions{kinds: map[schema.GroupKind]*definition{}}
	maps.Copy(both.kinds, d.kinds)
	maps.Copy(both.kinds, others.kinds)
	return both
}

// WithoutSerinStatus returns the definitions of a cluster in which those of the Canary and the Rollout were not updated: their
// schemas have no status.serin, so that the server prunes that part of every status.
func (d *Definitions) WithoutSerinStatus() *Definitions {
	d.pruning.Do(func() { d.pruned = d.withoutSerinStatus() })
	return d.pruned
}

func (d *Definitions) withoutSerinStatus() *Definitions {
	without := &Definitions{kinds: map[schema.GroupKind]*definition{}}
	for _, kind := range []schema.GroupKind{
		{Group: flaggerv1.GroupName, Kind: flaggerv1.CanaryKind}, {Group: argov1.GroupName, Kind: argov1.RolloutKind},
	} {
		known, found := d.kinds[kind]
		if !found {
			continue
		}
		old := known.resource.DeepCopy()
		for i := range old.Spec.Versions {
			delete(old.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["status"].Properties, "serin")
		}
		without.add(old)
	}
	return d.And(without)
}

// Serin returns the definitions of Serin.
var Serin = sync.OnceValues(func() (*Definitions, error) {
	stream, err := crd.YAML(flaggerv1.GroupName)
	if err != nil {
		return nil, err
	}
	return Compile([][]byte{stream})
})

// Argo returns Serin's definitions of the kinds of Argo Rollouts.
var Argo = sync.OnceValues(func() (*Definitions, error) {
	stream, err := crd.YAML(argov1.GroupName)
	if err != nil {
		return nil, err
	}
	return Compile([][]byte{stream})
})

// Routes returns third-party definitions of the given kinds, which routers write.
func Routes(ctx context.Context, kinds ...schema.GroupKind) (*Definitions, error) {
	output, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("find the repository: %w", err)
	}
	providers := filepath.Join(filepath.Dir(strings.TrimSpace(string(output))), "internal", "traffic")
	var streams [][]byte
	for _, file := range []struct{ folder, module, name string }{
		{"", "sigs.k8s.io/gateway-api", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
		{"", "istio.io/api", "kubernetes/customresourcedefinitions.gen.yaml"},
		{filepath.Join(providers, "traffictest", "definitions"), "github.com/projectcontour/contour", "examples/contour/01-crds.yaml"},
	} {
		stream, err := moduleFile(ctx, file.folder, file.module, file.name)
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
	}
	for _, provider := range []string{"consul", "gloo", "openshift"} { // their definitions are in no module
		stream, err := os.ReadFile(filepath.Join(providers, provider, "testdata", "definitions.yaml"))
		if err != nil {
			return nil, fmt.Errorf("read definitions: %w", err)
		}
		streams = append(streams, stream)
	}
	return Compile(streams, kinds...)
}

// ModuleFile reads a file of a Go module on which this one depends. Other projects publish their definitions in this way.
func ModuleFile(ctx context.Context, module, name string) ([]byte, error) {
	return moduleFile(ctx, "", module, name)
}

// moduleFile reads a file of a module in the version that the module in a folder requires.
func moduleFile(ctx context.Context, folder, module, name string) ([]byte, error) {
	// On a new machine nothing may have needed this module yet: download returns its folder and fetches it where it is missing.
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", module) // #nosec G204 -- names of modules
	command.Dir = folder
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("download module %s: %w", module, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil {
		return nil, fmt.Errorf("find module %s: %w", module, err)
	}
	content, err := os.ReadFile(filepath.Join(downloaded.Dir, name))
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	return content, nil
}
