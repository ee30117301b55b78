package borders

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/telemetry"
)

// alertRule is an alert in config/prometheus/rules.yaml.
type alertRule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alertRules(t *testing.T) []alertRule {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alertRule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "config/prometheus/rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var rules []alertRule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("there are no alert rules")
	}
	return rules
}

// TestEveryAlertHasARunbook: the annotation of each alert links to its heading in docs/operations.md, whose table lists exactly
// the alerts with their severities.
func TestEveryAlertHasARunbook(t *testing.T) {
	const page, url = "docs/operations.md", "https://github.com/serin-dev/serin/blob/main/docs/operations.md#"
	headings := anchors(t, page)
	_, table, _ := strings.Cut(read(t, page), "<!-- alerts -->\n")
	table, _, _ = strings.Cut(table, "<!-- end of alerts -->")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) < 2 {
		t.Fatalf("%s has no table of alerts", page)
	}
	rows = rows[2:] // below the header
	for _, rule := range alertRules(t) {
		anchor := strings.ToLower(rule.Alert)
		if got := rule.Annotations["runbook_url"]; got != url+anchor {
			t.Errorf("%s: the annotation runbook_url is %q, want %q", rule.Alert, got, url+anchor)
		}
		if !slices.Contains(headings, anchor) {
			t.Errorf("%s: %s has no heading for its runbook", rule.Alert, page)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
		row := fmt.Sprintf("| [%s](#%s) | %s | ", rule.Alert, anchor, rule.Labels["severity"])
		i := slices.IndexFunc(rows, func(r string) bool { return strings.HasPrefix(r, row) })
		if i < 0 {
			t.Errorf("the table in %s has no row that begins with %q", page, row)
			continue
		}
		rows = slices.Delete(rows, i, i+1)
	}
	for _, row := range rows {
		t.Errorf("the table in %s lists an alert that has no rule: %s", page, row)
	}
}

// TestEveryAlertHasUnitTests: each alert fires in a test of promtool, and does not fire in another one.
func TestEveryAlertHasUnitTests(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				AlertName string `json:"alertname"`
				ExpAlerts []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "config/prometheus/rules_test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, group := range file.Tests {
		for _, test := range group.AlertRuleTest {
			if len(test.ExpAlerts) > 0 {
				fires[test.AlertName] = true
			} else {
				silent[test.AlertName] = true
			}
		}
	}
	for _, rule := range alertRules(t) {
		if !fires[rule.Alert] {
			t.Errorf("config/prometheus/rules_test.yaml has no test in which %s fires", rule.Alert)
		}
		if !silent[rule.Alert] {
			t.Errorf("config/prometheus/rules_test.yaml has no test in which %s does not fire", rule.Alert)
		}
	}
}

var (
	selector  = regexp.MustCompile(`\b([a-z]+(?:_[a-z]+)+)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	grouping  = regexp.MustCompile(`\b(?:by|on) \([^)]*\)`)
	functions = []string{"histogram_quantile", "label_values", "sort_desc"}
	// documentedMetric finds the metrics of Serin, and those of the libraries that it exposes, on a page.
	documentedMetric = regexp.MustCompile(`\b(?:serin|flagger|rollout|notification|controller_runtime|workqueue|leader_election|process|go)_\w+`)
)

// TestAlertsUseExistingMetrics: each metric in a rule is one that Serin exposes, with the labels that the rule selects by, and
// each gate in a rule is one of a state machine. The runbooks name existing metrics, too.
func TestAlertsUseExistingMetrics(t *testing.T) {
	labels := exposedMetrics(t)
	for _, rule := range alertRules(t) {
		checkQuery(t, rule.Alert, rule.Expr, labels)
	}
	for _, page := range []string{"docs/operations.md", "docs/metrics.md"} {
		for _, span := range codeSpan.FindAllStringSubmatch(read(t, page), -1) {
			for _, name := range documentedMetric.FindAllString(span[1], -1) {
				if _, exists := labels[name]; !exists {
					t.Errorf("%s names the metric %s, which does not exist", page, name)
				}
			}
		}
	}
}

// checkQuery checks the names of metrics and labels in a query, and the values of labels, as far as they are known.
func checkQuery(t *testing.T, where, query string, labels map[string][]string) {
	t.Helper()
	found := 0
	for _, part := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(query, ""), -1) {
		name, matchers := part[1], matcher.FindAllStringSubmatch(part[2], -1)
		if slices.Contains(functions, name) {
			continue
		}
		found++
		known, exists := labels[name]
		if !exists {
			t.Errorf("%s: there is no metric %s", where, name)
		}
		for _, m := range matchers {
			if exists && known != nil && !slices.Contains(known, m[1]) {
				t.Errorf("%s: the metric %s has no label %s", where, name, m[1])
			}
			possible := possibleValues(t, name, m[1])
			for value := range strings.SplitSeq(m[2], "|") {
				if possible != nil && !slices.Contains(possible, value) {
					t.Errorf("%s: the label %s of %s is never %s: it is one of %q", where, m[1], name, value, possible)
				}
			}
		}
	}
	if found == 0 {
		t.Errorf("%s: found no metric in %q: the test no longer recognizes them", where, query)
	}
}

// possibleValues returns the values that a label of a metric can have, or nil if these are those of users or of the cluster.
func possibleValues(t *testing.T, metric, label string) []string {
	t.Helper()
	var values []string
	switch {
	case label == "gate":
		for _, row := range documentedGates(t) {
			values = append(values, row.name)
		}
	case label == "opener":
		for _, opener := range []release.Opener{release.ByUser, release.ByCluster, release.ByAnswer, release.ByTime} {
			values = append(values, string(opener))
		}
	case label == "phase" && metric == "serin_canary_phase":
		for _, phase := range definitionOfCanary(t).Properties["status"].Properties["phase"].Enum {
			values = append(values, strings.Trim(string(phase.Raw), `"`))
		}
	case label == "phase" && (metric == "rollout_info" || metric == "rollout_phase"):
		registry := prometheus.NewRegistry()
		telemetry.New(registry).SetRollout(telemetry.Rollout{Namespace: "shop", Name: "cart", Strategy: "canary", Phase: "Completed"})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, series := range family.GetMetric() {
				for _, pair := range series.GetLabel() {
					if family.GetName() == "rollout_phase" && pair.GetName() == "phase" {
						values = append(values, pair.GetValue())
					}
				}
			}
		}
	default:
		return nil
	}
	if len(values) < 3 {
		t.Fatalf("found only the values %q of the label %s of %s", values, label, metric)
	}
	return values
}

// exposedMetrics returns the labels of all metrics of the controller, by name; nil for those of libraries.
func exposedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	exposed := map[string][]string{}
	for _, family := range telemetry.New(prometheus.NewRegistry()).Families() {
		exposed[family.Name] = append([]string{}, family.Labels...)
		if family.Type == "histogram" {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				exposed[family.Name+suffix] = append([]string{"le"}, family.Labels...)
			}
		}
	}
	libraries, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatal("the registry of controller-runtime does not describe its metrics")
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		libraries.Describe(descriptions)
		close(descriptions)
	}()
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for description := range descriptions {
		if found := name.FindStringSubmatch(description.String()); found != nil {
			exposed[found[1]] = nil
		}
	}
	return exposed
}
