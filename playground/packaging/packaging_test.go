//go:build linux

package packaging_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/playground/packaging/chart"
)

// allValues enables everything that the chart can render.
const allValues = `
meshProvider: istio
selectorLabels: app
includeLabelPrefix: team
ingressAnnotationsPrefix: custom.ingress
ingressClass: public
clusterName: lab
eventWebhook: http://events.test/
slack: {url: "http://slack.test/", channel: releases, user: serin, token: secret, proxyUrl: "http://proxy.test/"}
msteams: {url: "http://teams.test/"}
threadiness: 20
kubeconfigQPS: 100
kubeconfigBurst: "250"
noCrossNamespaceRefs: true
additionalArguments: [-drain-delay=10s]
env: [{name: A, value: b}]
controlplane: {kubeconfig: {secretName: other}}
leaderElection: {replicaCount: 2}
linkerdAuthPolicy: {create: true}
podMonitor: {enabled: true, honorLabels: true, additionalLabels: {release: prometheus}}
serviceMonitor: {enabled: true, honorLabels: true}
prometheusRule: {enabled: true, additionalLabels: {release: prometheus}}
podDisruptionBudget: {enabled: true}
dashboards: {enabled: true}
networkPolicy: {enabled: true, metricsFrom: [{namespaceSelector: {}}], egress: [{ports: [{port: 443}]}]}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]
extraDeploy: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra", namespace: "{{ .Release.Namespace }}"}}]
podPriorityClassName: system-cluster-critical
annotations: {a: b}
deploymentLabels: {c: d}
podLabels: {e: f}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: a, operator: Exists}]
image: {pullSecret: registry, tag: "1"}
rbac: {metrics: [keptn, externalmetrics]}
`

func chartFolder() string { return filepath.Join(repository, "charts", "serin") }

// render renders the chart as helm template does, and returns its objects and notes.
func render(values, namespace string) (rendered []*unstructured.Unstructured, notes string, err error) {
	return chart.Render(chartFolder(), values, namespace)
}

// createRestrictedNamespace creates a namespace that enforces the Pod Security Standard restricted.
func createRestrictedNamespace(t *testing.T, name string) {
	t.Helper()
	_, err := shared.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// checkAdmission sends objects, and a pod of each Deployment, to the API server as a dry run. It returns the kinds that the
// cluster does not have.
func checkAdmission(t *testing.T, namespace string, all []*unstructured.Unstructured) (unknown []string) {
	t.Helper()
	dry := metav1.ApplyOptions{FieldManager: "e2e", Force: true, DryRun: []string{metav1.DryRunAll}}
	for _, object := range all {
		if _, err := mapper.RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version); meta.IsNoMatchError(err) {
			unknown = append(unknown, object.GetKind())
			continue
		}
		if _, err := resourceClient(t, object.GroupVersionKind(), object.GetNamespace()).Apply(t.Context(), object.GetName(), object, dry); err != nil {
			t.Errorf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() != "Deployment" {
			continue
		}
		template := convert[appsv1.Deployment](t, object).Spec.Template
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "serin-", Labels: template.Labels, Annotations: template.Annotations}, Spec: template.Spec}
		pod.Spec.ServiceAccountName = "default" // its own was not created, because this is a dry run
		if _, err := shared.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("a pod of Deployment %s: %v", object.GetName(), err)
		}
	}
	return unknown
}

func TestTheChartPassesHelmLint(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"", "namespace: shop", allValues} {
		var given map[string]any
		if err := yaml.Unmarshal([]byte(values), &given); err != nil {
			t.Fatal(err)
		}
		result := action.NewLint().Run([]string{chartFolder()}, given)
		if action.HasWarningsOrErrors(result) {
			t.Errorf("helm lint with %q: %v %v", values, result.Messages, result.Errors)
		}
	}
}

