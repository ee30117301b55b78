package chart_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/playground/packaging/chart"
)

const folder = "../../../charts/serin"

func render(t *testing.T, values string) ([]*unstructured.Unstructured, string) {
	t.Helper()
	rendered, notes, err := chart.Render(folder, values, "serin-system")
	if err != nil {
		t.Fatalf("render with %s: %v", values, err)
	}
	return rendered, notes
}

// findDeployment returns the Deployment among the rendered objects.
func findDeployment(t *testing.T, rendered []*unstructured.Unstructured) appsv1.Deployment {
	t.Helper()
	for _, object := range rendered {
		if object.GetKind() == "Deployment" {
			return convert[appsv1.Deployment](t, object)
		}
	}
	t.Fatal("there is no Deployment")
	return appsv1.Deployment{}
}

func convert[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &out, true); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return out
}

// TestValuesSetTheArguments checks the arguments of the container, all of which docs/install.md must list.
func TestValuesSetTheArguments(t *testing.T) {
	documented, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults := []string{
		"controller", "-log-level=info", "-metrics-server=http://prometheus:9090", "-enable-config-tracking=true",
		"-apis=canary,rollout", "-enable-leader-election=true", "-leader-election-namespace=serin-system",
	}
	for values, want := range map[string]struct{ add, remove []string }{
		"{}":                              {},
		"logLevel: debug":                 {[]string{"-log-level=debug"}, []string{"-log-level=info"}},
		"metricsServer: http://prom:9090": {[]string{"-metrics-server=http://prom:9090"}, []string{"-metrics-server=http://prometheus:9090"}},
		"configTracking: {enabled: false}": {
			[]string{"-enable-config-tracking=false"}, []string{"-enable-config-tracking=true"},
		},
		"apis: [rollout]":                              {[]string{"-apis=rollout"}, []string{"-apis=canary,rollout"}},
		"instanceID: blue":                             {add: []string{"-instance-id=blue"}},
		"meshProvider: gatewayapi:v1":                  {add: []string{"-mesh-provider=gatewayapi:v1"}},
		"namespace: shop":                              {add: []string{"-namespace=shop"}},
		"selectorLabels: 'app,app.kubernetes.io/name'": {add: []string{"-selector-labels=app,app.kubernetes.io/name"}},
		"includeLabelPrefix: 'team,example.com/'":      {add: []string{"-include-label-prefix=team,example.com/"}},
		"ingressAnnotationsPrefix: custom.ingress":     {add: []string{"-ingress-annotations-prefix=custom.ingress"}},
		"ingressClass: public":                         {add: []string{"-ingress-class=public"}},
		"clusterName: lab":                             {add: []string{"-cluster-name=lab"}},
		"slack: {user: serin, channel: releases}":      {add: []string{"-slack-user=serin", "-slack-channel=releases"}},
		"leaderElection: {enabled: false}": {
			remove: []string{"-enable-leader-election=true", "-leader-election-namespace=serin-system"},
		},
		"shards: 12": {add: []string{"-shards=12"}},
		"{leaderElection: {enabled: false, replicaCount: 3}, shards: 12}": {
			[]string{"-shards=12"}, []string{"-enable-leader-election=true"},
		},
		"threadiness: 20":            {add: []string{"-threadiness=20"}},
		"kubeconfigQPS: 100":         {add: []string{"-kubeconfig-qps=100"}},
		"kubeconfigBurst: '250'":     {add: []string{"-kubeconfig-burst=250"}},
		"noCrossNamespaceRefs: true": {add: []string{"-no-cross-namespace-refs=true"}},
		"controlplane: {kubeconfig: {secretName: other, key: config}}": {
			add: []string{"-kubeconfig-service-mesh=/etc/serin/controlplane/config"},
		},
		asRoot + "plugins: {enabled: true, timeout: 30s, memory: 1Gi, uid: 65533}": {add: []string{
			"-allow-plugins=true", "-plugin-dir=/var/lib/serin/plugins", "-plugin-timeout=30s", "-plugin-memory=1Gi", "-plugin-uid=65533",
		}},
		"additionalArguments: [-drain-delay=10s, -max-moving=20]": {add: []string{"-drain-delay=10s", "-max-moving=20"}},
	} {
		rendered, _ := render(t, values)
		args := findDeployment(t, rendered).Spec.Template.Spec.Containers[0].Args
		expected := slices.DeleteFunc(append(slices.Clone(defaults), want.add...), func(arg string) bool { return slices.Contains(want.remove, arg) })
		if diff := cmp.Diff(slices.Sorted(slices.Values(expected)), slices.Sorted(slices.Values(args))); diff != "" {
			t.Errorf("arguments with %s (-want +got):\n%s", values, diff)
		}
		for _, arg := range args[1:] {
			if flag, _, _ := strings.Cut(arg, "="); !strings.Contains(string(documented), "`"+flag+"`") {
				t.Errorf("%s is not in docs/install.md", flag)
			}
		}
	}
}

