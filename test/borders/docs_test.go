package borders

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/operator"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	screen    = regexp.MustCompile("(?s)<!-- screen of (\\S+) -->\n```\n(.*?)```")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	target    = regexp.MustCompile(`(?m)^([a-z-]+):( .*)?$`)
)

// documents are the pages for users and contributors.
func documents(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(files(t), func(name string) bool {
		return path.Ext(name) != ".md" || path.Dir(name) != "." && !within(name, "docs")
	})
}

// examples are the contents of the manifests in docs/examples.
func examples(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range files(t) {
		if within(name, "docs/examples") && path.Ext(name) == ".yaml" {
			found[read(t, name)] = name
		}
	}
	return found
}

// TestManifestsOnPagesAreExampleFiles: tests apply the files of the examples, so that the manifests on a page are tested.
// Pages may also show an excerpt of a manifest; the README shows complete ones only.
func TestManifestsOnPagesAreExampleFiles(t *testing.T) {
	files := examples(t)
	shown := map[string]bool{}
	for _, page := range documents(t) {
		for _, block := range yamlBlock.FindAllStringSubmatch(read(t, page), -1) {
			name, ok := files[block[1]]
			switch {
			case ok:
				shown[name] = true
			case page == "README.md" || strings.Contains(block[1], "apiVersion: "):
				t.Errorf("%s shows a manifest that is not a file in docs/examples:\n%s", page, block[1])
			}
		}
	}
	for _, name := range files {
		if !shown[name] {
			t.Errorf("no page shows %s", name)
		}
	}
}

// TestTheREADMEShowsTheOutputOfTheCommand: its screen is copied from the golden file of the view.
func TestTheREADMEShowsTheOutputOfTheCommand(t *testing.T) {
	pictures := screen.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(pictures) == 0 {
		t.Fatal("README.md shows no screen of a golden file")
	}
	for _, picture := range pictures {
		golden := strings.ReplaceAll(read(t, picture[1]), "|\n", "\n") // in golden files, a bar ends each line
		if !strings.Contains(golden, picture[2]) {
			t.Errorf("%s does not contain the screen in README.md:\n%s", picture[1], picture[2])
		}
	}
}

// TestExamplesAreValid: every field of the examples exists in the API, and their plans are valid.
func TestExamplesAreValid(t *testing.T) {
	routers := (&operator.Flags{}).Routers()
	for text, name := range examples(t) {
		for document := range strings.SplitSeq(text, "\n---\n") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if kind.APIVersion != flaggerv1.SchemeGroupVersion.String() {
				continue
			}
			if kind.Kind == flaggerv1.MetricTemplateKind {
				validateTemplate(t, name, document, text)
			}
			c := &flaggerv1.Canary{}
			known := map[string]any{
				flaggerv1.CanaryKind: c, flaggerv1.MetricTemplateKind: &flaggerv1.MetricTemplate{}, flaggerv1.AlertProviderKind: &flaggerv1.AlertProvider{},
			}
			if err := yaml.UnmarshalStrict([]byte(document), known[kind.Kind]); err != nil {
				t.Errorf("%s: %s: %v", name, kind.Kind, err)
			}
			if kind.Kind != flaggerv1.CanaryKind {
				continue
			}
			settings := canary.Settings{Features: func(provider string) canary.Features { return controller.Features(routers, c, provider) }}
			plan := canary.NewPlan(c, settings)
			if len(plan.ValidationErrors) > 0 || plan.SkipAnalysis {
				t.Errorf("%s: Canary %s cannot work: %q", name, c.Name, plan.ValidationErrors)
			}
			if err := renderFirstRoute(routers, c, plan); err != nil {
				t.Errorf("%s: Canary %s has no route: %v", name, c.Name, err)
			}
		}
	}
}

