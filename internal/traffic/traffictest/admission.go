package traffictest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Admission treats an object as an API server with the same definitions does: it refuses unknown and invalid fields, and sets
// defaults.
type Admission struct {
	kinds map[schema.GroupVersionKind]kind
}

// kind is defined by a CustomResourceDefinition, or by its Go type if it is built into the API server.
type kind struct {
	built      func() any
	structural *structural.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// celPerCall is the cost limit of one rule, as in the API server.
const celPerCall = 1000000

// NewAdmission reads definitions from files of a Go module, which is in the module cache because Serin links it.
func NewAdmission(t *testing.T, module string, files ...string) *Admission {
	t.Helper()
	return fromModule(t, "", module, files)
}

// NewAdmissionOf reads definitions from files of a Go module that Serin does not link, in the version in the folder
// definitions.
func NewAdmissionOf(t *testing.T, module string, files ...string) *Admission {
	t.Helper()
	return fromModule(t, "../traffictest/definitions", module, files) // from the folder of a provider
}

// LocalAdmission reads definitions from files of the test itself, for kinds whose definitions are in no Go module.
func LocalAdmission(t *testing.T, files ...string) *Admission {
	t.Helper()
	a := &Admission{kinds: map[schema.GroupVersionKind]kind{}}
	for _, file := range files {
		a.read(t, file)
	}
	return a
}

// NewBuiltIn returns the admission of a built-in kind of API servers, by its Go type.
func NewBuiltIn(gvk schema.GroupVersionKind, built func() any) *Admission {
	return &Admission{kinds: map[schema.GroupVersionKind]kind{gvk: {built: built}}}
}

// fromModule reads from the module in the version that the go.mod of a folder requires.
func fromModule(t *testing.T, folder, module string, files []string) *Admission {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module) // #nosec G204 -- a test
	command.Dir = folder
	out, err := command.Output()
	var found struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &found)
	}
	if err != nil {
		t.Fatalf("find module %s: %v: %s", module, err, out)
	}
	a := &Admission{kinds: map[schema.GroupVersionKind]kind{}}
	for _, file := range files {
		a.read(t, filepath.Join(found.Dir, file))
	}
	return a
}

func (a *Admission) read(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file) // #nosec G304 -- a test
	if err != nil {
		t.Fatalf("read definitions: %v", err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := decoder.Decode(crd); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("read definitions in %s: %v", file, err)
		}
		if crd.Name == "" {
			continue // an empty document
		}
		if err := a.add(crd); err != nil {
			t.Fatalf("definition %s: %v", crd.Name, err)
		}
	}
}

func (a *Admission) add(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, version := range crd.Spec.Versions {
		var internal apiextensions.CustomResourceValidation
		if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, &internal, nil); err != nil {
			return err
		}
		s, err := structural.NewStructural(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		if err != nil {
			return err
		}
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		a.kinds[gvk] = kind{structural: s, schema: validator, rules: cel.NewValidator(s, true, celPerCall)}
	}
	return nil
}

// Complete sets the defaults, and refuses undefined fields.
func (a *Admission) Complete(obj *unstructured.Unstructured) error {
	k, ok := a.kinds[obj.GroupVersionKind()]
	if !ok {
		return fmt.Errorf("kind %s is not defined", obj.GroupVersionKind())
	}
	if k.built != nil {
		return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, k.built(), true)
	}
	unknown := pruning.PruneWithOptions(obj.Object, k.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return fmt.Errorf("unknown fields %v", unknown)
	}
	defaulting.Default(obj.Object, k.structural)
	return nil
}

// Validate returns the reason to refuse a complete object: its schema, and the rules across fields, which are slow to
// evaluate.
func (a *Admission) Validate(ctx context.Context, obj *unstructured.Unstructured) error {
	k := a.kinds[obj.GroupVersionKind()]
	if k.built != nil {
		return nil // Complete has validated it
	}
	faults := validation.ValidateCustomResource(field.NewPath(""), obj.Object, k.schema)
	more, _ := k.rules.Validate(ctx, field.NewPath(""), k.structural, obj.Object, nil, math.MaxInt64)
	faults = append(faults, more...)
	errs := make([]error, len(faults))
	for i, fault := range faults {
		errs[i] = fault
	}
	return errors.Join(errs...)
}
