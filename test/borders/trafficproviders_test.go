package borders

import (
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/traffic"
)

// The comment of package traffic lists the places to change for a new provider. These tests find the forgotten ones; those of
// the docs also compare the tables of features, the examples and the documented permissions.

func TestProvidersOfCanariesAreKnownEverywhere(t *testing.T) {
	registered := (&operator.Flags{}).Routers().Canary
	enum := providersOfDefinition(t)
	for _, name := range enum {
		if registered[name] == nil {
			t.Errorf("spec.provider of the Canary's definition allows %q, which operator.Flags.Routers does not register", name)
		}
	}
	var schema struct {
		Properties struct {
			MeshProvider struct {
				AnyOf []struct{ Enum []string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "charts/serin/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	notSet := func(name string) bool { return name == "" }
	if diff := cmp.Diff(traffic.ProviderNames(), slices.DeleteFunc(schema.Properties.MeshProvider.AnyOf[0].Enum, notSet)); diff != "" {
		t.Errorf("meshProvider in charts/serin/values.schema.json (-providers +schema):\n%s", diff)
	}
	pages := read(t, "docs/canary.md") + read(t, "docs/providers.md")
	for name, renderer := range registered {
		if got, known := traffic.Normalize(name); !known || got != name {
			t.Errorf("traffic.Normalize(%q) = %q, %v: add the provider to exactNames or prefixNames", name, got, known)
		}
		if !slices.Contains(enum, name) {
			t.Errorf("spec.provider of the Canary's definition does not allow %q: add it to the enum in api/flagger/v1beta1", name)
		}
		if strings.Count(pages, "`"+name+"`") < 2 { // the table of features, and the list of providers
			t.Errorf("docs/canary.md and docs/providers.md do not describe the provider %q", name)
		}
		callsContractTest(t, name, renderer, "New(")
	}
}

func TestRoutersOfRolloutsAreKnownEverywhere(t *testing.T) {
	var fields []string
	for field := range reflect.TypeFor[argov1.RolloutTrafficRouting]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	page := strings.ToLower(strings.ReplaceAll(read(t, "docs/rollout-routers.md"), " ", ""))
	for name, renderer := range (&operator.Flags{}).Routers().Rollout {
		plugin := strings.Contains(name, "/")
		if !plugin && !slices.Contains(fields, name) {
			t.Errorf("router %q is not a field of trafficRouting: it can never be used", name)
		}
		if !strings.Contains(page, "\n##"+strings.ToLower(path.Base(name))+"\n") && !strings.Contains(page, "\n##aws"+strings.ToLower(name)+"\n") {
			t.Errorf("docs/rollout-routers.md has no section about router %q", name)
		}
		callsContractTest(t, name, renderer, "NewRollout(")
	}
}

// callsContractTest requires that the package of a renderer runs the contract test with the result of a constructor.
func callsContractTest(t *testing.T, name string, renderer traffic.Renderer, constructor string) {
	t.Helper()
	rendererType := reflect.TypeOf(renderer)
	if rendererType.Kind() == reflect.Pointer {
		rendererType = rendererType.Elem()
	}
	folder := strings.TrimPrefix(rendererType.PkgPath(), module+"/")
	tests := readTests(t, folder)
	for _, call := range []string{"traffictest.Run(", "." + constructor} {
		if !strings.Contains(tests, call) {
			t.Errorf("%s does not run the contract test with the renderer of %q: its tests do not contain %q", folder, name, call)
		}
	}
}

// readTests returns the text of all tests of a package.
func readTests(t *testing.T, folder string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, file := range files {
		tests.WriteString(read(t, filepath.Join(folder, filepath.Base(file))))
	}
	return tests.String()
}

// providersOfDefinition are the values of spec.provider that the CustomResourceDefinition of Canary allows.
func providersOfDefinition(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	for _, value := range definitionOfCanary(t).Properties["spec"].Properties["provider"].Enum {
		names[strings.Trim(string(value.Raw), `"`)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// definitionOfCanary is the schema of the Canary in its CustomResourceDefinition.
func definitionOfCanary(t *testing.T) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(read(t, "config/crd/flagger.app_canaries.yaml")), &definition); err != nil {
		t.Fatal(err)
	}
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}
