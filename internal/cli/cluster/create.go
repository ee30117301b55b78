package cluster

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd"
	"github.com/serin-dev/serin/config/crd/crdschema"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// ReadObjects reads the objects of a file with one or several YAML or JSON documents. An object of another API group, or without a
// name, is an error.
func ReadObjects(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var found []*unstructured.Unstructured
		if err == nil {
			found, err = readDocument(document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		out = append(out, found...)
	}
}

func readDocument(text []byte) ([]*unstructured.Unstructured, error) {
	content, err := yaml.YAMLToJSONStrict(text) // a repeated key is an error
	if err != nil {
		return nil, fmt.Errorf("it is not YAML of an object: %s", strings.Join(strings.Fields(err.Error()), " ")) // some errors have several lines
	}
	var value any
	if err := utiljson.Unmarshal(content, &value); err != nil {
		return nil, fmt.Errorf("it is not YAML of an object: %w", err)
	}
	if value == nil {
		return nil, nil // comments only
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("it is not a Kubernetes object")
	}
	return readObject(fields)
}

// readObject checks an object, or the objects of a list.
func readObject(fields map[string]any) ([]*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: fields}
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, errors.New("it has no apiVersion or no kind: add both")
	}
	if items, isList := fields["items"].([]any); isList && strings.HasSuffix(object.GetKind(), "List") {
		var out []*unstructured.Unstructured
		for i, item := range items {
			fields, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("items[%d] is not a Kubernetes object", i)
			}
			found, err := readObject(fields)
			if err != nil {
				return nil, fmt.Errorf("items[%d]: %w", i, err)
			}
			out = append(out, found...)
		}
		return out, nil
	}
	name := cmp.Or(object.GetName(), object.GetGenerateName())
	switch {
	case !slices.Contains(crd.Groups(), object.GroupVersionKind().Group):
		return nil, fmt.Errorf("%s %s is of %s, but only objects of %s are created: use kubectl create",
			object.GetKind(), name, object.GetAPIVersion(), strings.Join(crd.Groups(), " and "))
	case name == "":
		return nil, fmt.Errorf("the %s has no name: set metadata.name or metadata.generateName", object.GetKind())
	}
	return []*unstructured.Unstructured{object}, nil
}

// CheckFields returns an error if an object has fields that the definition of its kind in this version does not have.
func CheckFields(object *unstructured.Unstructured) error {
	gvk := object.GroupVersionKind()
	definitions, err := crdschema.Definitions(gvk.Group)
	if err != nil {
		return err
	}
	definition, found := definitions[gvk.Kind]
	if !found {
		return fmt.Errorf("%s has no kind %s", gvk.Group, gvk.Kind)
	}
	if versions := definition.Spec.Versions; !slices.ContainsFunc(versions, func(v apiextensions.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version }) {
		return fmt.Errorf("%s has no version %s: use %s/%s", gvk.Kind, gvk.Version, gvk.Group, versions[0].Name)
	}
	schema, err := crdschema.New(definition, gvk.Version)
	if err != nil {
		return err
	}
	unknown := pruning.PruneWithOptions(object.DeepCopy().Object, schema.Structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	if len(unknown) > 0 {
		return fmt.Errorf("%s %s has no field %s: correct or remove it", gvk.Kind, object.GetName(), strings.Join(unknown, ", "))
	}
	return nil
}

// Create creates an object, and sets its name and namespace. An object without a namespace is created in the given one. The API
// server refuses fields that the definition does not have; with dryRun, it only validates the object. Errors: ErrRefused if the object
// is invalid or exists, ErrNotFound, ErrUnreachable.
func (s *Session) Create(ctx context.Context, object *unstructured.Unstructured, namespace string, dryRun bool) error {
	kind, name := object.GetKind(), cmp.Or(object.GetName(), object.GetGenerateName())
	namespaced, err := s.Client.IsObjectNamespaced(object)
	where := ""
	if err == nil && namespaced {
		object.SetNamespace(cmp.Or(object.GetNamespace(), namespace))
		where = inNamespace(object.GetNamespace())
	}
	if err == nil {
		options := []client.CreateOption{client.FieldValidation("Strict")}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		err = s.Client.Create(ctx, object, options...)
	}
	operation := "create " + kind + " " + name + where
	switch {
	case apierrors.IsAlreadyExists(err):
		return failure{ErrRefused, err, operation + ": it already exists: change it with kubectl apply, or use metadata.generateName"}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return failure{ErrRefused, err, operation + ": " + err.Error()}
	case apierrors.IsNotFound(err) && namespaced:
		return failure{ErrNotFound, err, operation + ": " + err.Error()}
	case object.GroupVersionKind().Group == flaggerv1.GroupName:
		return describeError(operation, err, explain.KindCanary)
	default:
		return describeError(operation, err, explain.Kind(kind))
	}
}
