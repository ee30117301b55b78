// Package packaging makes what the chart and the kustomization install of its sources: rights of docs/examples/rights.yaml
// and docs/install.md, definitions of config/crd. So a right is written down once, where the tests and the readers find it.
//
// It reads and writes files of the repository. It must not know how they are installed.
package packaging

import (
	"bytes"
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

// The sources, and the heading of the page below which the rights stand that few need.
const (
	rightsFile     = "docs/examples/rights.yaml"
	installPage    = "docs/install.md"
	metricsHeading = "## Permissions for metrics services"
	definitions    = "config/crd"
)

// note is on top of every file that is made.
const note = "# Made by `make generate`; what it is made of is in docs/examples/rights.yaml, docs/install.md and config/crd.\n"

// Group is the rights for one provider or metrics service.
type Group struct {
	Name string `json:"name"`
	// ClusterScoped is true for objects that belong to no namespace: no Role can allow them.
	ClusterScoped bool                `json:"clusterScoped,omitempty"`
	Rules         []rbacv1.PolicyRule `json:"rules"`
}

// Rights are what Serin is allowed, by who needs it.
type Rights struct {
	Always []rbacv1.PolicyRule `json:"always"`
	// Canaries and Rollouts are needed with these APIs, ConfigTracking with that of Canaries unless it is switched off.
	Canaries       []rbacv1.PolicyRule `json:"canaries"`
	ConfigTracking []rbacv1.PolicyRule `json:"configTracking"`
	Rollouts       []rbacv1.PolicyRule `json:"rollouts"`
	// Own and OwnRollouts are needed in the namespace of the controller only.
	Own         []rbacv1.PolicyRule `json:"own"`
	OwnRollouts []rbacv1.PolicyRule `json:"ownRollouts"`
	Providers   []Group             `json:"providers"`
	// Metrics are needed only where MetricTemplates name these services.
	Metrics []Group `json:"metrics"`
}

// always are the API groups that every installation needs.
var always = []string{"", "apps", "authorization.k8s.io", "coordination.k8s.io", "discovery.k8s.io"}

// role is where the rules of a documented role belong; nil for those of the role for all, which are told apart by API group.
func (r *Rights) role(kind, name string) (rules *[]rbacv1.PolicyRule, known bool) {
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
	default:
		return nil, false
	}
}

// names of the providers and services by their API group; a group that is not here has its own name.
var names = map[string]string{
	"apisix.apache.org": "apisix", "appmesh.k8s.aws": "appmesh", "elbv2.k8s.aws": "alb", "projectcontour.io": "contour", "gateway.networking.k8s.io": "gatewayapi",
	"gateway.solo.io": "gloo", "gloo.solo.io": "gloo", "networking.k8s.io": "ingress", "networking.istio.io": "istio", "keda.sh": "keda",
	"serving.knative.dev": "knative", "kuma.io": "kuma", "split.smi-spec.io": "smi", "traefik.io": "traefik",
	"external.metrics.k8s.io": "externalmetrics", "metrics.keptn.sh": "keptn",
}

// clusterScoped are the API groups whose objects belong to no namespace.
var clusterScoped = []string{"kuma.io"}

