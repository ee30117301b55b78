package cli

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/clitest"
)

// initObjects are the objects of the clusters of TestInit: a Deployment behind the NGINX ingress controller, and a DaemonSet.
const initObjects = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:v1", ports: [{name: http, containerPort: 8080}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: "agent:v1"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop, namespace: shop}
spec:
  ingressClassName: nginx
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: other, namespace: kitchen}
spec: {hosts: [other], http: [{route: [{destination: {host: web}}]}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}`

// TestInit runs serin init in a cluster with initObjects and the objects of the input. Each run must not change any object; apply
// creates the objects that a command line prints.
func TestInit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *clitest.FakeCluster
		datadriven.RunTest(t, "testdata/init", func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				manifests := initObjects
				if d.Input != "" {
					manifests += "\n---\n" + d.Input
				}
				w = clitest.NewFakeCluster(t, manifests)
				for _, arg := range d.CmdArgs {
					switch arg.Key {
					case "forbidden":
						w.Forbid(arg.Vals...)
					case "missing":
						w.Uninstall(arg.Vals...)
					default:
						d.Fatalf(t, "unknown argument %s", arg.Key)
					}
				}
				return ""
			case "apply":
				applyOutput(t, w, d)
				return ""
			case "run":
				before := w.Versions(t)
				out := runCommand(t, w, strings.Fields(d.Input), d)
				if after := w.Versions(t); after != before {
					t.Errorf("%s changed objects:\n%s\nbefore:\n%s", d.Input, after, before)
				}
				return out
			default:
				d.Fatalf(t, "unknown command")
				return ""
			}
		})
	})
}

// applyOutput creates the objects that a command line prints.
func applyOutput(t *testing.T, w *clitest.FakeCluster, d *datadriven.TestData) {
	t.Helper()
	printed := strings.TrimSuffix(runCommand(t, w, strings.Fields(d.Input), d), "exit 0\n")
	for document := range strings.SplitSeq(printed, "\n---\n") {
		object := &unstructured.Unstructured{}
		encoded, err := yaml.YAMLToJSON([]byte(document))
		if err == nil {
			err = object.UnmarshalJSON(encoded)
		}
		if err == nil {
			err = w.Admin.Create(t.Context(), object)
		}
		if err != nil {
			t.Fatalf("apply %s: %v", document, err)
		}
	}
}

func TestParseWorkload(t *testing.T) {
	for arg, want := range map[string]string{
		"web": "Deployment web", "deployment/web": "Deployment web", "deploy/web": "Deployment web", "Deployments.apps/web": "Deployment web",
		"daemonset/web": "DaemonSet web", "ds/web": "DaemonSet web", "": "", "/web": "", "deployment/": "", "statefulset/web": "", "deployment/a/b": "", "canary/web": "",
	} {
		got, err := parseWorkload(arg)
		switch {
		case want == "" && ExitCode(err) != ExitUsage:
			t.Errorf("%q: got %v and %v, want a usage error", arg, got, err)
		case want != "" && (err != nil || got.Kind+" "+got.Name != want):
			t.Errorf("%q: got %v and %v, want %s", arg, got, err, want)
		}
	}
}