func TestRenderedObjectsAreAdmitted(t *testing.T) {
	t.Parallel()
	createRestrictedNamespace(t, "serin-chart")
	for _, tt := range []struct {
		values  string
		unknown []string
		present []string // kind/name
		absent  []string // kinds
		notes   string
	}{
		{"", nil, []string{"Deployment/serin", "ServiceAccount/serin", "ClusterRole/serin", "ClusterRoleBinding/serin", "Role/serin-controller", "CustomResourceDefinition/canaries.flagger.app", "CustomResourceDefinition/rollouts.argoproj.io", "ClusterRole/serin-view", "ClusterRole/serin-edit"}, []string{"Secret"}, "all namespaces"},
		{"namespace: serin-chart\ncrd: {create: false}", nil, []string{"Role/serin", "RoleBinding/serin"}, []string{"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}, "serin crds | kubectl apply"},
		{"namespace: serin-chart\nrbac: {providers: [kuma]}", nil, []string{"Role/serin", "ClusterRole/serin-serin-chart"}, nil, "namespace serin-chart"},
		{allValues, []string{"AuthorizationPolicy", "PodMonitor", "PrometheusRule", "ServiceMonitor"}, []string{"Secret/serin-alerts", "PodDisruptionBudget/serin", "Service/serin", "NetworkPolicy/serin", "ConfigMap/serin-extra", "ConfigMap/serin-dashboards"}, nil, "istio"},
		{"rbac: {create: false}\nserviceAccount: {create: false, name: default}", nil, []string{"Deployment/serin"}, []string{"ClusterRole", "ServiceAccount"}, ""},
	} {
		all, notes, err := render(tt.values, "serin-chart")
		if err != nil {
			t.Errorf("render with %q: %v", tt.values, err)
			continue
		}
		var kinds, names []string
		for _, object := range all {
			kinds, names = append(kinds, object.GetKind()), append(names, object.GetKind()+"/"+object.GetName())
		}
		for _, name := range tt.present {
			if !slices.Contains(names, name) {
				t.Errorf("with %q there is no %s: %v", tt.values, name, names)
			}
		}
		for _, kind := range tt.absent {
			if slices.Contains(kinds, kind) {
				t.Errorf("with %q there is a %s: %v", tt.values, kind, names)
			}
		}
		if !strings.Contains(notes, tt.notes) {
			t.Errorf("with %q the notes do not contain %q:\n%s", tt.values, tt.notes, notes)
		}
		unknown := checkAdmission(t, "serin-chart", all)
		slices.Sort(unknown)
		if diff := cmp.Diff(tt.unknown, unknown); diff != "" {
			t.Errorf("with %q, kinds that the cluster does not have (-want +got):\n%s", tt.values, diff)
		}
	}
}

func TestInvalidValuesAreRejectedWithAMessage(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"meshProvder: istio":                                "meshProvder",
		"logLevel: loud":                                    "logLevel",
		"metricsServer: prometheus:9090":                    "metricsServer",
		"leaderElection: {replicaCount: many}":              "replicaCount",
		"leaderElection: {enabled: false, replicaCount: 2}": "several controllers would act at once",
		"shards: 1":                                "shards",
		"additionalArguments: [\"-shards=12\"]":    "set the value shards",
		"slack: {url: \"http://x\"}":               "name the channel",
		"rbac: {providers: [istoi]}":               "rbac.providers names istoi",
		"additionalArguments: [drain-delay]":       "additionalArguments",
		"additionalArguments: [-instance-id=blue]": "set the value instanceID",
		"apis: [canary, canaries]":                 "apis",
		"apis: []":                                 "apis",
		"instanceID: Blue":                         "instanceID",
		"prometheusRule: {enabled: true}\npodMonitor: {enabled: true}": "honorLabels",
	} {
		_, _, err := render(values, "default")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", values, want, err)
		}
	}
}