// renderFirstRoute returns why the first route of a Canary cannot be rendered, unless it needs objects of the user.
func renderFirstRoute(routers traffic.Registry, c *flaggerv1.Canary, plan canary.Plan) error {
	renderer, _ := routers.ForCanary(plan.Provider)
	target := traffic.NewCanaryTarget(c, plan.Provider, "app")
	existing := traffictest.Find(renderer, target, release.Route{}, nil)
	if slices.ContainsFunc(existing, func(x traffic.Lookup) bool { return !x.Ref.Owned }) {
		return nil
	}
	route := release.Route{}
	if plan.Strategy == canary.ABTesting {
		route.Matches = traffic.Matches(c)
	}
	_, err := renderer.Render(target, route, existing)
	return err
}

// TestExamplesOfRoutersCanBeRendered: Rollouts of the examples are valid together with the objects in the same file, and weights
// can be set. The required permissions are documented.
func TestExamplesOfRoutersCanBeRendered(t *testing.T) {
	role, registry := documentedRole(t), (&operator.Flags{}).Routers()
	rendered := map[string]bool{}
	for text, name := range examples(t) {
		ro, users := rolloutOf(t, name, text)
		if ro == nil {
			continue
		}
		routers, err := registry.ForRollout(ro.Spec.Strategy.Canary.TrafficRouting)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, router := range routers {
			rendered[router.Name] = true
			for _, ref := range renderRoutes(t, name, router, router.Target(ro, "6d4f", "77c9"), users) {
				checkPermissions(t, role, router.Name, ref, ref.Derived && router.Name != "nginx")
			}
		}
	}
	for name := range registry.Rollout {
		if !rendered[name] {
			t.Errorf("docs/examples has no Rollout with router %s", name)
		}
	}
}

// rolloutOf returns the Rollout of an example with a canary strategy, and all its other objects; nil if it has none.
func rolloutOf(t *testing.T, name, text string) (ro *argov1.Rollout, others []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(text, "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &obj.Object); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		obj.SetNamespace("shop")
		if obj.GetKind() != argov1.RolloutKind {
			others = append(others, obj)
			continue
		}
		ro = &argov1.Rollout{}
		if err := yaml.UnmarshalStrict([]byte(document), ro); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ro.Namespace = "shop"
	}
	if ro == nil || ro.Spec.Strategy.Canary == nil {
		return nil, nil
	}
	return ro, others
}

// renderRoutes sets a weight and everything that the steps request, and returns the references of the router.
func renderRoutes(t *testing.T, name string, router traffic.Router, target traffic.Target, users []*unstructured.Unstructured) []traffic.Ref {
	t.Helper()
	route := release.Route{Canary: 20}
	for _, step := range target.Rollout.Spec.Strategy.Canary.Steps {
		if step.SetHeaderRoute != nil {
			route.HeaderRoutes = append(route.HeaderRoutes, traffic.HeaderRoute(*step.SetHeaderRoute))
		}
	}
	existing := traffictest.Find(router.Renderer, target, route, users)
	if validator, ok := router.Renderer.(traffic.Validator); ok {
		if faults := validator.Validate(target, existing); len(faults) > 0 {
			t.Errorf("%s: %v", name, faults)
		}
	}
	if _, err := router.Renderer.Render(target, route, existing); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	refs := make([]traffic.Ref, len(existing))
	for i, x := range existing {
		refs[i] = x.Ref
	}
	return refs
}

