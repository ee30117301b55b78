package v1beta1_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd/crdtest"
)

// manifest is one object of flagger.app in a file.
type manifest struct {
	name   string // file and place in it
	object map[string]any
}

func (m manifest) version() string {
	return strings.TrimPrefix(fmt.Sprint(m.object["apiVersion"]), "flagger.app/") + "/" + fmt.Sprint(m.object["kind"])
}

// manifests are those of this package, of the recorded cases, and of the end-to-end tests.
func manifests(t *testing.T) []manifest {
	t.Helper()
	var all []manifest
	for _, pattern := range []string{
		"testdata/*.yaml",
		"../../../test/conformance/flagger/*/input/*.yaml",
		"../../../test/conformance/flagger/*/later/*.yaml",
		"../../../playground/e2e/testdata/canary-*.yaml",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no manifests found in %s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, documents(t, file, text)...)
		}
	}
	return all
}

// documents reads the objects of flagger.app out of a YAML stream.
func documents(t *testing.T, file string, text []byte) []manifest {
	t.Helper()
	var all []manifest
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for i := 0; ; i++ {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		object := parse(t, string(document))
		if strings.HasPrefix(fmt.Sprint(object["apiVersion"]), "flagger.app/") {
			all = append(all, manifest{fmt.Sprintf("%s#%d", file, i), object})
		}
	}
}

// TestManifestsShowEveryField ensures that the other tests, which use the manifests, cover every field.
func TestManifestsShowEveryField(t *testing.T) {
	shown := crdtest.ShownFields{}
	for _, m := range manifests(t) {
		shown.Add(fmt.Sprint(m.object["kind"]), m.object)
	}
	for version, server := range crdtest.Servers(t, v1beta1.GroupName) {
		if kind, current := strings.CutPrefix(version, "v1beta1/"); current {
			shown.RequireAll(t, kind, server.Structural)
		}
	}
}

func TestSchemasAreStructural(t *testing.T) { crdtest.CheckSchemas(t, v1beta1.GroupName) }

func TestDefinitionsMatchThoseOfFlagger(t *testing.T) {
	type column struct {
		Name, Type, Path string
		Priority         int32
	}
	canary := []column{
		{"Status", "string", ".status.phase", 0},
		{"Weight", "string", ".status.canaryWeight", 0},
		{"Suspended", "boolean", ".spec.suspend", 1},
		{"FailedChecks", "string", ".status.failedChecks", 1},
		{"Interval", "string", ".spec.analysis.interval", 1},
		{"Mirror", "boolean", ".spec.analysis.mirror", 1},
		{"StepWeight", "string", ".spec.analysis.stepWeight", 1},
		{"StepWeights", "string", ".spec.analysis.stepWeights", 1},
		{"MaxWeight", "string", ".spec.analysis.maxWeight", 1},
		{"LastTransitionTime", "string", ".status.lastTransitionTime", 0},
	}
	want := map[string][]column{
		"v1beta1/Canary": canary, "v1alpha3/Canary": canary, "v1alpha2/Canary": canary, "v1alpha1/Canary": canary,
		"v1beta1/MetricTemplate": {{"Provider", "string", ".spec.provider.type", 0}},
		"v1beta1/AlertProvider":  {{"Type", "string", ".spec.type", 0}},
	}
	got := map[string][]column{}
	for kind, definition := range crdtest.Definitions(t, v1beta1.GroupName) {
		if policy := definition.Annotations["helm.sh/resource-policy"]; policy != "keep" {
			t.Errorf("%s: annotation helm.sh/resource-policy is %q, want keep", kind, policy)
		}
		if diff := cmp.Diff([]string{"all"}, definition.Spec.Names.Categories); diff != "" {
			t.Errorf("%s: categories (-want +got):\n%s", kind, diff)
		}
		if conversion := definition.Spec.Conversion; conversion != nil && conversion.Strategy != apiextensions.NoneConverter {
			t.Errorf("%s: conversion is %s, want none", kind, conversion.Strategy)
		}
		for _, version := range definition.Spec.Versions {
			if !version.Served || version.Storage != (version.Name == "v1beta1") {
				t.Errorf("%s %s: served=%t storage=%t", kind, version.Name, version.Served, version.Storage)
			}
			resources, err := apiextensions.GetSubresourcesForVersion(definition, version.Name)
			if err != nil || resources == nil || resources.Status == nil {
				t.Errorf("%s %s has no status subresource (%v)", kind, version.Name, err)
			}
			columns := version.AdditionalPrinterColumns
			if columns == nil { // columns that are the same in all versions are stored once
				columns = definition.Spec.AdditionalPrinterColumns
			}
			for _, c := range columns {
				key := version.Name + "/" + kind
				got[key] = append(got[key], column{c.Name, c.Type, c.JSONPath, c.Priority})
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("printer columns (-want +got):\n%s", diff)
	}
}

func TestOldVersionsHaveTheSchemaOfTheNewest(t *testing.T) {
	all := crdtest.Servers(t, v1beta1.GroupName)
	newest := all["v1beta1/Canary"].Structural
	for _, version := range []string{"v1alpha1", "v1alpha2", "v1alpha3"} {
		old := all[version+"/Canary"].Structural
		if diff := cmp.Diff(withoutDescription(newest), withoutDescription(old)); diff != "" {
			t.Errorf("%s differs from v1beta1 (-v1beta1 +%s):\n%s", version, version, diff)
		}
	}
}

// withoutDescription copies a schema without its descriptions, which are the only thing an old version lacks.
func withoutDescription(schema *structuralschema.Structural) *structuralschema.Structural {
	bare := schema.DeepCopy()
	visitor := structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		s.Description = ""
		return true
	}}
	visitor.Visit(bare)
	return bare
}

