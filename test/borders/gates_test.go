package borders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/rollout"
)

// stateMachines are the state machines with gates, and the lists of their gates.
var stateMachines = []struct {
	folder string
	kinds  release.GateKinds
}{
	{"internal/canary", canary.GateKinds()},
	{"internal/rollout", rollout.GateKinds()},
}

// TestEveryGateIsListed: the GateKinds of a state machine, with which the commands explain gates, are exactly the gates that
// it creates.
func TestEveryGateIsListed(t *testing.T) {
	for _, machine := range stateMachines {
		created := gatesOf(t, machine.folder)
		if len(created) < 10 {
			t.Fatalf("%s: found only the gates %q: the test no longer recognizes how a state machine creates them", machine.folder, created)
		}
		var listed []string
		for _, kind := range machine.kinds {
			listed = append(listed, kind.Name)
		}
		for _, name := range created {
			if !slices.Contains(listed, name) {
				t.Errorf("%s creates the gate %s, which its GateKinds do not list", machine.folder, name)
			}
		}
		for _, name := range listed {
			if !slices.Contains(created, name) {
				t.Errorf("the GateKinds of %s list the gate %s, which it does not create", machine.folder, name)
			}
		}
	}
}

// TestEveryGateIsDocumented: docs/gates.md explains every name of a gate that a status may have, and names its opener.
func TestEveryGateIsDocumented(t *testing.T) {
	rows := documentedGates(t)
	var listed []gateRow
	for _, machine := range stateMachines {
		for _, kind := range machine.kinds {
			if len(kind.Sections) == 0 {
				t.Errorf("%s: the gate %s names no section of docs/gates.md", machine.folder, kind.Name)
			}
			for _, section := range kind.Sections {
				listed = append(listed, gateRow{section: section, name: kind.Name})
				i := slices.IndexFunc(rows, func(row gateRow) bool { return row.section == section && row.name == kind.Name })
				if i < 0 {
					t.Errorf("docs/gates.md has no row for the gate %s of %s below #%s", kind.Name, machine.folder, section)
					continue
				}
				if problem := rows[i].differsFrom(kind); problem != "" {
					t.Errorf("docs/gates.md#%s: the gate %s %s", section, kind.Name, problem)
				}
			}
		}
	}
	for _, row := range rows {
		row.opener = ""
		if !slices.Contains(listed, row) {
			t.Errorf("docs/gates.md#%s describes the gate %s, which no GateKinds list there", row.section, row.name)
		}
	}
}

// gateRow is the row of a gate in a table of docs/gates.md.
type gateRow struct{ section, name, opener string }

// userSection is the section whose table has an action of the user in place of the opener.
const userSection = "user-action-required"

// noticesSection is the section whose gates pass, so that its table has an action of the user in place of the opener.
const noticesSection = "notices"

// openerWords are the words for openers in their column.
var openerWords = map[release.Opener][]string{
	release.ByTime: {"time"}, release.ByCluster: {"cluster"}, release.ByAnswer: {"answer"}, release.ByUser: {"person", "user"},
}

// differsFrom describes how the opener of a row differs from the openers in the list; empty if it does not. Gates with
// several sections may refer to another row.
func (r gateRow) differsFrom(kind release.GateKind) string {
	if r.section == noticesSection {
		return ""
	}
	if r.section == userSection {
		if !slices.Equal(kind.Openers, []release.Opener{release.ByUser}) {
			return "is below User action required, but the user is not its only opener"
		}
		return ""
	}
	for opener, words := range openerWords {
		named := slices.ContainsFunc(words, func(word string) bool { return strings.Contains(r.opener, word) })
		if named != slices.Contains(kind.Openers, opener) {
			return "is opened by " + r.opener + ", but the list of the state machine has other openers"
		}
	}
	return ""
}

// documentedGates are the rows of the tables of gates in docs/gates.md.
func documentedGates(t *testing.T) []gateRow {
	t.Helper()
	var rows []gateRow
	section := ""
	for line := range strings.SplitSeq(read(t, "docs/gates.md"), "\n") {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.ReplaceAll(strings.ToLower(heading), " ", "-")
		}
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		row := gateRow{section: section, name: strings.Trim(cells[0], " `")}
		if len(cells) > 2 {
			row.opener = cells[2]
		}
		rows = append(rows, row)
	}
	return rows
}