// base enables everything on which other values depend, except for the alert rules and, because these take long to parse, the
// CustomResourceDefinitions.
const base = `
crd: {groups: []}
slack: {url: "http://slack.test/", channel: releases}
controlplane: {kubeconfig: {secretName: other}}
linkerdAuthPolicy: {create: true}
podMonitor: {enabled: true}
serviceMonitor: {enabled: true}
podDisruptionBudget: {enabled: true}
networkPolicy: {enabled: true}
dashboards: {enabled: true}
dashboard: {enabled: true, tlsSecret: dashboard-tls}
plugins: {enabled: true}
`

// withRules enables the alert rules, and the labels that they need, and the Prometheus, which replaces metricsServer.
const withRules = `
crd: {groups: []}
prometheus: {install: true}
podMonitor: {enabled: true, honorLabels: true}
serviceMonitor: {enabled: true, honorLabels: true}
prometheusRule: {enabled: true}
`

// changes are the values for which differentValue would return an invalid value, or one without effect.
var changes = map[string]any{
	// Enabled in base.
	"linkerdAuthPolicy.create":    false,
	"podMonitor.enabled":          false,
	"serviceMonitor.enabled":      false,
	"podDisruptionBudget.enabled": false,
	"networkPolicy.enabled":       false,
	"dashboards.enabled":          false,
	"dashboard.enabled":           false,
	"plugins.enabled":             false,
	"prometheusRule.enabled":      false,
	"prometheus.install":          false,

	"logLevel":                            "debug",
	"meshProvider":                        "nginx",
	"networkPolicy.metricsFrom":           []any{map[string]any{"namespaceSelector": map[string]any{}}},
	"networkPolicy.egress":                []any{map[string]any{}},
	"topologySpreadConstraints":           []any{zoneSpread},
	"extraDeploy":                         []any{map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}}},
	"metricsServer":                       "http://elsewhere:9090",
	"image.pullPolicy":                    "Always",
	"shards":                              12,
	"threadiness":                         7,
	"kubeconfigQPS":                       7,
	"kubeconfigBurst":                     7,
	"apis":                                []any{"rollout"},
	"additionalArguments":                 []any{"-drain-delay=10s"},
	"env":                                 []any{map[string]any{"name": "A", "value": "b"}},
	"crd.groups":                          []any{"flagger.app"},
	"rbac.providers":                      []any{"istio"},
	"rbac.metrics":                        []any{"keptn"},
	"resources.requests.cpu":              "11m",
	"resources.requests.memory":           "65Mi",
	"resources.limits.memory":             "513Mi",
	"dashboard.resources.requests.cpu":    "11m",
	"dashboard.resources.requests.memory": "65Mi",
	"dashboard.resources.limits.memory":   "257Mi",
	"dashboard.serviceType":               "NodePort",
	"dashboard.hosts":                     []any{"dashboard.example.com"},
	"tolerations":                         []any{map[string]any{"key": "a", "operator": "Exists"}},
	"additionalVolumes":                   []any{map[string]any{"name": "a", "emptyDir": map[string]any{}}},
	"additionalVolumeMounts":              []any{map[string]any{"name": "a", "mountPath": "/a"}},
	"slack.url":                           "http://other.test/",
	"slack.proxyUrl":                      "http://proxy.test/",
	"msteams.url":                         "http://teams.test/",
	"msteams.proxyUrl":                    "http://proxy.test/",
	"eventWebhook":                        "http://events.test/",
	"podMonitor.interval":                 "16s",
	"podDisruptionBudget.minAvailable":    2,
	"securityContext.context.capabilities.drop":                                []any{"NET_RAW"},
	"prometheus.securityContext.context.capabilities.drop":                     []any{"NET_RAW"},
	"affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution": []any{},
}

var zoneSpread = map[string]any{"maxSkew": int64(1), "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}

// TestEveryValueChangesSomething fails for a value of values.yaml that no template uses.
func TestEveryValueChangesSomething(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values, withBase, enabledRules map[string]any
	for source, into := range map[string]*map[string]any{string(text): &values, base: &withBase, withRules: &enabledRules} {
		if err := yaml.Unmarshal([]byte(source), into); err != nil {
			t.Fatal(err)
		}
	}
	beforeBase, beforeRules := renderText(t, withBase), renderText(t, enabledRules)
	count := 0
	visitLeaves("", values, func(path string, value any) {
		count++
		enabled, before := withBase, beforeBase
		switch {
		case strings.HasPrefix(path, "prometheus"):
			enabled, before = enabledRules, beforeRules
		case path == "rbac.clusterAnalysisTemplates":
			enabled = map[string]any{"crd": map[string]any{"groups": []any{}}, "namespace": "shop"} // has no effect without a namespace
			before = renderText(t, enabled)
		}
		changed, ok := changes[path]
		if !ok {
			changed = differentValue(value)
		}
		changedValues := runtime.DeepCopyJSON(integers(enabled).(map[string]any))
		setValue(changedValues, strings.Split(path, "."), changed)
		if after := renderText(t, changedValues); after == before {
			t.Errorf("%s: %v instead of %v does not change the rendered objects", path, changed, value)
		}
	})
	if count < 60 {
		t.Errorf("values.yaml has %d values, want at least 60", count)
	}
}

// renderText returns the rendered objects and notes as one text.
func renderText(t *testing.T, values map[string]any) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	rendered, notes := render(t, string(text))
	var out strings.Builder
	for _, object := range rendered {
		fmt.Fprintln(&out, object.GetKind(), object.GetName())
		if object.GetKind() != "CustomResourceDefinition" {
			fmt.Fprintln(&out, object.Object)
		}
	}
	return out.String() + notes
}

