package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/cli/manifest"
)

// document is one object of an input.
type document struct {
	file string
	// firstLine is the number of lines before the text that node was parsed from.
	firstLine             int
	node                  *yamlv3.Node
	object                map[string]any
	group, version        string
	kind, namespace, name string
}

// lineNumber matches the line in the errors of the parser.
var lineNumber = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// readInput reads all documents of an input.
func (l *linter) readInput(input Input) {
	for _, read := range manifest.Read(input.Text) {
		l.readDocument(&document{file: input.Name, firstLine: read.FirstLine, node: read.Node}, read)
	}
}

func (l *linter) readDocument(d *document, read manifest.Document) {
	if read.Err != nil {
		match := lineNumber.FindStringSubmatch(read.Err.Error())
		line := 1
		if len(match) > 1 {
			if n, err := strconv.Atoi(match[1]); err == nil {
				line = n
			}
		}
		d.node = &yamlv3.Node{Line: line, Column: 1}
		l.report(d, ruleSyntax, "", strings.TrimPrefix(read.Err.Error(), cmp.Or(firstOf(match), "yaml: ")), syntaxFix(read.Text))
		return
	}
	if d.node == nil {
		return // comments only
	}
	if d.node.Kind != yamlv3.MappingNode {
		l.report(d, ruleSyntax, "", "the document is not a Kubernetes object", "")
		return
	}
	// Values are those of kubectl, whose parser differs in details from the one that knows lines.
	content, err := yaml.YAMLToJSON(read.Text)
	if err == nil {
		err = utiljson.Unmarshal(content, &d.object)
	}
	if err != nil {
		l.report(d, ruleSyntax, "", strings.TrimPrefix(err.Error(), "yaml: "), syntaxFix(read.Text))
		return
	}
	l.addObject(d)
}

// syntaxFix returns the fix for a text that cannot be parsed; empty: that of the rule.
func syntaxFix(text []byte) string {
	if bytes.Contains(text, []byte("{{")) {
		return "if this is a template of a Helm chart, render it first: helm template . | serin lint -f -"
	}
	return ""
}

func firstOf(match []string) string {
	if len(match) == 0 {
		return ""
	}
	return match[0]
}

// addObject adds an object, or the objects of a list.
func (l *linter) addObject(d *document) {
	apiVersion, _ := d.object["apiVersion"].(string)
	d.kind, _ = d.object["kind"].(string)
	if apiVersion == "" || d.kind == "" {
		l.report(d, ruleSyntax, "", "the document has no apiVersion or no kind", "add both")
		return
	}
	items, isList := d.object["items"].([]any)
	nodes := d.child("items")
	if isList && strings.HasSuffix(d.kind, "List") && nodes != nil && len(nodes.Content) == len(items) {
		for i, item := range items {
			if object, ok := item.(map[string]any); ok {
				l.addObject(&document{file: d.file, firstLine: d.firstLine, node: nodes.Content[i], object: object})
			}
		}
		return
	}
	version, _ := schema.ParseGroupVersion(apiVersion) // an invalid one is that of another kind
	d.group, d.version = version.Group, version.Version
	metadata, _ := d.object["metadata"].(map[string]any)
	d.name, _ = metadata["name"].(string)
	d.namespace, _ = metadata["namespace"].(string)
	if d.kind != argov1.ClusterAnalysisTemplateKind {
		d.namespace = cmp.Or(d.namespace, l.options.Namespace)
	}
	l.objects = append(l.objects, d)
}

func (d *document) child(name string) *yamlv3.Node {
	for i := 0; i+1 < len(d.node.Content); i += 2 {
		if d.node.Content[i].Value == name {
			return d.node.Content[i+1]
		}
	}
	return nil
}

// decode decodes the object into a value of its type.
func (d *document) decode(into any) error {
	content, err := utiljson.Marshal(d.object)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", d.kind, d.name, err)
	}
	return utiljson.Unmarshal(content, into)
}

// locate returns the node of a field, or of the nearest field around it that exists. A field is that of a mapping's key.
func (d *document) locate(field string) *yamlv3.Node {
	at, node := d.node, d.node
	for field != "" && node != nil {
		key, value, rest := step(node, field)
		if key == nil {
			break
		}
		at, node, field = key, value, rest
	}
	return at
}

// step follows the first element of a path. Keys may contain dots, so the longest key with which the path begins is followed.
func step(node *yamlv3.Node, field string) (key, value *yamlv3.Node, rest string) {
	if node.Kind == yamlv3.AliasNode {
		node = node.Alias
	}
	if node.Kind == yamlv3.SequenceNode {
		index, rest, found := strings.Cut(strings.TrimPrefix(field, "["), "]")
		i, err := strconv.Atoi(index)
		if !found || err != nil || i < 0 || i >= len(node.Content) {
			return nil, nil, ""
		}
		return node.Content[i], node.Content[i], strings.TrimPrefix(rest, ".")
	}
	for i := 0; i+1 < len(node.Content) && node.Kind == yamlv3.MappingNode; i += 2 {
		name := node.Content[i].Value
		after, found := strings.CutPrefix(field, name)
		if bracketed, ok := strings.CutPrefix(field, "["+name+"]"); ok {
			after, found = bracketed, true
		}
		if found && (after == "" || after[0] == '.' || after[0] == '[') && (key == nil || len(name) > len(key.Value)) {
			key, value, rest = node.Content[i], node.Content[i+1], strings.TrimPrefix(after, ".")
		}
	}
	return key, value, rest
}

// duplicate is a key that occurs twice.
type duplicate struct {
	path string
	node *yamlv3.Node
	line int
}

// duplicates returns the keys that occur twice in a mapping.
func duplicates(node *yamlv3.Node, path string) []duplicate {
	var all []duplicate
	seen := map[string]int{}
	for i, child := range node.Content {
		switch {
		case node.Kind == yamlv3.SequenceNode:
			all = append(all, duplicates(child, fmt.Sprintf("%s[%d]", path, i))...)
		case node.Kind != yamlv3.MappingNode || i%2 == 1:
		default:
			at := strings.TrimPrefix(path+"."+child.Value, ".")
			if line, found := seen[child.Value]; found && child.Value != "<<" {
				all = append(all, duplicate{at, child, line})
			}
			seen[child.Value] = child.Line
			all = append(all, duplicates(node.Content[i+1], at)...)
		}
	}
	return all
}

// find returns an object, and whether the input contains any object of that kind in that namespace.
func (l *linter) find(group, kind, namespace, name string) (found *document, anyOfKind bool) {
	for _, d := range l.objects {
		if d.group == group && d.kind == kind && d.namespace == namespace {
			anyOfKind = true
			if d.name == name {
				return d, true
			}
		}
	}
	return nil, anyOfKind
}

// namesOf returns the names of all objects of a kind in a namespace.
func (l *linter) namesOf(group, kind, namespace string) []string {
	var names []string
	for _, d := range l.objects {
		if d.group == group && d.kind == kind && d.namespace == namespace {
			names = append(names, d.name)
		}
	}
	slices.Sort(names)
	return names
}