func documentedRole(t *testing.T) rbacv1.ClusterRole {
	t.Helper()
	var all rbacv1.ClusterRole
	for document := range strings.SplitSeq(read(t, "docs/examples/permissions.yaml"), "\n---\n") {
		if strings.Contains(document, "\nkind: ClusterRole\n") {
			var role rbacv1.ClusterRole
			if err := yaml.UnmarshalStrict([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			all.Rules = append(all.Rules, role.Rules...)
		}
	}
	return all
}

// checkPermissions compares the documented permissions with the operations on an object of a route.
func checkPermissions(t *testing.T, role rbacv1.ClusterRole, provider string, ref traffic.Ref, deletes bool) {
	t.Helper()
	plural, _ := meta.UnsafeGuessKindToResource(ref.GVK)
	verbs := []string{"get", "list", "watch"}
	if ref.Owned || ref.Shared {
		verbs = append(verbs, "patch")
	}
	if ref.Owned {
		verbs = append(verbs, "create")
	}
	if deletes {
		verbs = append(verbs, "delete")
	}
	for _, verb := range verbs {
		if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, ref.GVK.Group) && slices.Contains(rule.Resources, plural.Resource) && slices.Contains(rule.Verbs, verb)
		}) {
			t.Errorf("%s: docs/examples/permissions.yaml does not allow %s of %s", provider, verb, plural.GroupResource())
		}
	}
}

// TestTheDocumentedPermissionsAreSufficientForEveryRoute: the rules of the example allow every read and write of a renderer.
func TestTheDocumentedPermissionsAreSufficientForEveryRoute(t *testing.T) {
	role := documentedRole(t)
	for provider, renderer := range (&operator.Flags{}).Routers().Canary {
		c := &flaggerv1.Canary{}
		c.Name, c.Namespace = "cart", "shop"
		for _, ref := range renderer.Refs(traffic.NewCanaryTarget(c, provider, "app"), release.Route{}, nil) {
			checkPermissions(t, role, provider, ref, ref.Namespace == "")
		}
	}
}

// validateTemplate validates a MetricTemplate of an example with its provider, and with the Secret in the same file.
func validateTemplate(t *testing.T, name, document, text string) {
	t.Helper()
	template := &flaggerv1.MetricTemplate{}
	if err := yaml.Unmarshal([]byte(document), template); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	credentials := map[string][]byte{}
	for other := range strings.SplitSeq(text, "\n---\n") {
		secret := &corev1.Secret{}
		if err := yaml.Unmarshal([]byte(other), secret); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if ref := template.Spec.Provider.SecretRef; ref != nil && secret.Kind == "Secret" && secret.Name == ref.Name {
			for key, value := range secret.StringData {
				credentials[key] = []byte(value)
			}
		}
	}
	services := operator.MetricsServices(metric.Cluster{Address: "https://kubernetes.default.svc"}, clock.RealClock{})
	if _, err := services.NewProvider(outbound.New(outbound.Policy{}), "shop", template.Spec.Provider, credentials); err != nil {
		t.Errorf("%s: MetricTemplate %s: %v", name, template.Name, err)
	}
	vars := metric.Vars{Name: "cart", Namespace: "shop", Target: "cart", Variables: map[string]string{"code": "404", "service": "SERVICE-1"}}
	if _, err := metric.Render(template.Spec.Query, vars); err != nil {
		t.Errorf("%s: MetricTemplate %s: %v", name, template.Name, err)
	}
}

