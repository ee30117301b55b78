//go:build linux

package alertrules

import (
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

// TestPromtoolParsesTheQueriesOfBoards checks each query as a recording rule, with values in place of Grafana's variables.
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
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string `json:"title"`
			Panels []struct {
				Targets []struct {
					Expr string `json:"expr"`
				} `json:"targets"`
			} `json:"panels"`
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rules := group{Name: board.Title}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				query := grafanaVariable.ReplaceAllStringFunc(target.Expr, func(variable string) string {
					if strings.Contains(variable, "__rate_interval") {
						return "1m"
					}
					return "value"
				})
				rules.Rules = append(rules.Rules, rule{fmt.Sprintf("query:%d", len(rules.Rules)), query})
			}
		}
		if len(rules.Rules) < 10 {
			t.Errorf("%s has %d queries, want at least 10", file, len(rules.Rules))
		}
		groups = append(groups, rules)
	}
	text, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(t.TempDir(), "boards.yaml")
	if err := os.WriteFile(rules, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(ctx, promtool, "check", "rules", "--lint=none", rules).CombinedOutput(); err != nil {
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
