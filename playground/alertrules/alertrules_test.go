//go:build linux

package alertrules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/packaging/chart"
)

func TestPromtoolAcceptsTheRulesAndTheirUnitTests(t *testing.T) {
	ctx, promtool, repository := findPromtool(t)
	for _, arguments := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"},
		{"test", "rules", "--diff", "rules_test.yaml"},
	} {
		command := exec.CommandContext(ctx, promtool, arguments...)
		command.Dir = filepath.Join(repository, "config", "prometheus")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", arguments, err, output)
		}
	}
}

// TestPromtoolAcceptsTheConfigurationOfTheChart checks the Prometheus that the chart installs with prometheus.install.
func TestPromtoolAcceptsTheConfigurationOfTheChart(t *testing.T) {
	ctx, promtool, repository := findPromtool(t)
	for _, values := range []string{"prometheus: {install: true}", "{namespace: shop, prometheus: {install: true}}"} {
		rendered, _, err := chart.Render(filepath.Join(repository, "charts", "serin"), values, "serin-system")
		if err != nil {
			t.Fatal(err)
		}
		checked := false
		for _, object := range rendered {
			text, found, err := unstructured.NestedString(object.Object, "data", "prometheus.yml")
			if err != nil || !found {
				continue
			}
			checked = true
			file := filepath.Join(t.TempDir(), "prometheus.yml")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if output, err := exec.CommandContext(ctx, promtool, "check", "config", "--syntax-only", "--lint=all", "--lint-fatal", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", values, err, output)
			}
		}
		if !checked {
			t.Errorf("%s: there is no prometheus.yml", values)
		}
	}
}

// grafanaVariable is a variable that Grafana replaces in a query.
var grafanaVariable = regexp.MustCompile(`\$\{?\w+\}?`)

// board is a board of Grafana.
type board struct {
	Title  string `json:"title"`
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readBoard(t *testing.T, file string) board {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return b
}

// queries returns the queries of the panels with a title, or of all panels, with values in place of Grafana's variables.
func (b board) queries(title string, variables map[string]string) []string {
	var queries []string
	for _, panel := range b.Panels {
		for _, target := range panel.Targets {
			if title != "" && panel.Title != title {
				continue
			}
			queries = append(queries, grafanaVariable.ReplaceAllStringFunc(target.Expr, func(variable string) string {
				if strings.Contains(variable, "__rate_interval") {
					return "1m"
				}
				return cmp.Or(variables[strings.Trim(variable, "${}")], "value")
			}))
		}
	}
	return queries
}

// TestPromtoolParsesTheQueriesOfBoards checks each query as a recording rule.
func TestPromtoolParsesTheQueriesOfBoards(t *testing.T) {
	ctx, promtool, repository := findPromtool(t)
	files, err := filepath.Glob(filepath.Join(repository, "config", "grafana", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	var groups []group
	for _, file := range files {
		b := readBoard(t, file)
		rules := group{Name: b.Title}
		for i, query := range b.queries("", nil) {
			rules.Rules = append(rules.Rules, rule{fmt.Sprintf("query:%d", i), query})
		}
		if len(rules.Rules) < 10 {
			t.Errorf("%s has %d queries, want at least 10", file, len(rules.Rules))
		}
		groups = append(groups, rules)
	}
	runPromtool(ctx, t, promtool, map[string]any{"groups": groups}, "check", "rules", "--lint=none")
}

// TestBoardsShowOneRelease evaluates queries of the board about one release: a success rate is 0 if all requests fail, and without
// requests there is none; the AnalysisRuns of a Rollout are those that Serin, Argo Rollouts or their Experiments created for it, not
// those of a Rollout whose name begins in the same way.
func TestBoardsShowOneRelease(t *testing.T) {
	ctx, promtool, repository := findPromtool(t)
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type evaluation struct {
		Expr     string   `json:"expr"`
		EvalTime string   `json:"eval_time"`
		Samples  []sample `json:"exp_samples"`
	}
	var input []series
	for _, workload := range []string{"cart", "cart-primary"} {
		for _, metric := range []string{
			`http_request_duration_seconds_count{kubernetes_namespace="shop",kubernetes_pod_name="` + workload + `-5987db78cf-bcdfg",status="503"}`,
			`istio_requests_total{reporter="destination",destination_workload_namespace="shop",destination_workload="` + workload + `",response_code="503"}`,
			`response_total{namespace="shop",deployment="` + workload + `",direction="inbound",classification="failure"}`,
		} {
			input = append(input, series{metric, "0+60x80"})
		}
	}
	for i, run := range []string{
		"cart-5987db78cf-2", "cart-5987db78cf-2-1", "cart-5987db78cf-2-pre.1", "cart-5987db78cf-12-0-smoke", // of the Rollout cart
		"cart-api-5987db78cf-2", "cart-v2-5987db78cf-2-1", "cart", "cart-manual-3", // of others
	} {
		input = append(input, series{fmt.Sprintf(`analysis_run_metric_phase{namespace="shop",name="%s",metric="m%d",phase="Running"}`, run, i), "1x80"})
	}
	b := readBoard(t, filepath.Join(repository, "config", "grafana", "release.json"))
	var evaluations []evaluation
	for target, expected := range map[string][]sample{"cart": {{"{}", 0}}, "idle": nil} {
		rates := b.queries("Success rate", map[string]string{"namespace": "shop", "target": target})
		if len(rates) != 6 {
			t.Errorf("the board has %d success rates, want 6", len(rates))
		}
		for _, query := range rates {
			evaluations = append(evaluations, evaluation{query, "10m", expected})
		}
	}
	runs := b.queries("Analyses of the Rollout", map[string]string{"namespace": "shop", "name": "cart"})
	if len(runs) != 1 {
		t.Fatalf("the board has %d queries about analyses, want 1", len(runs))
	}
	own := evaluation{runs[0], "10m", nil}
	for i := range 4 {
		own.Samples = append(own.Samples, sample{fmt.Sprintf(`{metric="m%d",phase="Running"}`, i), 1})
	}
	runPromtool(ctx, t, promtool, map[string]any{"evaluation_interval": "1m", "tests": []any{map[string]any{
		"interval": "15s", "input_series": input, "promql_expr_test": append(evaluations, own),
	}}}, "test", "rules", "--diff")
}

// runPromtool passes a document to promtool as a file.
func runPromtool(ctx context.Context, t *testing.T, promtool string, document any, arguments ...string) {
	t.Helper()
	text, err := yaml.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "boards.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(ctx, promtool, append(arguments, file)...).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// findPromtool returns promtool, which may have to be built, and the folder of the repository.
func findPromtool(t *testing.T) (ctx context.Context, promtool, repository string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	builder, err := build.New(func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	if promtool, err = builder.Promtool(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, promtool, builder.Repository()
}
