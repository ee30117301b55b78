package borders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	// fileOrCamelCase finds references in package comments: files, and names that begin with a lower case letter, as functions of
	// a package do and products do not.
	fileOrCamelCase = regexp.MustCompile(`[\w/]+\.go\b|\b[a-z]\w*[a-z][A-Z]\w*\b`)
	identifier      = regexp.MustCompile(`^(?:[a-z]+\.)?(?:\w+\.)?(\w*[a-z]\w*[A-Z]\w*)(?:\{.*\})?$`)
)

// otherNames are identifiers of Kubernetes, Istio and the Gateway API that the guides mention.
var otherNames = map[string]bool{"ClusterRole": true, "HTTPRoute": true, "resourceVersion": true}

// TestTheGuidesNameWhatExists checks the pages for contributors and the package comments: a file or an identifier that they name exists in the sources.
func TestTheGuidesNameWhatExists(t *testing.T) {
	declared, sources, comments := map[string]bool{}, []string{}, map[string]string{}
	for _, name := range files(t) {
		if filepath.Ext(name) != ".go" {
			continue
		}
		sources = append(sources, "/"+name)
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool { return declare(declared, n) })
		if doc := file.Doc.Text(); within(name, "internal") {
			comments[name] = doc
		}
	}
	for name, comment := range comments { // where names are not in code style
		for _, word := range fileOrCamelCase.FindAllString(comment, -1) {
			if strings.HasSuffix(word, ".go") {
				if !exists(sources, word) {
					t.Errorf("the package comment in %s names %s, which does not exist", name, word)
				}
			} else if !declared[word] && !otherNames[word] {
				t.Errorf("the package comment in %s names %s, which the sources do not declare", name, word)
			}
		}
	}
	for _, page := range []string{"docs/architecture.md", "docs/simulator.md", "CONTRIBUTING.md"} {
		text := fencedBlock.ReplaceAllString(read(t, page), "")
		for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
			name := span[1]
			if strings.HasSuffix(name, ".go") {
				if !exists(sources, name) {
					t.Errorf("%s names %s, which does not exist", page, name)
				}
				continue
			}
			if found := identifier.FindStringSubmatch(name); found != nil && !declared[found[1]] && !otherNames[found[1]] {
				t.Errorf("%s names %s, which the sources do not declare", page, name)
			}
		}
	}
}

var fencedBlock = regexp.MustCompile("(?s)```.*?```")

// exists reports whether a source has this name, or a path that ends in it.
func exists(sources []string, name string) bool {
	for _, source := range sources {
		if strings.HasSuffix(source, "/"+name) {
			return true
		}
	}
	return false
}

// declare adds the names that a node declares: of functions, methods, types, constants, variables and fields, and the JSON names
// of fields.
func declare(declared map[string]bool, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		declared[n.Name.Name] = true
	case *ast.TypeSpec:
		declared[n.Name.Name] = true
	case *ast.ValueSpec:
		for _, name := range n.Names {
			declared[name.Name] = true
		}
	case *ast.Field:
		for _, name := range n.Names {
			declared[name.Name] = true
		}
		if n.Tag != nil {
			tag := reflect.StructTag(strings.Trim(n.Tag.Value, "`"))
			name, _, _ := strings.Cut(tag.Get("json"), ",")
			declared[name] = true
		}
	}
	return true
}