// visitLeaves calls visit for each value that is not a non-empty map, with its path.
func visitLeaves(path string, value any, visit func(path string, value any)) {
	inside, ok := value.(map[string]any)
	if !ok || len(inside) == 0 {
		visit(path, value)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(inside)) {
		if strings.Contains(key, ".") {
			visit(path, inside) // keys that users choose, such as those of annotations
			return
		}
		visitLeaves(strings.TrimPrefix(path+"."+key, "."), inside[key], visit)
	}
}

// differentValue returns a different value of the same type.
func differentValue(value any) any {
	switch v := value.(type) {
	case bool:
		return !v
	case string:
		return v + "changed"
	case float64:
		return int64(v) + 1
	case map[string]any:
		return map[string]any{"changed": "yes"}
	default:
		return []any{"changed"}
	}
}

func setValue(values map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		inside, ok := values[key].(map[string]any)
		if !ok {
			inside = map[string]any{}
			values[key] = inside
		}
		values = inside
	}
	values[path[len(path)-1]] = value
}

// integers converts the numbers of YAML to int64, which DeepCopyJSON requires.
func integers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inside := range v {
			out[key] = integers(inside)
		}
		return out
	case float64:
		return int64(v)
	default:
		return value
	}
}

func TestCRDsOfTheSelectedGroupsAreInstalled(t *testing.T) {
	flagger := []string{"alertproviders.flagger.app", "canaries.flagger.app", "metrictemplates.flagger.app"}
	argo := []string{
		"analysisruns.argoproj.io", "analysistemplates.argoproj.io", "clusteranalysistemplates.argoproj.io", "experiments.argoproj.io",
		"rollouts.argoproj.io",
	}
	for values, test := range map[string]struct {
		want  []string
		notes string
	}{
		"{}":                           {append(slices.Clone(flagger), argo...), "the Canaries of flagger.app and the Rollouts of argoproj.io in\nall namespaces"},
		"apis: [rollout]":              {append(slices.Clone(flagger), argo...), "serves the Rollouts of argoproj.io in"},
		"crd: {groups: [flagger.app]}": {flagger, "serin crds --group argoproj.io | kubectl apply"},
		"crd: {groups: [argoproj.io]}": {argo, "serin crds --group flagger.app | kubectl apply"},
		"crd: {create: false}":         {nil, "serin crds | kubectl apply"},
	} {
		rendered, notes := render(t, values)
		var got []string
		for _, object := range rendered {
			if object.GetKind() == "CustomResourceDefinition" {
				got = append(got, object.GetName())
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("CRDs with %s (-want +got):\n%s", values, diff)
		}
		if !strings.Contains(notes, test.notes) {
			t.Errorf("notes with %s lack %q:\n%s", values, test.notes, notes)
		}
	}
}

// TestAggregatedRolesGrantAccessToReleases checks that users with the roles view, edit or admin have access to releases, and
// that the roles of the chart, of the kustomization and of an installation from source are equal.
func TestAggregatedRolesGrantAccessToReleases(t *testing.T) {
	rendered, _ := render(t, "{}")
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	kustomized, err := chart.Objects(string(text))
	if err != nil {
		t.Fatal(err)
	}
	aggregatedRules := func(objects []*unstructured.Unstructured) map[string][]rbacv1.PolicyRule {
		out := map[string][]rbacv1.PolicyRule{}
		for _, object := range objects {
			var to []string
			for label := range object.GetLabels() {
				if role, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok {
					to = append(to, role)
				}
			}
			if slices.Sort(to); len(to) > 0 {
				out[object.GetName()+" to "+strings.Join(to, ", ")] = convert[rbacv1.ClusterRole](t, object).Rules
			}
		}
		return out
	}
	got := aggregatedRules(rendered)
	want := []string{"serin-edit to admin, edit", "serin-view to admin, edit, view"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("aggregated roles (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(aggregatedRules(kustomized), got); diff != "" {
		t.Errorf("roles of the kustomization and of the chart (-kustomization +chart):\n%s", diff)
	}
	if diff := cmp.Diff(aggregatedRules(installedFromSource(t)), got); diff != "" {
		t.Errorf("roles of an installation from source and of the chart (-source +chart):\n%s", diff)
	}
	for _, rule := range got[want[1]] {
		if diff := cmp.Diff([]string{"get", "list", "watch"}, rule.Verbs); diff != "" || slices.Contains(rule.Resources, "alertproviders") {
			t.Errorf("role view permits %v %v", rule.Verbs, rule.Resources)
		}
	}
	for _, permission := range []string{"flagger.app/canaries", "argoproj.io/rollouts", "argoproj.io/rollouts/status"} { // docs/commands.md
		group, resource, _ := strings.Cut(permission, "/")
		if !slices.ContainsFunc(got[want[0]], func(rule rbacv1.PolicyRule) bool {
			return rule.APIGroups[0] == group && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, "patch")
		}) {
			t.Errorf("role edit does not permit to patch %s", permission)
		}
	}
	for _, values := range []string{"rbac: {aggregate: false}", "rbac: {create: false}", "namespace: shop"} {
		rendered, _ := render(t, values)
		if got := aggregatedRules(rendered); len(got) > 0 {
			t.Errorf("with %s there are %v", values, slices.Sorted(maps.Keys(got)))
		}
	}
}

// installedFromSource returns the objects of the manifests that the documented installation from source applies.
func installedFromSource(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, page := range []string{"README.md", "docs/install.md"} {
		text, err := os.ReadFile(filepath.Join("../../..", page))
		if err != nil {
			t.Fatal(err)
		}
		_, commands, _ := strings.Cut(string(text), "\nmake build")
		commands, _, _ = strings.Cut(commands, "\n```")
		var applied []*unstructured.Unstructured
		for _, file := range regexp.MustCompile(`kubectl apply -f (config/\S+)`).FindAllStringSubmatch(commands, -1) {
			manifest, err := os.ReadFile(filepath.Join("../../..", file[1]))
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			more, err := chart.Objects(string(manifest))
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			applied = append(applied, more...)
		}
		if all == nil {
			all = applied
		}
		if diff := cmp.Diff(all, applied); diff != "" {
			t.Errorf("%s applies other manifests than the README (-README +page):\n%s", page, diff)
		}
	}
	return all
}

func TestPodsJoinLinkerdIfThePolicyIsCreated(t *testing.T) {
	const inject = "linkerd.io/inject"
	for values, want := range map[string]string{
		"{}":                                "",
		"linkerdAuthPolicy: {create: true}": "enabled",
		"linkerdAuthPolicy: {create: true}\npodAnnotations: {linkerd.io/inject: ingress}": "ingress",
	} {
		rendered, _ := render(t, values)
		if got := findDeployment(t, rendered).Spec.Template.Annotations[inject]; got != want {
			t.Errorf("with %q, annotation %s is %q, want %q", values, inject, got, want)
		}
	}
}

// TestFlaggersValuesInstallSerin renders the chart with all values of Flagger's chart, at their defaults. Only the image must be
// set: Flagger's image would run with the permissions of Serin.
func TestFlaggersValuesInstallSerin(t *testing.T) {
	text, err := os.ReadFile("testdata/flagger-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const image = "image: {repository: ghcr.io/fluxcd/flagger, tag: 1.42.0, pullPolicy: IfNotPresent, pullSecret: }"
	own := strings.Replace(string(text), image, "image: {repository: registry.test/serin, pullSecret: }", 1)
	rendered, notes := render(t, own)
	deployment := findDeployment(t, rendered)
	pod := deployment.Spec.Template
	term := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	if diff := cmp.Diff(deployment.Spec.Selector, term.LabelSelector); diff != "" {
		t.Errorf("the anti-affinity does not select the pods (-pods +affinity):\n%s", diff)
	}
	want := []string{"controller", "-log-level=info", "-metrics-server=http://prometheus:9090", "-enable-config-tracking=true", "-apis=canary,rollout", "-slack-user=flagger"}
	if diff := cmp.Diff(want, pod.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if !strings.Contains(notes, "crd.create is false") {
		t.Errorf("the notes do not name the missing definitions:\n%s", notes)
	}
	for _, other := range []string{"ghcr.io/fluxcd/flagger", "registry.test/mirror/argo-rollouts"} {
		_, _, err := chart.Render(folder, "image: {repository: "+other+"}", "serin-system")
		if want := "image.repository is " + other + ", which is not an image of Serin: set image.repository and image.tag"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestNullIsNoValue sets each value, and each section of values, to null, as an empty line of a values file does. Helm then
// removes the default: what Serin requires is reported, and all else is as if it were empty.
func TestNullIsNoValue(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values, enabled map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(base), &enabled); err != nil {
		t.Fatal(err)
	}
	delete(enabled["slack"].(map[string]any), "url") // which requires slack.channel
	// The values of Flagger's chart, or of both, that values.yaml does not contain.
	values["global"] = nil
	values["slack"].(map[string]any)["proxy"] = nil
	values["controller"] = map[string]any{"replicas": nil}
	paths := []string{}
	visitLeaves("", values, func(path string, _ any) {
		for i := range strings.Split(path, ".") {
			paths = append(paths, strings.Join(strings.Split(path, ".")[:i+1], "."))
		}
	})
	slices.Sort(paths)
	required := []string{}
	for _, path := range slices.Compact(paths) {
		if path == "dashboard.tlsSecret" {
			continue // required with dashboard.enabled, see testDashboard
		}
		given := runtime.DeepCopyJSON(integers(enabled).(map[string]any))
		setValue(given, strings.Split(path, "."), nil)
		text, err := yaml.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		rendered, notes, err := chart.Render(folder, string(text), "serin-system")
		name := path[strings.LastIndex(path, ".")+1:]
		if err != nil && strings.Contains(err.Error(), "missing property '"+name+"'") {
			required = append(required, path)
			continue
		}
		if err != nil {
			t.Errorf("%s: null: %v", path, err)
			continue
		}
		for _, arg := range findDeployment(t, rendered).Spec.Template.Spec.Containers[0].Args {
			if strings.HasSuffix(arg, "=") {
				t.Errorf("%s: null: argument %s", path, arg)
			}
		}
		if strings.Contains(notes+fmt.Sprint(rendered), "no value") {
			t.Errorf("%s: null: the objects contain a missing value", path)
		}
	}
	want := []string{
		"apis", "configTracking", "configTracking.enabled", "crd", "crd.create", "crd.groups", "image", "image.pullPolicy", "image.repository",
		"leaderElection", "leaderElection.enabled", "leaderElection.replicaCount", "logLevel", "metricsServer", "rbac", "rbac.aggregate",
		"rbac.create", "securityContext", "securityContext.enabled", "serviceAccount", "serviceAccount.create",
	}
	if diff := cmp.Diff(want, required); diff != "" {
		t.Errorf("required values (-want +got):\n%s", diff)
	}
}

// TestValuesOfArgoRolloutsAreRejectedWithAdvice: all of them in one message, with names that exist in this chart.
func TestValuesOfArgoRolloutsAreRejectedWithAdvice(t *testing.T) {
	_, _, err := chart.Render(folder, `
installCRDs: false
controller: {replicas: 2, metrics: {serviceMonitor: {enabled: true}}, lifecycle: {}}
extraObjects: [{kind: Secret}]
`, "serin-system")
	want := `these are values of the chart of Argo Rollouts:
controller.lifecycle: remove it, because this chart has no such value
controller.metrics: set serviceMonitor.enabled, serviceMonitor.namespace and serviceMonitor.labels
controller.replicas: set leaderElection.replicaCount
extraObjects: set extraDeploy
installCRDs: set crd.create and crd.groups`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want\n%s", err, want)
	}
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	existing := map[string]bool{}
	visitLeaves("", values, func(path string, _ any) {
		for i := range strings.Split(path, ".") {
			existing[strings.Join(strings.Split(path, ".")[:i+1], ".")] = true
		}
	})
	helpers, err := os.ReadFile(filepath.Join(folder, "templates", "_helpers.tpl"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(helpers), `define "serin.valuesOfArgoRollouts"`)
	list, _, _ = strings.Cut(list, "{{- end")
	count := 0
	for line := range strings.SplitSeq(list, "\n") {
		name, advice, found := strings.Cut(line, ": ")
		if !found || strings.HasPrefix(advice, "remove it") {
			continue
		}
		count++
		named := false
		for word := range strings.FieldsFuncSeq(advice, func(r rune) bool { return r == ' ' || r == ',' }) {
			named = named || existing[word]
		}
		if !named {
			t.Errorf("the advice for %s names no value of this chart: %s", name, advice)
		}
	}
	if count < 25 {
		t.Errorf("found advice for %d values, want at least 25", count)
	}
}

// testPlugins checks that the directory of plugins is a writable volume, because the root file system is read-only.
func testPlugins(t *testing.T) {
	rendered, _ := render(t, "{}")
	if volumes := findDeployment(t, rendered).Spec.Template.Spec.Volumes; len(volumes) > 0 {
		t.Errorf("there are volumes by default: %v", volumes)
	}
	rendered, _ = render(t, "plugins: {enabled: true, sizeLimit: 2Gi}")
	pod := findDeployment(t, rendered).Spec.Template.Spec
	container := pod.Containers[0]
	i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return slices.Contains(container.Args, "-plugin-dir="+m.MountPath) && !m.ReadOnly
	})
	if i < 0 {
		t.Fatalf("no writable volume is mounted at the directory of plugins: %v, mounts %v", container.Args, container.VolumeMounts)
	}
	j := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == container.VolumeMounts[i].Name })
	if j < 0 || pod.Volumes[j].EmptyDir == nil || pod.Volumes[j].EmptyDir.SizeLimit.String() != "2Gi" {
		t.Errorf("the volumes are %v, want an emptyDir with the size limit", pod.Volumes)
	}
}