// Files are all files that are made, by their path in the repository.
func Files(root string) (map[string][]byte, error) {
	rights, err := Read(root)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if files["charts/serin/files/rights.yaml"], err = noted(rights); err != nil {
		return nil, err
	}
	for _, role := range []struct {
		file, kind, name string
		rules            []rbacv1.PolicyRule
	}{
		{"config/rbac/role.yaml", "ClusterRole", "serin", rights.shared(true)},
		{"config/rbac/canaries.yaml", "ClusterRole", "serin-canaries", rights.Canaries},
		{"config/rbac/config-tracking.yaml", "ClusterRole", "serin-config-tracking", rights.ConfigTracking},
		{"config/rbac/rollouts.yaml", "ClusterRole", "serin-rollouts", rights.Rollouts},
		{"config/rbac/own.yaml", "Role", "serin", rights.Own},
		{"config/rbac/own-rollouts.yaml", "Role", "serin-rollouts", rights.OwnRollouts},
		{"config/namespaced/role.yaml", "Role", "serin", slices.Concat(rights.shared(false), rights.Canaries, rights.ConfigTracking, rights.Rollouts, rights.Own)},
	} {
		object := rbacv1.ClusterRole{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: role.kind},
			ObjectMeta: metav1.ObjectMeta{Name: role.name}, Rules: role.rules,
		}
		if files[role.file], err = noted(object); err != nil {
			return nil, err
		}
	}
	var found []string
	for _, pattern := range []string{"*.yaml", "*/*.yaml"} { // argoproj.io has a folder of its own
		more, err := filepath.Glob(filepath.Join(root, definitions, pattern))
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
		// With a definition every Canary would be deleted.
		if !bytes.Contains(text, []byte("\n    helm.sh/resource-policy: keep\n")) {
			return nil, fmt.Errorf("%s: Helm would delete this definition with the chart: annotate it with helm.sh/resource-policy: keep", file)
		}
		files[path.Join("charts/serin/files/crds", filepath.Base(file))] = append([]byte(note), text...)
	}
	return files, nil
}

// shared are the rules for both APIs and all providers: of all namespaces, or of one.
func (r *Rights) shared(cluster bool) []rbacv1.PolicyRule {
	rules := slices.Clone(r.Always)
	for _, group := range r.Providers {
		if cluster || !group.ClusterScoped {
			rules = append(rules, group.Rules...)
		}
	}
	return rules
}

// Read reads the rights from their sources.
func Read(root string) (Rights, error) {
	text, err := os.ReadFile(filepath.Join(root, rightsFile))
	if err != nil {
		return Rights{}, fmt.Errorf("read the rights: %w", err)
	}
	var rights Rights
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(document, &role); err != nil {
			return Rights{}, fmt.Errorf("read %s: %w", rightsFile, err)
		}
		if role.Kind != "ClusterRole" && role.Kind != "Role" {
			continue
		}
		purpose, known := rights.role(role.Kind, role.Name)
		if !known {
			return Rights{}, fmt.Errorf("%s has %s %s, which nothing installs: say in hack/packaging what it is for", rightsFile, role.Kind, role.Name)
		}
		for _, rule := range role.Rules {
			switch {
			case len(rule.APIGroups) != 1:
				return Rights{}, fmt.Errorf("%s: a rule is for the API groups %q: write one rule for each", rightsFile, rule.APIGroups)
			case purpose != nil:
				*purpose = append(*purpose, rule)
			case slices.Contains(always, rule.APIGroups[0]):
				rights.Always = append(rights.Always, rule)
			default:
				rights.Providers = grouped(rights.Providers, rule)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, installPage))
	if err != nil {
		return Rights{}, fmt.Errorf("read the rights for metrics services: %w", err)
	}
	_, rest, _ := strings.Cut(string(page), metricsHeading)
	_, rest, _ = strings.Cut(rest, "\n```")
	_, rest, _ = strings.Cut(rest, "\n")
	block, _, found := strings.Cut(rest, "\n```")
	if !found {
		return Rights{}, fmt.Errorf("%s has no rules below the heading %q", installPage, metricsHeading)
	}
	var rules []rbacv1.PolicyRule
	if err := yaml.Unmarshal([]byte(block), &rules); err != nil {
		return Rights{}, fmt.Errorf("read the rules below %q in %s: %w", metricsHeading, installPage, err)
	}
	for _, rule := range rules {
		rights.Metrics = grouped(rights.Metrics, rule)
	}
	return rights, nil
}

// grouped puts a rule to the others of its provider.
func grouped(groups []Group, rule rbacv1.PolicyRule) []Group {
	name, known := names[rule.APIGroups[0]]
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

func noted(value any) ([]byte, error) {
	text, err := yaml.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write rights: %w", err)
	}
	return append([]byte(note), text...), nil
}
