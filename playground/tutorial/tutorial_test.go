package tutorial_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/playground/tutorial"
)

// page returns a page with fences in place of ”'.
func page(text string) string { return strings.ReplaceAll(text, "'''", "```") }

func TestParseReturnsTheCommandsInOrder(t *testing.T) {
	got, err := tutorial.Parse(page(`# Title

<!-- test: background -->
'''sh
while sleep 1; do
	curl http://x
done
'''
Text with '''code'''.

'''yaml
kind: Deployment
'''

'''console
$ kubectl get \
    pods
NAME   READY
x      …
$ true
'''
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []tutorial.Block{
		{Line: 4, Directive: "background", Commands: []tutorial.Command{{Line: 5, Script: "while sleep 1; do\n\tcurl http://x\ndone"}}},
		{Line: 15, Commands: []tutorial.Command{
			{Line: 16, Script: "kubectl get \\\n    pods", Output: []string{"NAME   READY", "x      …"}},
			{Line: 20, Script: "true", Output: []string{}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("blocks (-want +got):\n%s", diff)
	}
}

func TestParseRejectsBlocksThatATestWouldOmit(t *testing.T) {
	for name, test := range map[string]struct{ page, want string }{
		"a block without language":       {"'''\nls\n'''\n", `line 1: a block in the language ""`},
		"another language":               {"\n'''bash\nls\n'''\n", `line 2: a block in the language "bash"`},
		"a block without end":            {"'''sh\nls\n", "line 1: the block has no end"},
		"output before the first prompt": {"'''console\nls\n'''\n", `line 2: a block in console begins with "$ "`},
		"a directive in front of text":   {"<!-- test: background -->\nText\n'''sh\nls\n'''\n", `line 2: no block follows the directive "background"`},
		"a directive for a manifest":     {"<!-- test: cluster -->\n'''yaml\na: 1\n'''\n", `line 2: a manifest has the directive "cluster"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tutorial.Parse(page(test.page)); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestCheckOutputComparesTheShape(t *testing.T) {
	for name, test := range map[string]struct {
		shown, output string
		want          bool
	}{
		"equal":                     {"a b\nc", "a b\nc\n", true},
		"other column widths":       {"NAME   READY", "NAME                READY  \n", true},
		"any text":                  {"pod/x-…   … days", "pod/x-12ab  3 days\n", true},
		"any number of lines":       {"a\n…\nz", "a\nb\nc\nz\n", true},
		"no line in place of them":  {"a\n…\nz", "a\nz\n", true},
		"no output":                 {"", "", true},
		"output where none is":      {"", "error\n", false},
		"a missing line":            {"a\nb", "a\n", false},
		"an additional line":        {"a", "a\nb\n", false},
		"another word":              {"Succeeded", "Failed\n", false},
		"no text across lines":      {"a…z", "a\nz\n", false},
		"characters of expressions": {"a.c (x)", "abc (x)\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			command := tutorial.Command{Output: []string{}}
			if test.shown != "" {
				command.Output = strings.Split(test.shown, "\n")
			}
			if err := command.CheckOutput(test.output); (err == nil) != test.want {
				t.Errorf("got %v, want match %t", err, test.want)
			}
		})
	}
	if err := (tutorial.Command{}).CheckOutput("anything"); err != nil {
		t.Errorf("a script without output was compared: %v", err)
	}
}
