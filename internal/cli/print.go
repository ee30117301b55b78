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
	// Controller that acts on the releases.
	Controller explain.Controller `json:"controller"`
	// Releases sorted by namespace, name and kind, or in the order in which they were named.
	Releases []explain.Release `json:"releases"`
	// Unread are the releases that the user has no permission to list, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// Answer is the document of why -o json and -o yaml. Fields are added to it, never renamed or removed.
type Answer struct {
	// Controller that acts on the release.
	Controller explain.Controller `json:"controller"`
	// Sentences explain why the release is waiting, or what it does instead; one paragraph each.
	Sentences []string `json:"sentences"`
	// Release that is explained.
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

// document prints a document as JSON or YAML.
func document(w io.Writer, format string, doc any) error {
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
