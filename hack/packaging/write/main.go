// Command write writes what the chart and the kustomization install; it is run at the root of the repository.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/serin-dev/serin/hack/packaging"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(root string) error {
	files, err := packaging.Files(root)
	if err != nil {
		return err
	}
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
