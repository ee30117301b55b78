package borders

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCanaryFilesUseOnlyFilesBelow checks the list of files in the comment of package canary: it names every file once, and a
// file uses only definitions of files that follow it.
func TestCanaryFilesUseOnlyFilesBelow(t *testing.T) {
	const folder = "internal/canary"
	order := listedFiles(t, folder)
	fset, parsed := token.NewFileSet(), []*ast.File{}
	sources, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		name := filepath.Base(source)
		if strings.HasSuffix(name, "_test.go") || name == "doc.go" {
			continue
		}
		if !slices.Contains(order, name) {
			t.Errorf("the comment of package canary does not list %s", name)
		}
		file, err := parser.ParseFile(fset, source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	fileOf := func(at token.Pos) string { return filepath.Base(fset.Position(at).Filename) }
	upward := map[string]bool{}
	for use, object := range usesOf(fset, parsed) {
		user, used := fileOf(use.Pos()), fileOf(object.Pos())
		if slices.Index(order, used) < slices.Index(order, user) {
			upward[user+" uses "+use.Name+" of "+used] = true
		}
	}
	for _, use := range slices.Sorted(maps.Keys(upward)) {
		t.Errorf("%s, which precedes it in the comment of package canary", use)
	}
}

var fileName = regexp.MustCompile(`\w+\.go\b`)

// listedFiles are the files in the preformatted block of the section Files of a package comment.
func listedFiles(t *testing.T, folder string) []string {
	t.Helper()
	_, section, found := strings.Cut(read(t, folder+"/doc.go"), "// # Files\n")
	if !found {
		t.Fatalf("%s/doc.go has no section Files", folder)
	}
	section, _, _ = strings.Cut(section, "// # ")
	var listed []string
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "//\t") {
			listed = append(listed, fileName.FindAllString(line, -1)...)
		}
	}
	for _, name := range listed {
		if _, err := os.Stat(filepath.Join(root, folder, name)); err != nil {
			t.Error(err)
		}
	}
	if sorted := slices.Sorted(slices.Values(listed)); len(slices.Compact(sorted)) != len(listed) {
		t.Errorf("%s/doc.go lists a file twice", folder)
	}
	return listed
}

// usesOf are the identifiers in files of one package that denote a definition of that package. Other packages are not read: what
// depends on their types has no object, and is no use.
func usesOf(fset *token.FileSet, files []*ast.File) map[*ast.Ident]types.Object {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: emptyPackages{}, Error: func(error) {}} // the imported names are missing
	pkg, _ := config.Check("canary", fset, files, info)
	uses := map[*ast.Ident]types.Object{}
	for name, object := range info.Uses {
		if object.Pkg() == pkg && object.Pos().IsValid() {
			uses[name] = object
		}
	}
	return uses
}

// emptyPackages imports every package without its contents.
type emptyPackages struct{}

func (emptyPackages) Import(name string) (*types.Package, error) {
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}
