package scaffold_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/lint"
	"github.com/serin-dev/serin/internal/cli/plan"
	"github.com/serin-dev/serin/internal/cli/scaffold"
	"github.com/serin-dev/serin/internal/operator"
)

// fixtures are objects of namespace shop, by the names that the test data uses.
var fixtures = map[string]string{
	"deployment": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec: {containers: [{name: web, image: "web:v1", ports: [{name: http, containerPort: 8080}]}]}`,
	"scraped": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {prometheus.io/scrape: "true"}}
    spec: {containers: [{name: web, image: "web:v1", ports: [{containerPort: 9090, name: metrics}, {containerPort: 8080, name: http}]}]}`,
	"portless": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:v1"}]}`,
	"daemonset": `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:v1", ports: [{containerPort: 9100}]}]}`,
	"service": `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http, protocol: TCP}]}`,
	"httproute": `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public, namespace: infra, sectionName: https}]
  hostnames: [shop.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{group: "", kind: Service, name: web, port: 80, weight: 1}]`,
	"virtualservice": `
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [shop.example.com]
  gateways: [istio-system/public]
  http:
  - route: [{destination: {host: web.shop.svc.cluster.local, port: {number: 80}}}]`,
	"ingressroute": `
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: shop}
spec: {routes: [{kind: Rule, match: "Host(` + "`shop.example.com`" + `)", services: [{name: web, port: 80}]}]}`,
	"traefikservice": `
apiVersion: traefik.io/v1alpha1
kind: TraefikService
metadata: {name: weighted}
spec: {weighted: {services: [{name: web, port: 80, weight: 1}]}}`,
	"httpproxy": `
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: root}
spec:
  virtualhost: {fqdn: shop.example.com}
  routes: [{conditions: [{prefix: /}], services: [{name: web, port: 80}]}]`,
	"apisixroute": `
apiVersion: apisix.apache.org/v2
kind: ApisixRoute
metadata: {name: shop}
spec: {http: [{name: main, match: {hosts: [shop.example.com], paths: [/*]}, backends: [{serviceName: web, servicePort: 80}]}]}`,
	"ingress": `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: nginx
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]`,
	"hpa": `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`,
	"scaledobject": `
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web-events}
spec: {scaleTargetRef: {name: web}, triggers: []}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: keda-hpa-web-events
  ownerReferences: [{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: web-events, uid: x, controller: true}]
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`,
}

// decodeObjects decodes YAML documents of namespace shop.
func decodeObjects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		encoded, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatalf("read %s: %v", document, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(encoded); err != nil {
			t.Fatalf("read %s: %v", document, err)
		}
		if object.GetNamespace() == "" {
			object.SetNamespace("shop")
		}
		out = append(out, object)
	}
	return out
}

// isWorkload reports whether an object is the workload of a test.
func isWorkload(object *unstructured.Unstructured) bool {
	return object.GetKind() == "Deployment" || object.GetKind() == "DaemonSet"
}

func scanInput(t *testing.T, d *datadriven.TestData) scaffold.Input {
	t.Helper()
	in := scaffold.Input{Kind: d.Cmd, SelectorLabels: []string{"app", "name", "app.kubernetes.io/name"}}
	objects := decodeObjects(t, d.Input)
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "with":
			for _, name := range arg.Vals {
				if fixtures[name] == "" {
					d.Fatalf(t, "there is no fixture %s", name)
				}
				objects = append(objects, decodeObjects(t, fixtures[name])...)
			}
		case "provider":
			in.Provider = arg.Vals[0]
		case "port":
			d.ScanArgs(t, "port", &in.Port)
		case "unread":
			in.Unread = arg.Vals
		default:
			d.Fatalf(t, "unknown argument %s", arg.Key)
		}
	}
	for _, object := range objects {
		if isWorkload(object) {
			in.Workload = object
		} else {
			in.Objects = append(in.Objects, object)
		}
	}
	return in
}