// TestEveryInstallationHasTheDocumentedPermissions compares with the permissions that the tests of package e2e use.
func TestEveryInstallationHasTheDocumentedPermissions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs", "examples", "permissions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := permissions(t, parseObjects(t, string(text)), "ClusterRole")
	all, _, err := render("", "default")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, permissions(t, all, "ClusterRole")); diff != "" {
		t.Errorf("the chart (-documented +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, permissions(t, buildKustomization(t, "default"), "ClusterRole")); diff != "" {
		t.Errorf("the kustomization (-documented +got):\n%s", diff)
	}
	one, _, err := render("namespace: shop", "default")
	if err != nil {
		t.Fatal(err)
	}
	documented := slices.DeleteFunc(parseObjects(t, string(text)), func(object *unstructured.Unstructured) bool { return object.GetName() == "serin-shards" })
	own := permissions(t, documented, "Role") // TestPermissionsDependOnTheEnabledFeatures checks those of shards
	if diff := cmp.Diff(own, permissions(t, all, "Role")); diff != "" {
		t.Errorf("the chart, in its own namespace (-documented +got):\n%s", diff)
	}
	if diff := cmp.Diff(own, permissions(t, buildKustomization(t, "default"), "Role")); diff != "" {
		t.Errorf("the kustomization, in its own namespace (-documented +got):\n%s", diff)
	}
	wanted := slices.Concat(want, own)
	slices.Sort(wanted)
	wanted = slices.Compact(slices.DeleteFunc(wanted, func(permission string) bool {
		return strings.HasPrefix(permission, "kuma.io/") || strings.HasPrefix(permission, "argoproj.io/clusteranalysistemplates ")
	}))
	role := permissions(t, one, "Role")
	if diff := cmp.Diff(wanted, role); diff != "" {
		t.Errorf("the chart for one namespace (-documented +got):\n%s", diff)
	}
	if diff := cmp.Diff(role, permissions(t, buildKustomization(t, "namespaced"), "Role")); diff != "" {
		t.Errorf("the kustomization for one namespace (-chart +got):\n%s", diff)
	}
	granted, _, err := render("namespace: shop\nrbac: {clusterAnalysisTemplates: true}", "default")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"argoproj.io/clusteranalysistemplates  get"}, permissions(t, granted, "ClusterRole")); diff != "" {
		t.Errorf("the cluster-scoped permissions of the chart for one namespace (-want +got):\n%s", diff)
	}
	few, _, err := render("rbac: {providers: [istio]}", "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, permission := range permissions(t, few, "ClusterRole") {
		if strings.HasPrefix(permission, "gateway.networking.k8s.io/") {
			t.Errorf("with istio only there is a permission for %s", permission)
		}
	}
}