func TestLinksOfPagesExist(t *testing.T) {
	for _, page := range documents(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(found[1], "#")
			name := page
			if file != "" {
				name = path.Join(path.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, found[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(t, name), anchor) {
				t.Errorf("%s links to %s, but there is no such heading", page, found[1])
			}
		}
	}
}

// anchors are the anchors of the headings of a page, as GitHub generates them.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	var names []string
	for _, found := range heading.FindAllStringSubmatch(read(t, page), -1) {
		name := strings.ToLower(found[1])
		name = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(name, "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestDocsShowTheFeaturesOfProviders: the table is generated from the declared features, by which plans are also validated.
func TestDocsShowTheFeaturesOfProviders(t *testing.T) {
	table := traffic.CanaryFeatureTable((&operator.Flags{}).Routers())
	if !strings.Contains(read(t, "docs/canary.md"), "\n\n"+table+"\n") {
		t.Errorf("docs/canary.md does not contain the current table of features:\n%s", table)
	}
}

func TestDocsShowTheFeaturesOfRouters(t *testing.T) {
	table := traffic.RolloutFeatureTable((&operator.Flags{}).Routers())
	if !strings.Contains(read(t, "docs/rollout-routers.md"), "\n\n"+table+"\n") {
		t.Errorf("docs/rollout-routers.md does not contain the current table of features:\n%s", table)
	}
}

func TestDocsListEveryFlagOfTheController(t *testing.T) {
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	(&operator.Flags{}).Register(set)
	page := read(t, "docs/install.md")
	set.VisitAll(func(flag *pflag.Flag) {
		if !strings.Contains(page, "`-"+flag.Name+"`") {
			t.Errorf("docs/install.md does not list the flag -%s: %s", flag.Name, flag.Usage)
		}
	})
}

// TestDocsListTheDefaultsOfFlags: each row of a table of flags has the actual default, and the page names the flags whose
// default differs from Flagger's.
func TestDocsListTheDefaultsOfFlags(t *testing.T) {
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	(&operator.Flags{}).Register(set)
	page := read(t, "docs/install.md")
	compared := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `-([a-z-]+)` \\| `?([^ `|]+)`? \\|").FindAllStringSubmatch(page, -1) {
		flag := set.Lookup(row[1])
		if flag == nil {
			t.Errorf("docs/install.md has a flag -%s, which the controller does not have", row[1])
			continue
		}
		given := strings.Trim(flag.DefValue, "[]")
		if given == "" {
			continue // described in words
		}
		compared++
		if given != row[2] {
			t.Errorf("docs/install.md documents -%s=%s as the default, but it is %s", row[1], row[2], given)
		}
	}
	if compared < 20 {
		t.Errorf("compared %d defaults, want at least 20", compared)
	}
	for name, flaggerDefault := range map[string]string{
		"kubeconfig-qps": "100", "kubeconfig-burst": "250", "metrics-server": "http://prometheus:9090", "control-loop-interval": "10s",
		"log-level": "debug", "port": "8080", "slack-user": "flagger", "threadiness": "2", "zap-encoding": "json", "mesh-provider": "istio",
		"selector-labels": "app,name,app.kubernetes.io/name", "ingress-annotations-prefix": "nginx.ingress.kubernetes.io",
		"enable-leader-election": "false", "leader-election-namespace": "kube-system", "enable-config-tracking": "true",
		"no-cross-namespace-refs": "false",
	} {
		documented := strings.Contains(page, "`-"+name+"` ("+flaggerDefault)
		if differs := set.Lookup(name).DefValue != flaggerDefault; differs != documented {
			t.Errorf("the default of -%s is %s, and %s in Flagger; documented in docs/install.md: %v", name, set.Lookup(name).DefValue, flaggerDefault, documented)
		}
	}
}

// TestDocsNameEveryRouter: the page about Rollouts names all their routers.
func TestDocsNameEveryRouter(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| Router \|.*$`).FindString(read(t, "docs/rollouts.md"))
	table := traffic.RolloutFeatureTable((&operator.Flags{}).Routers())
	for _, found := range regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\|").FindAllStringSubmatch(table, -1) {
		if name := found[1]; name != "plugins" && !strings.Contains(strings.ToLower(strings.ReplaceAll(row, " ", "")), strings.ToLower(name)) {
			t.Errorf("docs/rollouts.md does not name the router %s: %s", name, row)
		}
	}
}

func TestMakeHelpListsEveryTarget(t *testing.T) {
	for _, found := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		if !strings.Contains(found[2], "## ") {
			t.Errorf("target %s of the Makefile has no description after ##, so make help does not list it", found[1])
		}
	}
}

func TestCIRunsTheTestCommandOfTheREADME(t *testing.T) {
	const command = "make test"
	if !strings.Contains(read(t, "README.md"), "\n"+command) {
		t.Errorf("README.md does not have %s on a separate line", command)
	}
	if !strings.HasSuffix(read(t, ".ci/run"), "\nexec "+command+"\n") {
		t.Errorf(".ci/run does not end with exec %s", command)
	}
}