// TestManifest shows the manifest for a workload and the objects around it. Every manifest must be accepted by the linter, and have
// a plan that ends; the order in which the objects were read must not matter.
func TestManifest(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			in := scanInput(t, d)
			text, err := scaffold.Manifest(in)
			slices.Reverse(in.Objects)
			if reversed, _ := scaffold.Manifest(in); reversed != text {
				t.Errorf("%s: the manifest depends on the order of the objects:\n%s", d.Pos, reversed)
			}
			if err != nil {
				return "refused: " + err.Error() + "\n"
			}
			checkManifest(t, in, text)
			return text
		})
	})
}

// checkManifest checks a manifest with the rules of the controller.
func checkManifest(t *testing.T, in scaffold.Input, text string) {
	t.Helper()
	if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		t.Errorf("the manifest has control characters:\n%q", text)
	}
	settings, routers := cluster.SettingsFor(nil)
	findings, err := lint.Lint(t.Context(), []lint.Input{{Name: "x.yaml", Text: []byte(text)}}, lint.Options{
		Settings: settings, MetricTypes: operator.MetricTypes(),
		Features: func(c *flaggerv1.Canary, provider string) canary.Features {
			return controller.Features(routers, c, provider)
		},
		CheckRoute: routers.CheckRoute, CheckRouting: routers.CheckRouting, ExternalPlugins: routers.ExternalPlugins,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		// The Service that clients call exists already, and is no part of the manifest.
		if f.Rule != "missing-reference" || f.Field != "spec.strategy.canary.stableService" {
			t.Errorf("finding of the linter: %s %s: %s\n%s", f.Rule, f.Field, f.Message, text)
		}
	}
	workload, err := yaml.Marshal(in.Workload.Object)
	if err != nil {
		t.Fatal(err)
	}
	for source, manifest := range map[string]string{"alone": text, "with its workload": text + "---\n" + string(workload)} {
		manifests, err := plan.ReadManifests(strings.NewReader(manifest), "default")
		if err != nil {
			t.Fatalf("the manifest %s cannot be read: %v\n%s", source, err, text)
		}
		inputs := manifests.Inputs(cluster.PlanController(nil))
		if len(inputs) != 1 {
			t.Fatalf("the manifest has %d releases:\n%s", len(inputs), text)
		}
		planned, err := plan.New(inputs[0])
		if err != nil {
			t.Errorf("the manifest %s has no plan: %v\n%s", source, err, text)
			continue
		}
		if planned.Namespace != "shop" || planned.Name != "web" || planned.Duration.ShortestSeconds <= 0 || len(planned.Duration.Unbounded) > 0 {
			t.Errorf("the manifest %s has the plan %+v\n%s", source, planned, text)
		}
	}
}

