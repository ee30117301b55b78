package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/view"
)

// Output formats.
const (
	formatTable    = ""
	formatWide     = "wide"
	formatJSON     = "json"
	formatYAML     = "yaml"
	formatName     = "name"
	formatJSONPath = "jsonpath"
)

// output is a parsed output format.
type output struct {
	// format is one of the formats above.
	format string
	// path is the template of formatJSONPath.
	path *jsonpath.JSONPath
}

// formatWords are the values of --output as users type them, for completion.
func formatWords(formats []string) []string {
	var out []string
	for _, format := range formats {
		switch format {
		case formatTable:
		case formatJSONPath:
			out = append(out, format+"=")
		default:
			out = append(out, format)
		}
	}
	return out
}

// registerOutput adds the flag for the output format, of which a command supports some.
func registerOutput(cmd *cobra.Command, text *string, formats []string) {
	words := formatWords(formats)
	cmd.Flags().StringVarP(text, "output", "o", "", strings.Join(words, ", ")+"; default: text")
	completeFlag(cmd, "output", completeWords(words))
}

// parseOutput parses the flag for the output format.
func parseOutput(text string, formats []string) (output, error) {
	format, template, hasTemplate := strings.Cut(text, "=")
	if !slices.Contains(formats, format) || hasTemplate != (format == formatJSONPath) {
		return output{}, withExitCode(ExitUsage, fmt.Errorf("--output %q is invalid: use %s", text, strings.Join(formatWords(formats), ", ")))
	}
	if !hasTemplate {
		return output{format: format}, nil
	}
	if !strings.Contains(template, "{") { // as kubectl, also without braces
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return output{}, withExitCode(ExitUsage, fmt.Errorf("read --output %s: %w: use for example %s", text, err, "jsonpath='{.releases[*].phase}'"))
	}
	return output{format: format, path: path}, nil
}

// isDocument reports whether the output is a document, whose readers are programs.
func (o output) isDocument() bool {
	return o.format == formatJSON || o.format == formatYAML || o.format == formatJSONPath
}

// printDocument prints a document.
func (o output) printDocument(w io.Writer, doc any) error {
	if o.path == nil {
		return printDocument(w, o.format, doc)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("print %T: %w", doc, err)
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(text, &fields); err != nil { // with the names of the document, and whole numbers
		return fmt.Errorf("print %T: %w", doc, err)
	}
	if err := o.path.Execute(w, fields); err != nil {
		return withExitCode(ExitUsage, fmt.Errorf("print --output jsonpath: %w", err))
	}
	return nil
}

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

// plainWriter removes the control characters of values of the cluster from a text without styles. Each write is a whole text.
type plainWriter struct{ io.Writer }

// Write implements io.Writer.
func (w plainWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.Writer, view.PlainText(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// plainOut returns the standard output of a command for texts without styles.
func plainOut(cmd *cobra.Command) io.Writer { return plainWriter{cmd.OutOrStdout()} }

// plainErr returns the standard error of a command, which has no styles.
func plainErr(cmd *cobra.Command) io.Writer { return plainWriter{cmd.ErrOrStderr()} }
