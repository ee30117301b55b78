package borders

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/operator"
)

var firstCell = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|")

// namesInTable are the names in the first column of the table with that header.
func namesInTable(t *testing.T, page, header string) []string {
	t.Helper()
	_, table, ok := strings.Cut(read(t, page), header)
	if !ok {
		t.Fatalf("%s has no table %s", page, header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var names []string
	for _, row := range firstCell.FindAllStringSubmatch(table, -1) {
		names = append(names, strings.ToLower(row[1]))
	}
	slices.Sort(names)
	return names
}

// TestMetricsServicesAreDocumented: every registered service is in the table of each API that supports it, and, for
// MetricTemplates, in an example.
func TestMetricsServicesAreDocumented(t *testing.T) {
	services := operator.MetricsServices(metric.Cluster{}, clock.RealClock{})
	if diff := cmp.Diff(services.TemplateTypes(), namesInTable(t, "docs/metrictemplate.md", "| `type` | `address` |")); diff != "" {
		t.Errorf("docs/metrictemplate.md (-registry +table):\n%s", diff)
	}
	analysisTypes := []string{"job"} // a provider, but not a service
	for _, name := range services.AnalysisTypes() {
		analysisTypes = append(analysisTypes, strings.ToLower(name))
	}
	slices.Sort(analysisTypes)
	if diff := cmp.Diff(analysisTypes, namesInTable(t, "docs/metrics.md", "| `provider` | Required settings |")); diff != "" {
		t.Errorf("docs/metrics.md (-registry +table):\n%s", diff)
	}
	shown := map[string]bool{}
	for text := range examples(t) {
		for document := range strings.SplitSeq(text, "\n---\n") {
			template := &flaggerv1.MetricTemplate{}
			if yaml.Unmarshal([]byte(document), template) == nil && template.Kind == flaggerv1.MetricTemplateKind {
				shown[template.Spec.Provider.Type] = true
			}
		}
	}
	for _, name := range services.TemplateTypes() {
		if !shown[name] {
			t.Errorf("no example in docs/examples has a MetricTemplate of type %s", name)
		}
	}
}

// TestMetricsServicesAreTested: the package of every service runs the contract test, and a fuzz test of its responses.
func TestMetricsServicesAreTested(t *testing.T) {
	tested := 0
	for _, p := range listPackages(t) {
		name, ok := p.ours()
		if !ok || path.Dir(name) != "internal/metric" || name == "internal/metric/metrictest" {
			continue
		}
		tested++
		tests := readTests(t, name)
		for _, call := range []string{"metrictest.Run(", "metrictest.Fuzz("} {
			if !strings.Contains(tests, call) {
				t.Errorf("the tests of %s do not contain %q", name, call)
			}
		}
	}
	if services := operator.MetricsServices(metric.Cluster{}, clock.RealClock{}); tested < len(services.TemplateTypes()) {
		t.Errorf("found %d packages of metrics services, but %d are registered for MetricTemplates alone", tested, len(services.TemplateTypes()))
	}
}
