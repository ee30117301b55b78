// Package packaging generates what the chart and the kustomization install from its sources: the permissions in docs/examples
// and docs/install.md, the CustomResourceDefinitions in config/crd, the alert rules in config/prometheus, and the boards in
// config/grafana. Every permission, rule and board is therefore written once, in a file that tests and readers use. The
// kustomizations for providers differ in two flags, so they are generated from a list.
//
// It reads and writes files of the repository. It must not know how they are installed.
package packaging

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The sources, and the heading of the section with the permissions for optional features.
const (
	permissionsFile   = "docs/examples/rights.yaml"
	installPage       = "docs/install.md"
	metricsHeading    = "## Permissions for metrics services"
	definitionsFolder = "config/crd"
	alertRulesFile    = "config/prometheus/rules.yaml"
	boardsFolder      = "config/grafana"
)

// generatedHeader is the first line of every generated file.
const generatedHeader = "# Made by `make generate`; what it is made of is in docs/examples/rights.yaml, docs/install.md and config/crd.\n"

// Group has the permissions for one provider or metrics service.
type Group struct {
	Name string `json:"name"`
	// ClusterScoped is true for cluster-scoped objects: no Role can allow access to them.
	ClusterScoped bool                `json:"clusterScoped,omitempty"`
	Rules         []rbacv1.PolicyRule `json:"rules"`
}

// Permissions are the permissions of Serin, grouped by the feature that needs them.
type Permissions struct {
	Always []rbacv1.PolicyRule `json:"always"`
	// Canaries and Rollouts are needed with these APIs, and ConfigTracking with that of Canaries unless it is disabled.
	Canaries       []rbacv1.PolicyRule `json:"canaries"`
	ConfigTracking []rbacv1.PolicyRule `json:"configTracking"`
	Rollouts       []rbacv1.PolicyRule `json:"rollouts"`
	// Own, OwnRollouts and Shards are needed in the namespace of the controller only, Shards with several replicas that act.
	Own         []rbacv1.PolicyRule `json:"own"`
	OwnRollouts []rbacv1.PolicyRule `json:"ownRollouts"`
	Shards      []rbacv1.PolicyRule `json:"shards"`
	Providers   []Group             `json:"providers"`
	// Metrics are needed only where MetricTemplates name these services.
	Metrics []Group `json:"metrics"`
}

// always are the API groups that every installation needs.
var always = []string{"", "apps", "authorization.k8s.io", "coordination.k8s.io", "discovery.k8s.io"}

// role returns the list for the rules of a documented role. It is nil for the role of all providers, whose rules are grouped
// by API group.
func (r *Permissions) role(kind, name string) (rules *[]rbacv1.PolicyRule, known bool) {
	switch kind + "/" + name {
	case "ClusterRole/serin":
		return nil, true
	case "ClusterRole/serin-canaries":
		return &r.Canaries, true
	case "ClusterRole/serin-config-tracking":
		return &r.ConfigTracking, true
	case "ClusterRole/serin-rollouts":
		return &r.Rollouts, true
	case "Role/serin":
		return &r.Own, true
	case "Role/serin-rollouts":
		return &r.OwnRollouts, true
	case "Role/serin-shards":
		return &r.Shards, true
	default:
		return nil, false
	}
}

// groupNames are the groupNames of providers and services by API group; other groups are their own groupNames.
var groupNames = map[string]string{
	"apisix.apache.org": "apisix", "appmesh.k8s.aws": "appmesh", "elbv2.k8s.aws": "alb", "consul.hashicorp.com": "consul", "projectcontour.io": "contour", "gateway.networking.k8s.io": "gatewayapi",
	"gateway.solo.io": "gloo", "gloo.solo.io": "gloo", "networking.k8s.io": "ingress", "networking.istio.io": "istio", "keda.sh": "keda", "route.openshift.io": "openshift",
	"serving.knative.dev": "knative", "kuma.io": "kuma", "split.smi-spec.io": "smi", "traefik.io": "traefik",
	"external.metrics.k8s.io": "externalmetrics", "metrics.keptn.sh": "keptn",
}

// clusterScoped are the API groups of cluster-scoped objects.
var clusterScoped = []string{"kuma.io"}

