// Package manifest separates the objects of a file: YAML documents, and JSON objects that follow each other.
//
// It must not know kinds, nor what is done with an object.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// Document is the text of one object, or of comments.
type Document struct {
	// FirstLine is the number of lines before Text.
	FirstLine int
	Text      []byte
	// Node is the parsed text; nil: it contains comments only, or Err is set.
	Node *yamlv3.Node
	// Err is the error of the parser, whose lines are those of Text.
	Err error
}

// separator matches the lines between documents.
var separator = regexp.MustCompile(`(?m)^---[ \t]*(?:[ \t]#.*)?\r?$`)

// Read returns the documents of a text, each independently of syntax errors in the others.
func Read(text []byte) []Document {
	var all []Document
	start := 0
	for _, end := range append(separator.FindAllIndex(text, -1), []int{len(text), len(text)}) {
		for start < end[0] {
			next := start + lengthOfFirst(text[start:end[0]])
			d := Document{FirstLine: bytes.Count(text[:start], []byte("\n")), Text: text[start:next]}
			d.Node, d.Err = parse(d.Text)
			all = append(all, d)
			start = next
		}
		start = end[1]
	}
	return all
}

// lengthOfFirst returns the length of a JSON object that another one follows, or else of the whole text: what follows otherwise
// belongs to the document, or is an error of its syntax.
func lengthOfFirst(text []byte) int {
	if !isFlowMapping(text) {
		return len(text)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	var object json.RawMessage
	if decoder.Decode(&object) != nil || !isFlowMapping(text[decoder.InputOffset():]) {
		return len(text)
	}
	return int(decoder.InputOffset())
}

func isFlowMapping(text []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }

// restMessage is the error about what follows a document.
const restMessage = "text follows the document; separate documents by a line ---"

// parse parses a text with one document. Parsers ignore what follows a line "..." that ends it, that of kubectl as well: that object
// would silently be missing.
func parse(text []byte) (*yamlv3.Node, error) {
	decoder := yamlv3.NewDecoder(bytes.NewReader(text))
	var parsed, rest yamlv3.Node
	switch err := decoder.Decode(&parsed); {
	case errors.Is(err, io.EOF):
		return nil, nil //nolint:nilnil // comments only
	case err != nil:
		return nil, err
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, errors.New("yaml: " + restMessage)
	case !errors.Is(err, io.EOF):
		return nil, errors.New(strings.Replace(err.Error(), "did not find expected <document start>", restMessage, 1))
	}
	if len(parsed.Content) == 0 || parsed.Content[0].Tag == "!!null" {
		return nil, nil //nolint:nilnil // comments only
	}
	return parsed.Content[0], nil
}