func TestManifestsAreAcceptedAndNothingIsPruned(t *testing.T) {
	all := crdtest.Servers(t, v1beta1.GroupName)
	for _, m := range manifests(t) {
		t.Run(m.name, func(t *testing.T) {
			s, served := all[m.version()]
			if !served {
				t.Fatalf("%s is not served", m.version())
			}
			if _, err := s.Create(t.Context(), m.object); err != nil {
				t.Errorf("refused: %v", err)
			}
			if diff := cmp.Diff(m.object, s.Pruned(m.object)); diff != "" {
				t.Errorf("pruned (-written +kept):\n%s", diff)
			}
		})
	}
}

// base is a Canary to which a case of a table adds one thing.
const base = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart, namespace: shop}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 80}
  analysis: {interval: 1m, threshold: 5, stepWeight: 10}
`

func TestSchemaAcceptsAndRefuses(t *testing.T) {
	cases := []struct {
		name  string
		merge string // merged into base
		want  string // part of the error; empty: accepted
	}{
		{"unchanged", `{}`, ""},
		{"no analysis", `{spec: {analysis: null}}`, ""},
		{"no service", `{spec: {service: null}}`, ""},
		{"empty analysis", `{spec: {analysis: {interval: null, threshold: null, stepWeight: null}}}`, ""},
		{"weights and iterations", `{spec: {analysis: {iterations: 5}}}`, ""},
		{"canaryAnalysis and analysis", `{spec: {canaryAnalysis: {threshold: 1}}}`, ""},
		{"interval 90s", `{spec: {analysis: {interval: 90s}}}`, ""},
		{"interval 1m30s", `{spec: {analysis: {interval: 1m30s}}}`, ""},
		{"interval 100ms", `{spec: {analysis: {interval: 100ms}}}`, ""},
		{"interval 1h", `{spec: {analysis: {interval: 1h}}}`, ""},
		{"interval 1.5h", `{spec: {analysis: {interval: 1.5h}}}`, ""},
		{"interval 1h30m", `{spec: {analysis: {interval: 1h30m}}}`, ""},
		{"interval 500us", `{spec: {analysis: {interval: 500µs}}}`, ""},
		{"interval 0", `{spec: {analysis: {interval: "0"}}}`, ""},
		{"interval with a valid prefix", `{spec: {analysis: {interval: 10seconds}}}`, ""},
		{"interval without a unit", `{spec: {analysis: {interval: "10"}}}`, "spec.analysis.interval"},
		{"interval in words", `{spec: {analysis: {interval: hourly}}}`, "spec.analysis.interval"},
		{"interval in days", `{spec: {analysis: {interval: 1d}}}`, "spec.analysis.interval"},
		{"metric interval 1h", `{spec: {analysis: {metrics: [{name: m, interval: 1h}]}}}`, ""},
		{"metric interval in words", `{spec: {analysis: {metrics: [{name: m, interval: soon}]}}}`, "spec.analysis.metrics[0].interval"},
		{"metric without a name", `{spec: {analysis: {metrics: [{interval: 1m}]}}}`, "spec.analysis.metrics[0].name"},
		{"metric without query and template", `{spec: {analysis: {metrics: [{name: anything}]}}}`, ""},
		{"range with min above max", `{spec: {analysis: {metrics: [{name: m, thresholdRange: {min: 2, max: 1}}]}}}`, ""},
		{"port 80.5", `{spec: {service: {port: 80.5}}}`, ""},
		{"port as a string", `{spec: {service: {port: "80"}}}`, "spec.service.port"},
		{"service without a port", `{spec: {service: {port: null}}}`, "spec.service.port"},
		{"targetPort by name", `{spec: {service: {targetPort: web}}}`, ""},
		{"targetPort by number", `{spec: {service: {targetPort: 8080}}}`, ""},
		{"targetPort true", `{spec: {service: {targetPort: true}}}`, "spec.service.targetPort"},
		{"ready threshold out of range", `{spec: {analysis: {primaryReadyThreshold: 101}}}`, ""},
		{"weights out of range", `{spec: {analysis: {stepWeights: [0, 200, -1, 12.5], maxWeight: 1000}}}`, ""},
		{"HPA of a version that is no longer served", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2beta1, kind: HorizontalPodAutoscaler, name: cart}}}`, ""},
		{"other autoscaler", `{spec: {autoscalerRef: {apiVersion: v1, kind: Autopilot, name: cart}}}`, "spec.autoscalerRef.kind"},
		{"no replicas for the primary", `{spec: {autoscalerRef: {apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, name: cart, primaryScalerReplicas: {minReplicas: 0}}}}`, "minReplicas"},
		{"StatefulSet", `{spec: {targetRef: {kind: StatefulSet}}}`, "spec.targetRef.kind"},
		{"no target", `{spec: {targetRef: null}}`, "spec.targetRef"},
		{"target without a name", `{spec: {targetRef: {name: null}}}`, "spec.targetRef.name"},
		{"unknown provider", `{spec: {provider: gatewayapi}}`, "spec.provider"},
		{"empty hook type", `{spec: {analysis: {webhooks: [{name: h, type: "", url: "http://h.test"}]}}}`, ""},
		{"unknown hook type", `{spec: {analysis: {webhooks: [{name: h, type: before, url: "http://h.test"}]}}}`, "spec.analysis.webhooks[0].type"},
		{"hook with an invalid URL", `{spec: {analysis: {webhooks: [{name: h, url: "not a url"}]}}}`, ""},
		{"hook without a URL", `{spec: {analysis: {webhooks: [{name: h}]}}}`, "spec.analysis.webhooks[0].url"},
		{"empty severity", `{spec: {analysis: {alerts: [{name: a, severity: "", providerRef: {name: chat}}]}}}`, ""},
		{"unknown severity", `{spec: {analysis: {alerts: [{name: a, severity: debug, providerRef: {name: chat}}]}}}`, "severity"},
		{"alert without a provider", `{spec: {analysis: {alerts: [{name: a}]}}}`, "providerRef"},
		{"header by suffix", `{spec: {analysis: {match: [{headers: {cookie: {suffix: insider}}}]}}}`, ""},
		{"header with two conditions", `{spec: {analysis: {match: [{headers: {cookie: {exact: a, regex: b}}}]}}}`, "spec.analysis.match[0].headers"},
		{"path without a condition", `{spec: {service: {match: [{uri: {}}]}}}`, ""},
		{"path with two conditions", `{spec: {service: {match: [{uri: {exact: a, prefix: b}}]}}}`, "spec.service.match[0].uri"},
		{"path with an unknown condition", `{spec: {service: {match: [{uri: {exact: a, suffix: b}}]}}}`, ""},
		{"gateway without a name", `{spec: {service: {gatewayRefs: [{namespace: infra}]}}}`, "spec.service.gatewayRefs[0].name"},
		{"gateway port 0", `{spec: {service: {gatewayRefs: [{name: public, port: 0}]}}}`, "spec.service.gatewayRefs[0].port"},
		{"too many gateways", `{spec: {service: {gatewayRefs: [` + strings.Repeat("{name: g},", 33) + `]}}}`, "spec.service.gatewayRefs"},
		{"mirror to a Service without a port", `{spec: {service: {mirror: [{backendRef: {name: shadow}}]}}}`, "Service backend must have port"},
		{"mirror to another kind without a port", `{spec: {service: {mirror: [{backendRef: {group: x.test, kind: Bucket, name: shadow}}]}}}`, ""},
		{"mirror without a backend", `{spec: {service: {mirror: [{}]}}}`, ""},
		{"trafficDistribution", `{spec: {service: {trafficDistribution: PreferFar}}}`, "spec.service.trafficDistribution"},
		{"trafficPolicy that is not an object", `{spec: {service: {trafficPolicy: [tls]}}}`, "spec.service.trafficPolicy"},
		{"one name for both cookies", `{spec: {analysis: {sessionAffinity: {cookieName: a, primaryCookieName: a}}}}`, ""},
		{"session affinity without a name", `{spec: {analysis: {sessionAffinity: {maxAge: 1}}}}`, "cookieName"},
		{"sameSite", `{spec: {analysis: {sessionAffinity: {cookieName: a, sameSite: lax}}}}`, "sameSite"},
		{"phase with the other spelling", `{status: {phase: Finalizing}}`, "status.phase"},
		{"condition without times and message", `{status: {conditions: [{type: Promoted, status: "True", reason: ""}]}}`, ""},
		{"fields of a newer version of Serin", `{status: {serin: {tomorrow: {is: here}}}}`, ""},
	}
	s := crdtest.Servers(t, v1beta1.GroupName)["v1beta1/Canary"]
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			object := parse(t, base)
			overlay(object, parse(t, c.merge))
			_, err := s.Create(t.Context(), object)
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: refused: %v", c.merge, err)
			case c.want != "" && err == nil:
				t.Errorf("%s: accepted, want an error that names %s", c.merge, c.want)
			case c.want != "" && !strings.Contains(err.Error(), c.want):
				t.Errorf("%s: refused with %q, want it to name %s", c.merge, err, c.want)
			}
		})
	}
}