// asRoot are the values that plugins.uid requires.
const asRoot = `
podSecurityContext: {runAsUser: 0, runAsNonRoot: false}
securityContext: {context: {capabilities: {add: [SETUID, SETGID, CHOWN, DAC_OVERRIDE, KILL]}}}
`

// TestPluginsOfAnotherUserRequirePrivileges: the chart reports all that is missing, in one message.
func TestPluginsOfAnotherUserRequirePrivileges(t *testing.T) {
	const enabled = "crd: {create: false}\nplugins: {enabled: true, uid: 65533}\n"
	const user, nonRoot = "podSecurityContext.runAsUser: set it to 0", "podSecurityContext.runAsNonRoot: set it to false"
	const capabilities = "securityContext.context.capabilities.add: add SETUID, SETGID, CHOWN, DAC_OVERRIDE, KILL"
	for values, want := range map[string][]string{
		"":                                   {user, nonRoot, capabilities},
		"podSecurityContext: {runAsUser: 0}": {nonRoot, capabilities},
		"podSecurityContext: {runAsUser: null, runAsNonRoot: null}":   {user, capabilities},
		"podSecurityContext: null\nsecurityContext: {enabled: false}": {user},
		"podSecurityContext: {runAsUser: 0, runAsNonRoot: false}\nsecurityContext: {context: {runAsUser: 5, runAsNonRoot: true, capabilities: {drop: [KILL]}}}": {
			"securityContext.context.runAsUser: set it to 0", "securityContext.context.runAsNonRoot: set it to false", "securityContext.context.capabilities.add: add KILL",
		},
		strings.Replace(asRoot, "runAsUser: 0,", "runAsUser: 0, fsGroup: 65533,", 1): {"podSecurityContext.fsGroup: set it to another group, because this one may read the token of Serin"},
		asRoot: nil,
		"podSecurityContext: null\nsecurityContext: {context: {runAsUser: 0, capabilities: null}}":                          nil,
		"podSecurityContext: {runAsUser: 0, runAsNonRoot: false}\nsecurityContext: {context: {capabilities: {add: [ALL]}}}": nil,
	} {
		_, _, err := chart.Render(folder, enabled+values, "serin-system")
		switch {
		case len(want) == 0 && err != nil:
			t.Errorf("with %s: %v", values, err)
		case len(want) > 0 && (err == nil || !strings.HasSuffix(err.Error(), "remove plugins.uid:\n"+strings.Join(want, "\n"))):
			t.Errorf("with %s: got %v, want an error that ends with\n%s", values, err, strings.Join(want, "\n"))
		}
	}
	for _, values := range []string{"plugins: {enabled: true, uid: 0}", "plugins: {enabled: true, uid: ''}", "plugins: {enabled: false, uid: 65533}"} {
		if _, _, err := chart.Render(folder, "{crd: {create: false}, "+values+"}", "serin-system"); err != nil {
			t.Errorf("with %s: %v", values, err)
		}
	}
	rendered, _ := render(t, enabled+asRoot+"controlplane: {kubeconfig: {secretName: other}}")
	volumes := findDeployment(t, rendered).Spec.Template.Spec.Volumes
	i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Secret != nil })
	if i < 0 || volumes[i].Secret.DefaultMode == nil || *volumes[i].Secret.DefaultMode != 0o400 {
		t.Errorf("plugins can read the kubeconfig: %v", volumes)
	}
}