// Files returns all generated files, by their path in the repository.
func Files(root string) (map[string][]byte, error) {
	permissions, err := Read(root)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if files["charts/serin/files/rights.yaml"], err = withHeader(permissions); err != nil {
		return nil, err
	}
	for _, role := range []struct {
		file, kind, name string
		rules            []rbacv1.PolicyRule
	}{
		{"config/rbac/role.yaml", "ClusterRole", "serin", permissions.shared(true)},
		{"config/rbac/canaries.yaml", "ClusterRole", "serin-canaries", permissions.Canaries},
		{"config/rbac/config-tracking.yaml", "ClusterRole", "serin-config-tracking", permissions.ConfigTracking},
		{"config/rbac/rollouts.yaml", "ClusterRole", "serin-rollouts", permissions.Rollouts},
		{"config/rbac/own.yaml", "Role", "serin", permissions.Own},
		{"config/rbac/own-rollouts.yaml", "Role", "serin-rollouts", permissions.OwnRollouts},
		{"config/components/shards/role.yaml", "Role", "serin-shards", permissions.Shards},
		{"config/namespaced/role.yaml", "Role", "serin", slices.Concat(permissions.shared(false), permissions.Canaries, permissions.ConfigTracking, permissions.Rollouts, permissions.Own)},
	} {
		object := rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: role.kind},
			ObjectMeta: metav1.ObjectMeta{Name: role.name}, Rules: role.rules,
		}
		if files[role.file], err = withHeader(object); err != nil {
			return nil, err
		}
	}
	var found []string
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} { // those of argoproj.io are in a subfolder
		more, err := filepath.Glob(filepath.Join(root, definitionsFolder, pattern))
		if err != nil {
			return nil, fmt.Errorf("list definitions: %w", err)
		}
		found = append(found, more...)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a definition: %w", err)
		}
		// Without the annotation, Helm would delete the definition with the chart, and every Canary with it.
		if !bytes.Contains(text, []byte("\n    helm.sh/resource-policy: keep\n")) {
			return nil, fmt.Errorf("%s: Helm would delete this definition with the chart: annotate it with helm.sh/resource-policy: keep", file)
		}
		files[path.Join("charts/serin/files/crds", filepath.Base(file))] = append([]byte(generatedHeader), text...)
	}
	if err := addAlertRules(files, root); err != nil {
		return nil, err
	}
	if err := addBoards(files, root); err != nil {
		return nil, err
	}
	for _, o := range overlays {
		files[path.Join("config", o.folder, "Kustomization")] = o.kustomization()
	}
	return files, nil
}

// alertRulesHeader is the first line of the generated files with alert rules.
const alertRulesHeader = "# Made by `make generate` from config/prometheus/rules.yaml.\n"

// addAlertRules adds the files with the alert rules: the one from which the chart renders a PrometheusRule, and the
// PrometheusRule of the kustomization. The text of the rules is copied, so that their comments and line breaks remain.
func addAlertRules(files map[string][]byte, root string) error {
	text, err := os.ReadFile(filepath.Join(root, alertRulesFile))
	if err != nil {
		return fmt.Errorf("read the alert rules: %w", err)
	}
	_, groups, found := strings.Cut(string(text), "\ngroups:\n")
	if !found {
		return fmt.Errorf("%s contains no groups", alertRulesFile)
	}
	groups = "groups:\n" + groups
	files["charts/serin/files/rules.yaml"] = []byte(alertRulesHeader + groups)
	const header = `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: serin
  namespace: serin-system
spec:
`
	indented := "  " + strings.ReplaceAll(strings.TrimSuffix(groups, "\n"), "\n", "\n  ") + "\n"
	files["config/components/prometheus-rules/rules.yaml"] = []byte(alertRulesHeader + header + indented)
	return nil
}

// overlayHeader is the first line of a generated kustomization.
const overlayHeader = "# Made by `make generate` from the list in hack/packaging.\n"

// addBoards adds the Grafana boards from which the chart renders a ConfigMap. They are JSON, which has no place for a header.
func addBoards(files map[string][]byte, root string) error {
	boards, err := filepath.Glob(filepath.Join(root, boardsFolder, "*.json"))
	if err != nil {
		return fmt.Errorf("list the boards: %w", err)
	}
	for _, board := range boards {
		text, err := os.ReadFile(board)
		if err != nil {
			return fmt.Errorf("read a board: %w", err)
		}
		files[path.Join("charts/serin/files/dashboards", filepath.Base(board))] = text
	}
	return nil
}

// overlay is a kustomization for one provider: config/default with the flags that the provider needs.
type overlay struct {
	folder, provider, metricsServer string
}