func TestSchemaOfTheOtherKindsAcceptsAndRefuses(t *testing.T) {
	cases := []struct{ kind, spec, want string }{
		{"AlertProvider", `{type: slack, address: "https://chat.test"}`, ""},
		{"AlertProvider", `{type: slack, secretRef: {name: chat}}`, ""},
		{"AlertProvider", `{type: slack, address: "https://chat.test", secretRef: {name: chat}}`, ""},
		{"AlertProvider", `{type: pager, address: "https://chat.test"}`, "spec.type"},
		{"AlertProvider", `{address: "https://chat.test"}`, "spec.type"},
		{"AlertProvider", `{type: slack, secretRef: {}}`, "spec.secretRef.name"},
		{"MetricTemplate", `{provider: {type: keptn}, query: ""}`, ""},
		{"MetricTemplate", `{provider: {type: oracle}, query: q}`, "spec.provider.type"},
		{"MetricTemplate", `{provider: {type: prometheus}}`, "spec.query"},
		{"MetricTemplate", `{query: q}`, "spec.provider"},
	}
	all := crdtest.Servers(t, v1beta1.GroupName)
	for _, c := range cases {
		object := map[string]any{
			"apiVersion": "flagger.app/v1beta1", "kind": c.kind, "metadata": map[string]any{"name": "x"}, "spec": parse(t, c.spec),
		}
		_, err := all["v1beta1/"+c.kind].Create(t.Context(), object)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want an error that names %q (empty: accepted)", c.kind, c.spec, err, c.want)
		}
	}
}

func TestSchemaSetsDefaults(t *testing.T) {
	object := parse(t, base)
	overlay(object, parse(t, `{spec: {
		service: {gatewayRefs: [{name: public}], mirror: [{backendRef: {name: shadow, port: 80}}]},
		analysis: {sessionAffinity: {cookieName: cart}}}}`))
	stored, err := crdtest.Servers(t, v1beta1.GroupName)["v1beta1/Canary"].Create(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, base)
	overlay(want, parse(t, `{spec: {
		service: {
			gatewayRefs: [{name: public, group: gateway.networking.k8s.io, kind: Gateway}],
			mirror: [{backendRef: {name: shadow, port: 80, group: "", kind: Service}}]},
		analysis: {sessionAffinity: {cookieName: cart, maxAge: 86400}}}}`))
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := utilyaml.Unmarshal(asJSON, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// overlay merges objects; null removes a field.
func overlay(onto, from map[string]any) {
	for key, value := range from {
		inner, isObject := value.(map[string]any)
		below, has := onto[key].(map[string]any)
		switch {
		case value == nil:
			delete(onto, key)
		case isObject && has:
			overlay(below, inner)
		default:
			onto[key] = value
		}
	}
}
