package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// List is the document of get -o json and -o yaml. Fields are added to it, never renamed or removed.
type List struct {
	// Controller reports whether a controller acts on the releases.
	Controller explain.Controller `json:"controller"`
	// Releases are sorted by namespace, name and kind, or have the order of the names in the arguments.
	Releases []explain.Release `json:"releases"`
	// Unread has one sentence for each kind of release that the user has no permission to list.
	Unread []string `json:"unread,omitempty"`
}

// Explanation is the document of why -o json and -o yaml. Fields are added to it, never renamed or removed.
type Explanation struct {
	// Controller reports whether a controller acts on the release.
	Controller explain.Controller `json:"controller"`
	// Sentences explain why the release is waiting, or its state if it is not waiting; one paragraph each.
	Sentences []string `json:"sentences"`
	// Release is the explained release.
	Release explain.Release `json:"release"`
}

// Output formats.
const (
	formatTable = ""
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// printDocument prints a document as JSON or YAML.
func printDocument(w io.Writer, format string, doc any) error {
	if format == formatJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false) // limits and queries contain < and >
		if err := encoder.Encode(doc); err != nil {
			return fmt.Errorf("print %T: %w", doc, err)
		}
		return nil
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("print %T: %w", doc, err)
	}
	_, err = w.Write(text)
	return err
}