// TestPermissionsDependOnTheEnabledFeatures checks that permissions for one API or for configuration tracking are granted
// only with it.
func TestPermissionsDependOnTheEnabledFeatures(t *testing.T) {
	t.Parallel()
	has := func(granted []string, permission string) bool { return slices.Contains(granted, permission) }
	for _, tt := range []struct {
		values, component string
		granted, missing  []string
		lease             string
	}{
		{"", "", []string{"batch/jobs  create", "/pods/eviction  create", "flagger.app/canaries  patch", "/secrets  list"}, nil, "serin"},
		{
			"apis: [canary]", "canaries-only",
			[]string{"flagger.app/canaries  patch", "/secrets  list", "/secrets  get"},
			[]string{"batch/jobs  create", "/pods/eviction  create", "/pods  patch", "apps/replicasets  create", "argoproj.io/rollouts  patch"},
			"serin",
		},
		{
			"apis: [rollout]", "rollouts-only",
			[]string{"argoproj.io/rollouts  patch", "batch/jobs  create", "/secrets  get"},
			[]string{"flagger.app/canaries  patch", "/secrets  list", "/secrets  create", "apps/deployments  create"},
			"serin",
		},
		{
			"configTracking: {enabled: false}", "no-config-tracking",
			[]string{"flagger.app/canaries  patch", "/secrets  get"},
			[]string{"/secrets  list", "/secrets  create", "/configmaps  patch"},
			"serin",
		},
		{
			"instanceID: blue", "",
			[]string{"argoproj.io/rollouts  patch", "coordination.k8s.io/leases flagger-leader-election,argo-rollouts-controller-lock-blue list"},
			nil, "serin-blue",
		},
		{"shards: 12", "shards", []string{"flagger.app/canaries  patch"}, []string{"coordination.k8s.io/leases  delete"}, "serin"},
	} {
		chart, _, err := render(tt.values, "default")
		if err != nil {
			t.Fatalf("%s: %v", tt.values, err)
		}
		sources := map[string][]*unstructured.Unstructured{"the chart with " + tt.values: chart}
		if tt.component != "" {
			sources["the component "+tt.component] = buildKustomization(t, filepath.Join("components", "testdata", tt.component))
		}
		for source, all := range sources {
			cluster, own := permissions(t, all, "ClusterRole"), permissions(t, all, "Role")
			for _, permission := range tt.granted {
				if !has(cluster, permission) {
					t.Errorf("%s does not grant %s", source, permission)
				}
			}
			for _, permission := range tt.missing {
				if has(cluster, permission) {
					t.Errorf("%s grants %s", source, permission)
				}
			}
			for _, verb := range []string{"get", "update"} {
				if !has(own, "coordination.k8s.io/leases "+tt.lease+" "+verb) || has(cluster, "coordination.k8s.io/leases  create") {
					t.Errorf("%s: wrong permissions for Leases: %q", source, own)
				}
			}
			for _, verb := range []string{"get", "list", "create", "update", "patch", "delete"} {
				if sharded := strings.Contains(tt.values, "shards"); has(own, "coordination.k8s.io/leases  "+verb) != (sharded || verb == "create") {
					t.Errorf("%s: permission to %s all Leases of the namespace, with shards %t", source, verb, sharded)
				}
			}
		}
	}
}

// TestAlertRulesAreInstalledUnchanged: the chart and the kustomization install the rules that promtool tests.
func TestAlertRulesAreInstalledUnchanged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "config", "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	chart, _, err := render("prometheusRule: {enabled: true, namespace: monitoring}", "default")
	if err != nil {
		t.Fatal(err)
	}
	for source, all := range map[string][]*unstructured.Unstructured{
		"the chart": chart, "the kustomization": buildKustomization(t, filepath.Join("components", "testdata", "prometheus-rules")),
	} {
		i := slices.IndexFunc(all, func(object *unstructured.Unstructured) bool { return object.GetKind() == "PrometheusRule" })
		if i < 0 {
			t.Errorf("%s installs no PrometheusRule", source)
			continue
		}
		if diff := cmp.Diff(any(want), all[i].Object["spec"]); diff != "" {
			t.Errorf("%s (-rules +installed):\n%s", source, diff)
		}
	}
	if all, _, err := render("", "default"); err != nil || slices.ContainsFunc(all, func(object *unstructured.Unstructured) bool { return object.GetKind() == "PrometheusRule" }) {
		t.Errorf("without the value, the chart must not require the Prometheus Operator: %v", err)
	}
}

// TestBoardsAreInstalledUnchanged: the kustomization installs the boards of the chart.
func TestBoardsAreInstalledUnchanged(t *testing.T) {
	t.Parallel()
	chart, _, err := render("dashboards: {enabled: true}", "serin-system")
	if err != nil {
		t.Fatal(err)
	}
	boards := func(all []*unstructured.Unstructured) corev1.ConfigMap {
		i := slices.IndexFunc(all, func(object *unstructured.Unstructured) bool { return object.GetName() == "serin-dashboards" })
		if i < 0 {
			t.Fatal("there are no boards")
		}
		return convert[corev1.ConfigMap](t, all[i])
	}
	ofChart, ofKustomization := boards(chart), boards(buildKustomization(t, filepath.Join("components", "testdata", "dashboards")))
	if diff := cmp.Diff(ofChart.Data, ofKustomization.Data); diff != "" {
		t.Errorf("(-chart +kustomization):\n%s", diff)
	}
	if label := "grafana_dashboard"; ofKustomization.Labels[label] != ofChart.Labels[label] || ofKustomization.Namespace != ofChart.Namespace {
		t.Errorf("got %v, want the metadata of the chart", ofKustomization.ObjectMeta)
	}
}

