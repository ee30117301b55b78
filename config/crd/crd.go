// Package crd contains the CustomResourceDefinitions of the kinds that Serin serves, from this folder.
//
// Commands print or install them. It must not know the content of the definitions: they are generated from the types in api.
package crd

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

//go:embed *.yaml argoproj/*.yaml
var files embed.FS

// patterns match the definitions of each API group. A cluster may need one group without the others, so argoproj.io has a
// separate folder, which is not applied along with the files of this one.
var patterns = map[string]string{
	"flagger.app": "flagger.app_*.yaml",
	"argoproj.io": "argoproj/argoproj.io_*.yaml",
}

// Groups returns the API groups that have definitions.
func Groups() []string { return slices.Sorted(maps.Keys(patterns)) }

// Files returns the definitions of a group, one file for each kind.
func Files(group string) (map[string][]byte, error) {
	pattern, ok := patterns[group]
	if !ok {
		return nil, fmt.Errorf("there are definitions of %s, none of %q", strings.Join(Groups(), " and "), group)
	}
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	found := make(map[string][]byte, len(names))
	for _, name := range names {
		definition, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read definition %s: %w", name, err)
		}
		found[path.Base(name)] = definition
	}
	return found, nil
}

// YAML is all definitions of a group in one stream of YAML documents, in the order of their file names.
func YAML(group string) ([]byte, error) {
	found, err := Files(group)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all.Write(found[name])
	}
	return all.Bytes(), nil
}