// TestEveryKindIsUsed changes one kind after the other: a kind without influence need not be read.
func TestEveryKindIsUsed(t *testing.T) {
	covered := map[string]bool{"Canary": true, "Rollout": true, "IngressClass": true} // in testdata/refused and testdata/classes
	for _, name := range slices.Sorted(maps.Keys(fixtures)) {
		objects := decodeObjects(t, fixtures[name])
		if isWorkload(objects[0]) {
			continue
		}
		in := scaffold.Input{Kind: "Canary", Workload: decodeObjects(t, fixtures["deployment"])[0], SelectorLabels: []string{"app"}}
		if objects[0].GetKind() != "Service" {
			in.Objects = decodeObjects(t, fixtures["service"])
		}
		without, err := scaffold.Manifest(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Objects = append(in.Objects, objects...)
		with, err := scaffold.Manifest(in)
		if err != nil {
			t.Fatal(err)
		}
		if with != without {
			covered[objects[0].GetKind()] = true
		}
	}
	for _, kind := range scaffold.Kinds() {
		if !covered[kind.Kind] {
			t.Errorf("the kind %s has no influence on any manifest, or no fixture", kind.Kind)
		}
	}
}

// TestEveryProviderHasAManifest names each provider for a workload with all kinds of routes.
func TestEveryProviderHasAManifest(t *testing.T) {
	for _, kind := range []string{"Canary", "Rollout"} {
		for _, provider := range scaffold.Providers(kind) {
			in := scaffold.Input{Kind: kind, Provider: provider, SelectorLabels: []string{"app"}}
			for _, name := range slices.Sorted(maps.Keys(fixtures)) {
				for _, object := range decodeObjects(t, fixtures[name]) {
					switch {
					case name == "ingress" && (provider == "alb" || provider == "skipper"):
						object.Object["spec"].(map[string]any)["ingressClassName"] = provider
						in.Objects = append(in.Objects, object)
					case !isWorkload(object):
						in.Objects = append(in.Objects, object)
					case name == "deployment":
						in.Workload = object
					}
				}
			}
			text, err := scaffold.Manifest(in)
			if err != nil {
				t.Errorf("%s with %s: %v", kind, provider, err)
				continue
			}
			checkManifest(t, in, text)
		}
	}
}

// FuzzHostileNames gives texts from the cluster to every place of a manifest where one may occur: it remains one release, with the
// same texts as values.
func FuzzHostileNames(f *testing.F) {
	for _, text := range []string{
		"x\n---\nkind: Secret", "# x", "x: y", "{{ x }}", "\x1b[31m", "'", `"`, "*", "&x", "!x", "%", "- x", "null", "1e3", "yes", "", " ", "\t", strings.Repeat("ä ", 300),
	} {
		f.Add(text)
	}
	f.Fuzz(checkHostileName)
}

func checkHostileName(t *testing.T, text string) {
	// Generated texts that YAML does not return unchanged are not tested; the seeds contain none.
	encoded, err := yaml.Marshal(text)
	if err != nil || strings.ToValidUTF8(text, "") != text {
		t.Skip()
	}
	value := new(string)
	if err := yaml.Unmarshal(encoded, value); err != nil || *value != text {
		t.Skip()
	}
	for _, kind := range []string{"Canary", "Rollout"} {
		for _, name := range []string{"httproute", "virtualservice", "ingressroute", "traefikservice", "httpproxy", "apisixroute", "ingress"} {
			in := scaffold.Input{Kind: kind, Workload: decodeObjects(t, fixtures["deployment"])[0], SelectorLabels: []string{"app"}}
			in.Objects = decodeObjects(t, fixtures["service"]+"\n---\n"+fixtures[name]+"\n---\n"+fixtures["hpa"])
			service, route := in.Objects[0], in.Objects[1]
			port := service.Object["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)
			port["name"], port["targetPort"], port["appProtocol"] = text, text, text
			route.SetName(text)
			replaceTexts(route.Object["spec"], "shop.example.com", text)
			replaceTexts(route.Object["spec"], "istio-system/public", text)
			in.Objects[2].SetName(text)
			printed, err := scaffold.Manifest(in)
			if err != nil {
				continue
			}
			var kinds []string
			for document := range bytes.SplitSeq([]byte(printed), []byte("\n---\n")) {
				var object map[string]any
				if err := yaml.UnmarshalStrict(document, &object); err != nil {
					t.Fatalf("%s with %q: %v\n%s", name, text, err, printed)
				}
				kinds = append(kinds, fmt.Sprint(object["kind"]))
				checkValues(t, object, text, printed)
			}
			if kinds[0] != kind || len(kinds) > 3 || slices.Contains(kinds, "Secret") {
				t.Fatalf("%s with %q: the documents are %v\n%s", name, text, kinds, printed)
			}
		}
	}
}

// replaceTexts replaces a text in all values of a tree.
func replaceTexts(tree any, before, after string) {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			if value == before {
				tree[key] = after
			}
			replaceTexts(value, before, after)
		}
	case []any:
		for i, value := range tree {
			if value == before {
				tree[i] = after
			}
			replaceTexts(value, before, after)
		}
	}
}

// checkValues checks that the port of a Canary has the text as it is.
func checkValues(t *testing.T, object map[string]any, text, printed string) {
	t.Helper()
	if object["kind"] != "Canary" {
		return
	}
	if got, _, _ := unstructured.NestedString(object, "spec", "service", "appProtocol"); got != text {
		t.Fatalf("the protocol is %q instead of %q\n%s", got, text, printed)
	}
}
