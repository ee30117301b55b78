package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestThePackagedChartRenders renders the chart as users get it. What the objects contain is tested in
// playground/packaging/chart.
func TestThePackagedChartRenders(t *testing.T) {
	archive := filepath.Join(dist, "serin-"+number()+".tgz")
	metadata := readYAML[struct{ Version, AppVersion string }](t, readGzip(t, archive)["serin/Chart.yaml"])
	if metadata.Version != number() || metadata.AppVersion != number() {
		t.Errorf("got %+v, want version and appVersion %s", metadata, number())
	}
	mustRun(t, "helm", "lint", "--strict", archive)
	for values, want := range map[string]string{
		"":                                                 `image: "ghcr.io/serin-dev/serin:` + number() + `"`,
		"crd: {create: true}":                              "kind: CustomResourceDefinition",
		"networkPolicy: {enabled: true}":                   "kind: NetworkPolicy",
		"podMonitor: {enabled: true}":                      "kind: PodMonitor",
		"serviceMonitor: {enabled: true}":                  "kind: ServiceMonitor",
		"prometheusRule: {enabled: true}":                  "kind: PrometheusRule",
		"dashboards: {enabled: true}":                      "grafana_dashboard",
		"linkerdAuthPolicy: {create: true}":                "kind: AuthorizationPolicy",
		"podDisruptionBudget: {enabled: true}":             "kind: PodDisruptionBudget",
		"slack: {url: 'https://chat.test/', channel: ops}": "kind: Secret",
		"namespace: shop":                                  "namespace: shop",
		"shards: 12":                                       "-shards=12",
	} {
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := mustRun(t, "helm", "template", "serin", archive, "--namespace", "serin-system", "--values", file); !strings.Contains(out, want) {
			t.Errorf("%s: the objects do not contain %q", values, want)
		}
	}
}
