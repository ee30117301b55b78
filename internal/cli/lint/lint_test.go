package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/cockroachdb/datadriven"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/lint"
	"github.com/serin-dev/serin/internal/operator"
)

func options() lint.Options {
	_, routers := cluster.SettingsFor(nil)
	return lint.Options{
		Settings: canary.Settings{Provider: "istio"}, MetricTypes: []string{"prometheus"},
		Features: func(_ *flaggerv1.Canary, provider string) canary.Features {
			return canary.Features{Known: provider == "istio" || provider == "gatewayapi:v1", Weights: true, Matches: true, Mirror: true, Sticky: true}
		},
		CheckRoute: routers.CheckRoute, CheckRouting: routers.CheckRouting, ExternalPlugins: routers.ExternalPlugins,
	}
}

// TestFindings shows the findings about one input. The name of a case is that of the rule that it is for.
func TestFindings(t *testing.T) {
	triggered := map[string]bool{}
	datadriven.RunTest(t, "testdata/rules", func(t *testing.T, d *datadriven.TestData) string {
		findings, err := lint.Lint(t.Context(), []lint.Input{{Name: "x.yaml", Text: []byte(d.Input)}}, options())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			triggered[f.Rule] = true
		}
		format := "text"
		d.MaybeScanArgs(t, "format", &format)
		text, err := lint.Format(format, findings)
		if err != nil {
			t.Fatal(err)
		}
		return text
	})
	for _, rule := range lint.Rules() {
		if !triggered[rule.Name] {
			t.Errorf("no input in testdata/rules triggers %s", rule.Name)
		}
	}
}

func TestEveryRuleIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/lint.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range lint.Rules() {
		if !strings.Contains(string(page), "\n### "+rule.Name+"\n") {
			t.Errorf("docs/lint.md has no section %s", rule.Name)
		}
	}
	for line := range strings.SplitSeq(string(page), "\n") {
		if name, ok := strings.CutPrefix(line, "### "); ok && !strings.Contains(ruleNames(), " "+name+" ") {
			t.Errorf("docs/lint.md describes the rule %s, which does not exist", name)
		}
	}
}

func ruleNames() string {
	names := " "
	for _, rule := range lint.Rules() {
		names += rule.Name + " "
	}
	return names
}

// TestFormatsWithoutFindings: all formats describe the same findings, also none.
func TestFormatsWithoutFindings(t *testing.T) {
	for format, want := range map[string]string{"text": "", "github": "", "json": `"findings": []`, "sarif": `"results": []`} {
		got, err := lint.Format(format, nil)
		if err != nil || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, %v, want %q", format, got, err, want)
		}
	}
}

// TestManifestsCannotForgeOutput: the names and fields of a manifest neither begin a line of the output nor control the terminal.
func TestManifestsCannotForgeOutput(t *testing.T) {
	const manifest = `{"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "cart\n::error file=x::forged\u001b[31m"},
		"spec": {"forged\r\n::warning::field\u009b2J\u202e": 1}}`
	findings, err := lint.Lint(t.Context(), []lint.Input{{Name: "a\n::error::file\x1b[1m.yaml", Text: []byte(manifest)}}, options())
	if err != nil || len(findings) == 0 {
		t.Fatalf("%d findings, %v", len(findings), err)
	}
	for format, begin := range map[string]*regexp.Regexp{
		"text": regexp.MustCompile(`^a ::error::file.*:\d+:\d+: (error|warning): `), "github": regexp.MustCompile(`^::(error|warning) file=a%0A%3A%3Aerror%3A%3Afile.*,line=\d+,`),
	} {
		text, err := lint.Format(format, findings)
		if err != nil || !strings.Contains(text, "forged") {
			t.Errorf("%s: %q, %v", format, text, err)
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSuffix(line, "\n"); !begin.MatchString(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: forged line %q", format, line)
			}
		}
	}
}

// FuzzLint: no input panics, and each finding has a position in its file.
func FuzzLint(f *testing.F) {
	examples, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(examples) == 0 {
		f.Fatal("no examples", err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{"a: &a [*a]", "- 1", "&a {kind: *a}", "apiVersion: flagger.app/v1beta1\nkind: Canary\nspec: 1", "---\n---\n{{ x }}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		findings, err := lint.Lint(t.Context(), []lint.Input{{Name: "x.yaml", Text: text}}, options())
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range findings {
			if found.Line < 1 || found.Column < 1 {
				t.Errorf("finding without position: %+v", found)
			}
		}
	})
}

// TestExamplesHaveNoFindings: the manifests of the documentation are those that users copy. Each file is applied alone.
func TestExamplesHaveNoFindings(t *testing.T) {
	examples, err := filepath.Glob("../../../docs/examples/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatal("no examples", err)
	}
	settings, routers := cluster.SettingsFor(nil)
	o := lint.Options{
		Settings: settings, MetricTypes: operator.MetricTypes(),
		Features: func(c *flaggerv1.Canary, provider string) canary.Features {
			return controller.Features(routers, c, provider)
		},
		CheckRoute: routers.CheckRoute, CheckRouting: routers.CheckRouting, ExternalPlugins: routers.ExternalPlugins,
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		findings, err := lint.Lint(t.Context(), []lint.Input{{Name: name, Text: text}}, o)
		if err != nil || len(findings) > 0 {
			t.Errorf("%s: %v %v", name, findings, err)
		}
	}
}
