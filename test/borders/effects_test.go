package borders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryEffectIsApplied: an effect that the reconciler does not know fails at run time. The compiler does not report it,
// because the decisions of all kinds share one interface of effects.
func TestEveryEffectIsApplied(t *testing.T) {
	for _, machine := range []string{"canary", "rollout"} {
		declared := effectsOf(t, machine)
		if len(declared) < 10 {
			t.Fatalf("internal/%s: found only the effects %q: the test no longer recognizes how they are declared", machine, declared)
		}
		applied := typeCasesOf(t, machine)
		for _, effect := range declared {
			if !slices.Contains(applied, machine+"."+effect) {
				t.Errorf("internal/%s/controller does not apply the effect %s: add a case to apply.go", machine, effect)
			}
		}
	}
}

// effectsOf are the types in effects.go with a String method.
func effectsOf(t *testing.T, machine string) []string {
	t.Helper()
	var effects []string
	for _, declaration := range parseFile(t, filepath.Join(root, "internal", machine, "effects.go")).Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Recv == nil || function.Name.Name != "String" {
			continue
		}
		if receiver, ok := function.Recv.List[0].Type.(*ast.Ident); ok && receiver.IsExported() {
			effects = append(effects, receiver.Name)
		}
	}
	return effects
}

// typeCasesOf are the types of other packages for which the type switches of a reconciler have cases.
func typeCasesOf(t *testing.T, machine string) []string {
	t.Helper()
	var types []string
	sources, err := filepath.Glob(filepath.Join(root, "internal", machine, "controller", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		ast.Inspect(parseFile(t, source), func(node ast.Node) bool {
			clause, ok := node.(*ast.CaseClause)
			if !ok {
				return true
			}
			for _, expression := range clause.List {
				if selector, ok := expression.(*ast.SelectorExpr); ok {
					if pkg, ok := selector.X.(*ast.Ident); ok {
						types = append(types, pkg.Name+"."+selector.Sel.Name)
					}
				}
			}
			return true
		})
	}
	return types
}

func parseFile(t *testing.T, source string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
