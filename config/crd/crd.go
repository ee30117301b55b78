// Package crd carries the definitions of the kinds that Serin serves, as they stand in this folder.
//
// It is for those who print or install them. It must not know what the definitions say: they are generated from the
// types in api.
package crd

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// Files are the definitions, one file for each kind.
func Files() fs.FS { return files }

// YAML is all definitions in one stream of YAML documents, in the order of their file names.
func YAML() ([]byte, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list definitions: %w", err)
	}
	var all bytes.Buffer
	for _, name := range names {
		definition, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read definition %s: %w", name, err)
		}
		all.Write(definition)
	}
	return all.Bytes(), nil
}