func TestOptionalObjectsAndFields(t *testing.T) {
	find := func(t *testing.T, values, kind string) *unstructured.Unstructured {
		t.Helper()
		rendered, _ := render(t, values)
		i := slices.IndexFunc(rendered, func(object *unstructured.Unstructured) bool { return object.GetKind() == kind })
		if i < 0 {
			return nil
		}
		return rendered[i]
	}
	t.Run("NetworkPolicy", func(t *testing.T) {
		if find(t, "{}", "NetworkPolicy") != nil {
			t.Error("there is a NetworkPolicy by default")
		}
		policy := convert[networkingv1.NetworkPolicy](t, find(t, "networkPolicy: {enabled: true}", "NetworkPolicy"))
		if len(policy.Spec.Ingress) != 1 || len(policy.Spec.Ingress[0].From) != 0 || !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress"}) {
			t.Errorf("by default, it must permit all clients of the port and restrict no egress: %+v", policy.Spec)
		}
		rendered, _ := render(t, "networkPolicy: {enabled: true}")
		if diff := cmp.Diff(findDeployment(t, rendered).Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels); diff != "" {
			t.Errorf("selected pods (-deployment +policy):\n%s", diff)
		}
		policy = convert[networkingv1.NetworkPolicy](t, find(t, `
networkPolicy:
  enabled: true
  metricsFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
  egress: [{ports: [{port: 443}]}]
`, "NetworkPolicy"))
		if len(policy.Spec.Ingress[0].From) != 1 || len(policy.Spec.Egress) != 1 || !slices.Contains(policy.Spec.PolicyTypes, "Egress") {
			t.Errorf("got %+v", policy.Spec)
		}
	})
	t.Run("extraDeploy", func(t *testing.T) {
		secret := find(t, "extraDeploy: [{apiVersion: v1, kind: Secret, metadata: {name: '{{ .Release.Name }}-datadog'}}]\nslack: {}", "Secret")
		if secret == nil || secret.GetName() != "serin-datadog" {
			t.Errorf("got %v", secret)
		}
	})
	t.Run("serviceMonitor.namespace", func(t *testing.T) {
		monitor := find(t, "serviceMonitor: {enabled: true, namespace: monitoring}", "ServiceMonitor")
		names, _, err := unstructured.NestedStringSlice(monitor.Object, "spec", "namespaceSelector", "matchNames")
		if monitor.GetNamespace() != "monitoring" || err != nil || !slices.Equal(names, []string{"serin-system"}) {
			t.Errorf("a ServiceMonitor in namespace %s selects Services in %v: %v", monitor.GetNamespace(), names, err)
		}
	})
	t.Run("dashboards", func(t *testing.T) {
		if find(t, "{}", "ConfigMap") != nil {
			t.Error("there are boards by default")
		}
		object := find(t, "dashboards: {enabled: true, namespace: monitoring, annotations: {grafana_folder: Serin}}", "ConfigMap")
		boards := convert[corev1.ConfigMap](t, object)
		if boards.Namespace != "monitoring" || boards.Labels["grafana_dashboard"] != "1" || boards.Annotations["grafana_folder"] != "Serin" {
			t.Errorf("got %v", boards.ObjectMeta)
		}
		want := map[string]string{}
		for _, name := range []string{"controller.json", "release.json", "releases.json"} {
			text, err := os.ReadFile(filepath.Join("../../../config/grafana", name))
			if err != nil {
				t.Fatal(err)
			}
			want[name] = string(text)
		}
		if diff := cmp.Diff(want, boards.Data); diff != "" {
			t.Errorf("boards (-config/grafana +chart):\n%s", diff)
		}
	})
	t.Run("dashboard", testDashboard)
	t.Run("plugins", testPlugins)
	t.Run("prometheus", func(t *testing.T) {
		testPrometheus(t, "prometheus: {install: true}", "ClusterRole")
		testPrometheus(t, "{namespace: shop, prometheus: {install: true}}", "Role")
		// The section of the values file of Flagger's chart.
		testPrometheus(t, "prometheus: {install: true, image: 'docker.io/prom/prometheus:v2.41.0', pullSecret: , retention: 2h, securityContext: {enabled: false}}", "ClusterRole")
	})
	t.Run("topologySpreadConstraints", func(t *testing.T) {
		rendered, _ := render(t, `
topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}
  - {maxSkew: 1, topologyKey: host, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}
`)
		deployment := findDeployment(t, rendered)
		got := deployment.Spec.Template.Spec.TopologySpreadConstraints
		if diff := cmp.Diff(deployment.Spec.Selector, got[0].LabelSelector); len(got) != 2 || diff != "" || len(got[1].LabelSelector.MatchLabels) != 1 {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("no empty fields", func(t *testing.T) {
		rendered, _ := render(t, "{}")
		for _, object := range rendered {
			if object.GetKind() != "Deployment" {
				continue
			}
			if path := nullField("", object.Object); path != "" {
				t.Errorf("%s is null", path)
			}
		}
	})
}

// TestTheDashboardIsNotRoot: with plugins.uid, the controller has to run as root, and only the controller.
func TestTheDashboardIsNotRoot(t *testing.T) {
	rendered, _ := render(t, `
dashboard: {enabled: true, tlsSecret: dashboard-tls}
plugins: {enabled: true, uid: 1000}
podSecurityContext: {runAsNonRoot: false, runAsUser: 0}
securityContext: {context: {capabilities: {add: [SETUID, SETGID, CHOWN, DAC_OVERRIDE, KILL]}}}
`)
	users := map[string]int64{}
	for _, object := range rendered {
		if object.GetKind() != "Deployment" {
			continue
		}
		pod := convert[appsv1.Deployment](t, object).Spec.Template.Spec
		users[object.GetName()] = *pod.SecurityContext.RunAsUser
		if added := pod.Containers[0].SecurityContext.Capabilities.Add; object.GetName() == "serin-dashboard" && len(added) > 0 {
			t.Errorf("the dashboard has the capabilities %v", added)
		}
	}
	if diff := cmp.Diff(map[string]int64{"serin": 0, "serin-dashboard": 65532}, users); diff != "" {
		t.Errorf("users of the pods (-want +got):\n%s", diff)
	}
}

// testDashboard checks that the dashboard has no permissions of its own, and serves with TLS only.
func testDashboard(t *testing.T) {
	if _, _, err := chart.Render(folder, "dashboard: {enabled: true}", "serin-system"); err == nil || !strings.Contains(err.Error(), "kubernetes.io/tls") {
		t.Errorf("without a certificate: %v", err)
	}
	rendered, _ := render(t, "{namespace: shop, dashboard: {enabled: true, tlsSecret: dashboard-tls, hosts: [releases.example.com]}}")
	const name = "serin-dashboard"
	var deployment appsv1.Deployment
	for _, object := range rendered {
		switch kind := object.GetKind(); {
		case strings.HasSuffix(kind, "Binding"):
			for _, subject := range convert[rbacv1.RoleBinding](t, object).Subjects {
				if subject.Name == name {
					t.Errorf("%s %s grants permissions to the dashboard", kind, object.GetName())
				}
			}
		case kind == "Deployment" && object.GetName() == name:
			deployment = convert[appsv1.Deployment](t, object)
		}
	}
	pod := deployment.Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != name {
		t.Fatalf("the pod has the token of a ServiceAccount, or no container: %+v", pod)
	}
	want := []string{
		"dashboard", "--auth=token", "--listen=:8443", "--tls-cert=/tls/tls.crt", "--tls-key=/tls/tls.key", "--server=https://kubernetes.default.svc",
		"--certificate-authority=/kubernetes/ca.crt", "--host=releases.example.com", "--namespace=shop",
	}
	if diff := cmp.Diff(want, pod.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// testPrometheus checks that Serin queries the Prometheus of the chart, and that this has the permission, and the selectors, to
// find what it scrapes.
func testPrometheus(t *testing.T, values, roleKind string) {
	t.Helper()
	const name = "serin-prometheus"
	rendered, notes := render(t, values)
	objects := map[string]*unstructured.Unstructured{}
	for _, object := range rendered {
		objects[object.GetKind()+"/"+object.GetName()] = object
	}
	for _, key := range []string{"Deployment/" + name, "Service/" + name, "ConfigMap/" + name, "ServiceAccount/" + name, roleKind + "/" + name, roleKind + "Binding/" + name} {
		if objects[key] == nil {
			t.Fatalf("%s: there is no %s", values, key)
		}
	}
	own := convert[appsv1.Deployment](t, objects["Deployment/serin"])
	prometheus := convert[appsv1.Deployment](t, objects["Deployment/"+name])
	service := convert[corev1.Service](t, objects["Service/"+name])
	const address = "http://serin-prometheus.serin-system:9090"
	if !slices.Contains(own.Spec.Template.Spec.Containers[0].Args, "-metrics-server="+address) || !strings.Contains(notes, address) {
		t.Errorf("%s: Serin does not query %s: %v", values, address, own.Spec.Template.Spec.Containers[0].Args)
	}
	if service.Spec.Ports[0].Port != 9090 {
		t.Errorf("%s: the Service has port %d", values, service.Spec.Ports[0].Port)
	}
	if !isSubset(service.Spec.Selector, prometheus.Spec.Template.Labels) || isSubset(own.Spec.Selector.MatchLabels, prometheus.Spec.Template.Labels) {
		t.Errorf("%s: the Service must select the pods of Prometheus, and Serin's Deployment must not: %v", values, prometheus.Spec.Template.Labels)
	}
	role := convert[rbacv1.Role](t, objects[roleKind+"/"+name])
	if diff := cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}, role.Rules); diff != "" {
		t.Errorf("%s: permissions of Prometheus (-want +got):\n%s", values, diff)
	}
	var config struct {
		ScrapeConfigs []struct {
			Discovery []struct {
				Namespaces struct{ Names []string } `json:"namespaces"`
			} `json:"kubernetes_sd_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(convert[corev1.ConfigMap](t, objects["ConfigMap/"+name]).Data["prometheus.yml"]), &config); err != nil {
		t.Fatal(err)
	}
	for _, job := range config.ScrapeConfigs {
		if names := job.Discovery[0].Namespaces.Names; (roleKind == "Role") != slices.Equal(names, []string{role.Namespace}) {
			t.Errorf("%s: a %s in namespace %q, but Prometheus lists the pods of %v", values, roleKind, role.Namespace, names)
		}
	}
	if len(config.ScrapeConfigs) != 2 {
		t.Errorf("%s: %d jobs, want 2", values, len(config.ScrapeConfigs))
	}
}

func isSubset(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// nullField returns the path of a field that is null, or "".
func nullField(path string, value any) string {
	switch v := value.(type) {
	case nil:
		return path
	case map[string]any:
		for key, inside := range v {
			if found := nullField(path+"."+key, inside); found != "" {
				return found
			}
		}
	case []any:
		for _, inside := range v {
			if found := nullField(path+"[]", inside); found != "" {
				return found
			}
		}
	}
	return ""
}

func TestUnknownMeshProvidersAreRejected(t *testing.T) {
	for _, name := range []string{"gatewayapi", "istoi", "supergloo:mesh"} {
		_, _, err := chart.Render(folder, "meshProvider: "+name, "serin-system")
		if err == nil || !strings.Contains(err.Error(), "/meshProvider") || !strings.Contains(err.Error(), "'gatewayapi:v1'") {
			t.Errorf("meshProvider %s: got %v, want an error that lists the providers", name, err)
		}
	}
	for _, name := range slices.Concat(traffic.ProviderNames(), []string{"smi:v1alpha1:istio", "gloo-edge", "gatewayapi:v1:mesh"}) {
		if _, _, err := chart.Render(folder, "{crd: {create: false}, meshProvider: '"+name+"'}", "serin-system"); err != nil {
			t.Errorf("meshProvider %s: %v", name, err)
		}
	}
}
