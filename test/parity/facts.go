package parity

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// Key identifies a group of names.
type Key struct{ Type, Of string }

// Definition is a CustomResourceDefinition.
type Definition struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Storage bool
			Schema  struct{ OpenAPIV3Schema map[string]any }
		}
	}
}

// StoredSchema returns the schema of the stored version.
func (d Definition) StoredSchema() map[string]any {
	for _, version := range d.Spec.Versions {
		if version.Storage {
			return version.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// FieldPaths returns the fields of a schema that contain no others, without those that all objects have. A pod template or the spec of
// a Job is one field.
func FieldPaths(schema map[string]any) []string {
	var out []string
	properties := child(schema, "properties")
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			out = appendFields(out, name, child(properties, name))
		}
	}
	return out
}

func appendFields(out []string, path string, schema map[string]any) []string {
	properties, items, values := child(schema, "properties"), child(schema, "items"), child(schema, "additionalProperties")
	switch {
	case properties["metadata"] != nil && child(properties, "spec", "properties")["containers"] != nil:
		return append(out, path+" PodTemplateSpec")
	case strings.HasSuffix(path, "job.spec") && properties["template"] != nil:
		return append(out, path+" JobSpec")
	case len(properties) > 0:
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			out = appendFields(out, path+"."+name, child(properties, name))
		}
		return out
	case items["properties"] != nil || items["items"] != nil:
		return appendFields(out, path+"[]", items)
	case values["properties"] != nil:
		return appendFields(out, path+".*", values)
	default:
		return append(out, path)
	}
}

// child returns a map in a schema; nil: there is none.
func child(schema map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		schema, _ = schema[key].(map[string]any)
	}
	return schema
}

// ConnectionFlags are the flags of the library of kubectl, which Argo's controller has.
func ConnectionFlags() []string {
	names := []string{"kubeconfig"}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&clientcmd.ConfigOverrides{}, set, clientcmd.RecommendedConfigOverrideFlags(""))
	set.VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	return names
}

// ReplaceFacts replaces groups of names of a project.
func ReplaceFacts(root, file, version string, groups map[Key][]string) error {
	path := filepath.Join(root, "test", "parity", "facts", file+".yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var project Project
	if err := yaml.UnmarshalStrict(text, &project); err != nil {
		return err
	}
	module, _, _ := strings.Cut(project.Module, " ")
	var b strings.Builder
	fmt.Fprintf(&b, "# Names in %s, as facts: fields, flags, metrics, events and so on.\nproject: %s\nmodule: %s %s\ngroups:\n", project.Name, project.Name, module, version)
	for _, group := range project.Groups {
		names := group.names()
		if found := groups[Key{group.Type, group.Of}]; found != nil {
			names = found
			delete(groups, Key{group.Type, group.Of})
		}
		writeGroup(&b, group.Type, group.Of, names)
	}
	for _, key := range slices.SortedFunc(maps.Keys(groups), func(a, b Key) int { return cmp.Or(strings.Compare(a.Type, b.Type), strings.Compare(a.Of, b.Of)) }) {
		writeGroup(&b, key.Type, key.Of, groups[key])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func writeGroup(b *strings.Builder, kind, of string, names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	fmt.Fprintf(b, "- type: %s\n  of: %s\n  names: |\n    %s\n", kind, of, strings.Join(names, "\n    "))
}
