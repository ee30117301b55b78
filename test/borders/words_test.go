package borders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ignorance is the sentence of a package comment that says what the package does not know. Reviews are held to it.
var ignorance = regexp.MustCompile(`(?i)\bmust not\b|\bmust know nothing\b|\bknows (no|nothing)\b|\band (no|nothing)\b|\bnothing of\b`)

func TestEveryPackageSaysWhatItIsForAndMustNotKnow(t *testing.T) {
	comments := map[string]string{}
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		folder := path.Dir(name)
		comments[folder] += file.Doc.Text()
	}
	for folder, comment := range comments {
		switch {
		case comment == "":
			t.Errorf("%s has no package comment: say what it is for and what it must not know", folder)
		case strings.HasPrefix(comment, "Command "): // a main package is wiring, its borders are those of what it wires
		case !strings.HasPrefix(comment, "Package "):
			t.Errorf("%s: the package comment begins with %q, not with Package or Command", folder, firstLine(comment))
		case !ignorance.MatchString(strings.ReplaceAll(comment, "\n", " ")):
			t.Errorf("%s: the package comment does not say what the package must not know:\n%s", folder, comment)
		}
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// TestDocsNameEveryGate: who reads a gate's name in a status finds in docs/gates.md what it means and who opens it.
func TestDocsNameEveryGate(t *testing.T) {
	names := gates(t)
	if len(names) < 10 {
		t.Fatalf("found the gates %q only: the test no longer understands how the machines make them", names)
	}
	documented := documentedGates(t)
	for _, name := range names {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/gates.md has no row for the gate %s", name)
		}
	}
	for _, name := range documented {
		if !slices.Contains(names, name) {
			t.Errorf("docs/gates.md describes the gate %s, which no machine has", name)
		}
	}
}

// documentedGates are the names in the first column of the tables of docs/gates.md.
func documentedGates(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read(t, "docs/gates.md"), -1) {
		names = append(names, row[1])
	}
	return names
}

// gates are the names of all gates that the sources of the machines make, as docs/gates.md spells them: what differs
// from release to release is written in capitals.
func gates(t *testing.T) []string {
	t.Helper()
	var sources []string
	for _, machine := range []string{"internal/canary", "internal/rollout"} {
		of, err := filepath.Glob(filepath.Join(root, machine, "*.go"))
		if err != nil || len(of) == 0 {
			t.Fatalf("find the sources of %s: %v", machine, err)
		}
		sources = append(sources, of...)
	}
	var functions []*ast.FuncDecl
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
				functions = append(functions, function)
			}
		}
	}
	given := map[string]string{} // names that functions of one line give
	for _, function := range functions {
		if len(function.Body.List) != 1 {
			continue
		}
		if line, ok := function.Body.List[0].(*ast.ReturnStmt); ok && len(line.Results) == 1 {
			given[function.Name.Name] = nameOf(line.Results[0], nil)
		}
	}
	var names []string
	for _, function := range functions {
		names = append(names, gatesOf(t, function, given)...)
	}
	if i := slices.Index(names, "TYPE/HOOK"); i >= 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "TYPE/HOOK" })
		for _, found := range hookType.FindAllStringSubmatch(read(t, "api/flagger/v1beta1/analysis.go"), -1) {
			if found[1] != "event" { // is told, and never asked
				names = append(names, found[1]+"/HOOK")
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hookType finds the types of webhooks in the API.
var hookType = regexp.MustCompile(`HookType = "([a-z-]+)"`)

// makers are the functions of package release whose first argument is the name of a gate.
var makers = []string{"Passes", "WaitsUntil", "WaitsFor", "Asks", "Fails"}

// gatesOf are the names of the gates that a function makes. given are the names that other functions return.
func gatesOf(t *testing.T, function *ast.FuncDecl, given map[string]string) []string {
	t.Helper()
	defined := maps.Clone(given) // and then the function's own variables and constants
	define := func(names []*ast.Ident, values []ast.Expr) {
		for i, name := range names {
			if i < len(values) {
				defined[name.Name] = nameOf(values[i], defined)
			}
		}
	}
	var names []string
	ast.Inspect(function.Body, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.ValueSpec:
			define(node.Names, node.Values)
		case *ast.AssignStmt:
			var left []*ast.Ident
			for _, expression := range node.Lhs {
				name, ok := expression.(*ast.Ident)
				if !ok {
					return true
				}
				left = append(left, name)
			}
			define(left, node.Rhs)
		case *ast.CallExpr:
			selector, ok := node.Fun.(*ast.SelectorExpr)
			if !ok || len(node.Args) == 0 || !slices.Contains(makers, selector.Sel.Name) {
				return true
			}
			if of, ok := selector.X.(*ast.Ident); !ok || of.Name != "release" {
				return true
			}
			name := nameOf(node.Args[0], defined)
			if name == "" {
				t.Errorf("%s makes a gate whose name this test cannot read", function.Name.Name)
				return true
			}
			names = append(names, name)
		}
		return true
	})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// nameOf is what an expression gives as a name; empty where it cannot be told.
func nameOf(expression ast.Expr, defined map[string]string) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		return strings.Trim(e.Value, `"`)
	case *ast.Ident:
		return defined[e.Name]
	case *ast.BinaryExpr:
		left, right := nameOf(e.X, defined), nameOf(e.Y, defined)
		if left == "" || right == "" {
			return ""
		}
		return left + right
	case *ast.CallExpr:
		if function, ok := e.Fun.(*ast.Ident); ok && defined[function.Name] != "" {
			return defined[function.Name]
		}
		if len(e.Args) == 1 { // a conversion
			return nameOf(e.Args[0], defined)
		}
		return ""
	case *ast.SelectorExpr:
		switch of := e.X.(type) {
		case *ast.Ident:
			if of.Name == "hook" && e.Sel.Name == "Type" {
				return "TYPE"
			}
			if of.Name == "hook" && e.Sel.Name == "Name" {
				return "HOOK"
			}
		case *ast.SelectorExpr:
			if of.Sel.Name == "Metric" && e.Sel.Name == "Name" {
				return "METRIC"
			}
		}
	}
	return ""
}

// strangers are traces of a machine: paths of one developer's disk, and hosts that only a build machine talks to. The
// test looks for them in itself as well, so it does not spell them.
var strangers = regexp.MustCompile(strings.Join([]string{
	`(^|[^\w.~$}-])/(` + "wo" + `rk|ro` + `ot|fa` + `rm|ho` + `me/\w+)/`,
	`pro` + `xy\.golang\.`, `sum\.` + `golang\.`, `registry\.` + `npmjs`, `deb\.` + `debian`, `py` + `pi\.org`,
}, "|"))

func TestNoFileNamesAMachine(t *testing.T) {
	for _, name := range files(t) {
		for number, line := range strings.Split(read(t, name), "\n") {
			if found := strangers.FindString(line); found != "" {
				t.Errorf("%s:%d names %q, which is of one machine only", name, number+1, found)
			}
		}
	}
}
