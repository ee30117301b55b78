package scaffold

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"
)

// commentWidth is the maximum length of a line with a comment, unless a word is longer.
const commentWidth = 100

// document writes YAML with comments. Names and values come from objects that other users control: none of them may end a comment,
// add a field or send a control sequence to a terminal.
type document struct{ text strings.Builder }

// indentation returns the spaces before a line.
func indentation(depth int) string { return strings.Repeat("  ", depth) }

// comment writes a paragraph, in as many lines as required.
func (d *document) comment(depth int, format string, args ...any) {
	prefix := indentation(depth) + "#"
	line := prefix
	for word := range strings.FieldsSeq(fmt.Sprintf(format, args...)) {
		word = printable(word)
		if len(line) > len(prefix) && len(line)+1+len(word) > commentWidth {
			d.text.WriteString(line + "\n")
			line = prefix
		}
		line += " " + word
	}
	d.text.WriteString(line + "\n")
}

// disabled writes a line of YAML that users may enable.
func (d *document) disabled(depth int, line string) {
	d.text.WriteString(indentation(depth) + "# " + printable(line) + "\n")
}

// object begins an object or a list.
func (d *document) object(depth int, key string) {
	d.text.WriteString(indentation(depth) + key + ":\n")
}

// field writes a field with one value. A key that begins with a dash begins an object of a list.
func (d *document) field(depth int, key string, value any) {
	d.text.WriteString(indentation(depth) + key + ": " + scalar(value) + "\n")
}

// item writes one value of a list.
func (d *document) item(depth int, value any) {
	d.text.WriteString(indentation(depth) + "- " + scalar(value) + "\n")
}

// labels writes an object whose keys are not known.
func (d *document) labels(depth int, keys []string, values map[string]string) {
	for _, key := range keys {
		d.field(depth, scalar(key), values[key])
	}
}

// flow is a value that is YAML already. It never contains the name of an object.
type flow string

// scalar returns a value as YAML in one line.
func scalar(value any) string {
	if text, ok := value.(flow); ok {
		return string(text)
	}
	if text, ok := value.(string); ok && printable(text) != text {
		return quoted(text)
	}
	text, err := yaml.Marshal(value)
	line := strings.TrimSuffix(string(text), "\n")
	if err != nil || strings.Contains(line, "\n") {
		return quoted(fmt.Sprint(value))
	}
	return line
}

// quoted returns a text in double quotes. The escapes of Go are also those of YAML.
func quoted(text string) string { return strconv.QuoteToASCII(text) }

// printable returns a text with escapes in place of control characters, line breaks and the like.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strings.Trim(quoted(text), `"`)
}