// gatesOf are the names of all gates that the sources of a state machine create, as docs/gates.md spells them: variable parts
// are in capitals.
func gatesOf(t *testing.T, machine string) []string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, machine, "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatalf("find the sources of %s: %v", machine, err)
	}
	var functions []*ast.FuncDecl
	given := map[string]string{} // the values of constants, and the results of functions with one statement
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			switch declaration := declaration.(type) {
			case *ast.FuncDecl:
				if declaration.Body != nil {
					functions = append(functions, declaration)
				}
			case *ast.GenDecl:
				if declaration.Tok == token.CONST {
					defineConstants(declaration, given)
				}
			}
		}
	}
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
		names = append(names, gatesCreatedBy(t, function, given)...)
	}
	if i := slices.Index(names, "TYPE/HOOK"); i >= 0 {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "TYPE/HOOK" })
		for _, found := range hookType.FindAllStringSubmatch(read(t, "api/flagger/v1beta1/analysis.go"), -1) {
			if found[1] != "event" { // is sent, and has no gate
				names = append(names, found[1]+"/HOOK")
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hookType finds the types of webhooks in the API.
var hookType = regexp.MustCompile(`HookType = "([a-z-]+)"`)

// defineConstants adds the string constants of a declaration.
func defineConstants(declaration *ast.GenDecl, defined map[string]string) {
	for _, spec := range declaration.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, name := range values.Names {
			if i < len(values.Values) {
				if text := nameOf(values.Values[i], nil); text != "" {
					defined[name.Name] = text
				}
			}
		}
	}
}

// gateConstructors are the functions of package release whose first argument is the name of a gate.
var gateConstructors = []string{"NewPassingGate", "NewTimedGate", "NewWaitingGate", "NewQueryGate", "NewFailedGate", "NewNotice"}

// gatesCreatedBy are the names of the gates that a function creates. given are the names that other functions return.
func gatesCreatedBy(t *testing.T, function *ast.FuncDecl, given map[string]string) []string {
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
			var assigned []*ast.Ident
			for _, expression := range node.Lhs {
				name, ok := expression.(*ast.Ident)
				if !ok {
					return true
				}
				assigned = append(assigned, name)
			}
			define(assigned, node.Rhs)
		case *ast.CallExpr:
			selector, ok := node.Fun.(*ast.SelectorExpr)
			if ok && selector.Sel.Name == "Gate" && len(node.Args) == 0 { // pkg release.QueueState
				names = append(names, "turn")
			}
			if !ok || len(node.Args) == 0 || !slices.Contains(gateConstructors, selector.Sel.Name) {
				return true
			}
			if pkg, ok := selector.X.(*ast.Ident); !ok || pkg.Name != "release" {
				return true
			}
			name := nameOf(node.Args[0], defined)
			if name == "" {
				t.Errorf("%s creates a gate whose name this test cannot determine", function.Name.Name)
				return true
			}
			names = append(names, name)
		}
		return true
	})
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// nameOf is the name that an expression evaluates to; empty if it is not constant.
func nameOf(expression ast.Expr, defined map[string]string) string {
	switch e := expression.(type) {
	case *ast.BasicLit:
		return strings.Trim(e.Value, `"`)
	case *ast.Ident:
		return defined[e.Name]
	case *ast.BinaryExpr:
		assigned, right := nameOf(e.X, defined), nameOf(e.Y, defined)
		if assigned == "" || right == "" {
			return ""
		}
		return assigned + right
	case *ast.CallExpr:
		if function, ok := e.Fun.(*ast.Ident); ok && defined[function.Name] != "" {
			return defined[function.Name]
		}
		if len(e.Args) == 1 { // a conversion
			return nameOf(e.Args[0], defined)
		}
		return ""
	case *ast.SelectorExpr:
		switch pkg := e.X.(type) {
		case *ast.Ident:
			if pkg.Name == "hook" && e.Sel.Name == "Type" {
				return "TYPE"
			}
			if pkg.Name == "hook" && e.Sel.Name == "Name" {
				return "HOOK"
			}
		case *ast.SelectorExpr:
			if pkg.Sel.Name == "Metric" && e.Sel.Name == "Name" {
				return "METRIC"
			}
		}
	}
	return ""
}
