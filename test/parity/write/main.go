// Command write writes docs/parity.md; it is run at the root of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/serin-dev/serin/test/parity"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(root string) error {
	tables, err := parity.Compare(root)
	if err != nil {
		return err
	}
	projects, err := parity.Projects()
	if err != nil {
		return err
	}
	return os.WriteFile(parity.Page(root), []byte(parity.Render(projects, tables)), 0o644)
}