// overlays are the kustomizations for providers. Each metrics server is the Prometheus that the provider installs, or else one
// in namespace monitoring.
var overlays = []overlay{
	{folder: "apisix", provider: "apisix"},
	{folder: "appmesh", provider: "appmesh:v1beta2", metricsServer: "http://appmesh-prometheus.appmesh-system:9090"},
	{folder: "contour", provider: "contour"},
	{folder: "gatewayapi", provider: "gatewayapi:v1"},
	{folder: "gloo", provider: "gloo"},
	{folder: "istio", provider: "istio", metricsServer: "http://prometheus.istio-system:9090"},
	{folder: "knative", provider: "knative"},
	{folder: "kubernetes", provider: "kubernetes"},
	{folder: "kuma", provider: "kuma", metricsServer: "http://prometheus-server.kuma-metrics:80"},
	{folder: "linkerd", provider: "linkerd", metricsServer: "http://prometheus.linkerd-viz:9090"},
	{folder: "nginx", provider: "nginx"},
	{folder: "osm", provider: "osm", metricsServer: "http://osm-prometheus.osm-system:7070"},
	{folder: "skipper", provider: "skipper"},
	{folder: "traefik", provider: "traefik"},
}

// kustomization returns the text of the overlay.
func (o overlay) kustomization() []byte {
	server := cmp.Or(o.metricsServer, "http://prometheus.monitoring:9090")
	resources, patch := "", ""
	if o.provider == "linkerd" {
		// Linkerd admits clients of its Prometheus by their identity in the mesh.
		resources = "- policy.yaml\n"
		patch = `    - op: add
      path: /spec/template/metadata/annotations/linkerd.io~1inject
      value: enabled
`
	}
	return fmt.Appendf(nil, `%s# As config/default, for Canaries of %s that name no provider, and the Prometheus at %s.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../default
%spatches:
- target:
    kind: Deployment
    name: serin
  patch: |-
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: -mesh-provider=%s
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: -metrics-server=%s
%s`, overlayHeader, o.provider, server, resources, o.provider, server, patch)
}

// shared returns the rules for both APIs and all providers, for all namespaces (cluster) or one.
func (r *Permissions) shared(cluster bool) []rbacv1.PolicyRule {
	rules := slices.Clone(r.Always)
	for _, group := range r.Providers {
		if cluster || !group.ClusterScoped {
			rules = append(rules, group.Rules...)
		}
	}
	return rules
}

// Read reads the permissions from their sources.
func Read(root string) (Permissions, error) {
	text, err := os.ReadFile(filepath.Join(root, permissionsFile))
	if err != nil {
		return Permissions{}, fmt.Errorf("read the permissions: %w", err)
	}
	var permissions Permissions
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			return Permissions{}, fmt.Errorf("read %s: %w", permissionsFile, err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		purpose, known := permissions.role(role.Kind, role.Name)
		if !known {
			return Permissions{}, fmt.Errorf("%s has %s %s, which is not installed: add its purpose to hack/packaging", permissionsFile, role.Kind, role.Name)
		}
		for _, rule := range role.Rules {
			switch {
			case len(rule.APIGroups) != 1:
				return Permissions{}, fmt.Errorf("%s: a rule is for the API groups %q: write one rule for each", permissionsFile, rule.APIGroups)
			case purpose != nil:
				*purpose = append(*purpose, rule)
			case slices.Contains(always, rule.APIGroups[0]):
				permissions.Always = append(permissions.Always, rule)
			default:
				permissions.Providers = addToGroup(permissions.Providers, rule)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, installPage))
	if err != nil {
		return Permissions{}, fmt.Errorf("read the permissions for metrics services: %w", err)
	}
	_, rest, _ := strings.Cut(string(page), metricsHeading)
	_, rest, _ = strings.Cut(rest, "\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	block, _, found := strings.Cut(rest, "\n```")
	if !found {
		return Permissions{}, fmt.Errorf("%s has no rules below the heading %q", installPage, metricsHeading)
	}
	var rules []rbacv1.PolicyRule
	if err := yaml.Unmarshal([]byte(block), &rules); err != nil {
		return Permissions{}, fmt.Errorf("read the rules below %q in %s: %w", metricsHeading, installPage, err)
	}
	for _, rule := range rules {
		permissions.Metrics = addToGroup(permissions.Metrics, rule)
	}
	return permissions, nil
}

// addToGroup adds a rule to the group of its provider.
func addToGroup(groups []Group, rule rbacv1.PolicyRule) []Group {
	name, known := groupNames[rule.APIGroups[0]]
	if !known {
		name = rule.APIGroups[0]
	}
	i := slices.IndexFunc(groups, func(g Group) bool { return g.Name == name })
	if i < 0 {
		i = len(groups)
		groups = append(groups, Group{Name: name, ClusterScoped: slices.Contains(clusterScoped, rule.APIGroups[0])})
	}
	groups[i].Rules = append(groups[i].Rules, rule)
	return groups
}

func withHeader(value any) ([]byte, error) {
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write permissions: %w", err)
	}
	return append([]byte(generatedHeader), text...), nil
}
