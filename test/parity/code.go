package parity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// modulePath is the module of Serin; its API is below apiPath.
const (
	modulePath = "github.com/serin-dev/serin"
	apiPath    = modulePath + "/api/"
)

// code is what the code of the program refers to, without its tests.
type code struct {
	// references are the fields of the API, as PACKAGE.TYPE.FIELD.
	references map[string]bool
	// constants are the constant strings. events are those without a package that lists the names of all events.
	constants, events map[string]bool
	// declared are the fields of the API by their positions.
	declared map[string]string
}

// eventListPackage knows the names of all events of Argo Rollouts, also of those that Serin does not write.
const eventListPackage = modulePath + "/internal/notification"

// goPackage is a package as go list prints it.
type goPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// readCode checks the types of all packages that the program links, and collects what they refer to. The API itself does not count: its
// copies mention each field.
func readCode(root string) (*code, error) {
	packages, err := linkedPackages(root)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	declared, err := declaredFields(packages)
	if err != nil {
		return nil, err
	}
	out := &code{references: map[string]bool{}, constants: map[string]bool{}, events: map[string]bool{}, declared: declared}
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("package %s has no export data", path)
		}
		return os.Open(exports[path])
	}
	files := token.NewFileSet()
	shared := importer.ForCompiler(files, "gc", lookup)
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, modulePath) || strings.HasPrefix(p.ImportPath, apiPath) {
			continue
		}
		info, err := checkPackage(files, shared, p)
		if err != nil {
			return nil, err
		}
		out.collect(files, p.ImportPath, info)
	}
	return out, nil
}

// linkedPackages lists the packages of the program, with compiled export data.
func linkedPackages(root string) ([]goPackage, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./cmd/serin")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of cmd/serin: %w: %s", err, &stderr)
	}
	var out []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read the output of go list: %w", err)
		}
		out = append(out, p)
	}
}

// checkPackage parses a package and checks its types.
func checkPackage(files *token.FileSet, imports types.Importer, p goPackage) (*types.Info, error) {
	var parsed []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(p.ImportPath, files, parsed, info); err != nil {
		return nil, fmt.Errorf("check the types of %s: %w", p.ImportPath, err)
	}
	return info, nil
}

// collect adds what a package refers to.
func (c *code) collect(files *token.FileSet, path string, info *types.Info) {
	for _, value := range info.Types {
		if value.Value != nil && value.Value.Kind() == constant.String {
			text := constant.StringVal(value.Value)
			c.constants[text] = true
			c.events[text] = c.events[text] || path != eventListPackage
		}
	}
	// Selections lead through embedded fields; uses include the keys of composite literals.
	for _, object := range info.Uses {
		c.refer(files, object)
	}
	for _, selection := range info.Selections {
		c.refer(files, selection.Obj())
	}
}

// refer adds a field of the API.
func (c *code) refer(files *token.FileSet, object types.Object) {
	field, ok := object.(*types.Var)
	if !ok || !field.IsField() || field.Pkg() == nil || !strings.HasPrefix(field.Pkg().Path(), apiPath) {
		return
	}
	if key := c.declared[positionKey(files.Position(field.Pos()), field.Name())]; key != "" {
		c.references[key] = true
	}
}

// positionKey identifies a field by its declaration: export data contains its file and line.
func positionKey(at token.Position, name string) string {
	folder, file := filepath.Split(at.Filename)
	return fmt.Sprint(filepath.Base(folder), "/", file, ":", at.Line, " ", name)
}

// declaredFields returns the fields of the structs of the API by their positions.
func declaredFields(packages []goPackage) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range packages {
		if !strings.HasPrefix(p.ImportPath, apiPath) {
			continue
		}
		files := token.NewFileSet()
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				declaration, ok := node.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if body, ok := declaration.Type.(*ast.StructType); ok {
					for _, field := range body.Fields.List {
						for _, ident := range field.Names {
							out[positionKey(files.Position(ident.Pos()), ident.Name)] = filepath.Base(p.Dir) + "." + declaration.Name.Name + "." + ident.Name
						}
					}
				}
				return false
			})
		}
	}
	return out, nil
}

// isConsumedWhole reports whether a field belongs to a type that is converted as a whole.
func isConsumedWhole(field string) bool {
	return slices.ContainsFunc(wholeTypes, func(name string) bool { return strings.HasPrefix(field, name+".") })
}

// wholeTypes are types whose objects are compared, copied or converted as a whole, so that no code names their fields.
var wholeTypes = []string{"v1beta1.HTTPMatchRequest"} // the match of Istio's VirtualService