// permissions returns the permissions of all roles of a kind among objects, as one text each.
func permissions(t *testing.T, all []*unstructured.Unstructured, kind string) []string {
	t.Helper()
	var granted []string
	for _, object := range all {
		if object.GetKind() != kind || isAggregated(object) {
			continue
		}
		for _, rule := range convert[rbacv1.ClusterRole](t, object).Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						granted = append(granted, group+"/"+resource+" "+strings.Join(rule.ResourceNames, ",")+" "+verb)
					}
				}
			}
		}
	}
	if len(granted) == 0 {
		t.Fatalf("there is no %s with rules", kind)
	}
	slices.Sort(granted)
	return slices.Compact(granted)
}

// isAggregated reports whether a role is aggregated to the roles of users.
func isAggregated(object *unstructured.Unstructured) bool {
	for label := range object.GetLabels() {
		if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
			return true
		}
	}
	return false
}

// buildKustomization builds a kustomization of the folder config.
func buildKustomization(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(repository, "config", name))
	if err != nil {
		t.Fatalf("build config/%s: %v", name, err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, string(text))
}

func TestKustomizationsAreAdmitted(t *testing.T) {
	t.Parallel()
	createRestrictedNamespace(t, "serin-system")
	for _, name := range []string{"default", "istio", "gatewayapi", "kubernetes", "namespaced"} {
		all := buildKustomization(t, name)
		provider := "-mesh-provider=" + name
		for _, object := range all {
			if object.GetNamespace() == "" && name == "namespaced" {
				object.SetNamespace("serin-system")
			}
			if object.GetKind() != "Deployment" {
				continue
			}
			text := fmt.Sprint(object.Object)
			if name != "default" && name != "namespaced" && !strings.Contains(text, provider) {
				t.Errorf("config/%s does not set %s", name, provider)
			}
			if name == "namespaced" && !strings.Contains(text, "-namespace=$(NAMESPACE)") {
				t.Errorf("config/namespaced does not set -namespace")
			}
		}
		if unknown := checkAdmission(t, "serin-system", all); len(unknown) > 0 {
			t.Errorf("config/%s has kinds that the cluster does not have: %v", name, unknown)
		}
	}
}

// TestKustomizationsOfProvidersSetTheFlags: they differ from config/default in their flags only, except that the pods of
// Linkerd's join the mesh. All are generated in the same way, so that two suffice.
func TestKustomizationsOfProvidersSetTheFlags(t *testing.T) {
	t.Parallel()
	base := buildKustomization(t, "default")
	for name, server := range map[string]string{"nginx": "http://prometheus.monitoring:9090", "linkerd": "http://prometheus.linkerd-viz:9090"} {
		all := buildKustomization(t, name)
		i := slices.IndexFunc(all, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Deployment" })
		pod := convert[appsv1.Deployment](t, all[i]).Spec.Template
		arguments := pod.Spec.Containers[0].Args
		if want := []string{"-mesh-provider=" + name, "-metrics-server=" + server}; !slices.Equal(arguments[len(arguments)-2:], want) {
			t.Errorf("config/%s sets the arguments %q, want the last ones to be %q", name, arguments, want)
		}
		policies, injected := 0, ""
		if name == "linkerd" {
			policies, injected = 1, "enabled"
		}
		if got := pod.Annotations["linkerd.io/inject"]; got != injected || len(all) != len(base)+policies {
			t.Errorf("config/%s has %d objects, config/default %d; the annotation of its pods is %q", name, len(all), len(base), got)
		}
	}
}
