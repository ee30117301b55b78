package flaggerhash

import (
	_ "embed" // for the list of fields
	"strings"
	"sync"
)

//go:embed fields.txt
var fieldList string

// The types that are hashed.
const (
	podTemplate = "core.PodTemplateSpec"
	serviceSpec = "core.ServiceSpec"
	text        = "string"
)

// embedded replaces the JSON name of an embedded struct, whose fields are encoded in the containing object.
const embedded = "~"

// typeKind determines how a type is dumped.
type typeKind int

const (
	scalar typeKind = iota
	structure
	pointer
	list
	table // a map with keys that are strings
	special
)

// goType is one type of the library that Flagger links.
type goType struct {
	kind   typeKind
	name   string // as Go prints it
	base   string // the underlying built-in type of a scalar
	elem   *goType
	fields []field
}

type field struct{ name, json, typeName string }

// typeTable contains the types by their names in the list. It is immutable after types has created it.
type typeTable struct{ byName map[string]*goType }

// types reads the list of fields once.
var types = sync.OnceValue(func() *typeTable {
	t := &typeTable{byName: map[string]*goType{}}
	var current *goType
	named := map[string]string{}
	for line := range strings.Lines(fieldList) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "#":
		case words[0] == "struct":
			current = &goType{kind: structure, name: printedTypeName(words[1])}
			t.byName[words[1]] = current
		case words[0] == "special":
			t.byName[words[1]] = &goType{kind: special, name: printedTypeName(words[1])}
		case words[0] == "named":
			named[words[1]] = words[2]
		default:
			current.fields = append(current.fields, field{name: words[0], json: words[1], typeName: words[2]})
		}
	}
	for name, underlying := range named {
		renamed := *t.compose(underlying)
		renamed.name = printedTypeName(name)
		t.byName[name] = &renamed
	}
	t.compose(text)
	for _, each := range t.structs() {
		for _, field := range each.fields {
			t.compose(field.typeName)
		}
	}
	return t
})

func (t *typeTable) structs() []*goType {
	var found []*goType
	for _, each := range t.byName {
		if each.kind == structure {
			found = append(found, each)
		}
	}
	return found
}

// lookup returns a type of the list.
func (t *typeTable) lookup(name string) *goType { return t.byName[name] }

// compose returns the type of an expression such as *string or []int32, and adds it to the table.
func (t *typeTable) compose(expression string) *goType {
	if known := t.byName[expression]; known != nil {
		return known
	}
	composed := &goType{}
	switch {
	case strings.HasPrefix(expression, "*"):
		composed.kind, composed.elem = pointer, t.compose(expression[1:])
		composed.name = "*" + composed.elem.name
	case strings.HasPrefix(expression, "[]"):
		composed.kind, composed.elem = list, t.compose(expression[2:])
		composed.name = "[]" + composed.elem.name
	case strings.HasPrefix(expression, "map["):
		key, elem, _ := strings.Cut(expression[len("map["):], "]")
		composed.kind, composed.elem = table, t.compose(elem)
		composed.name = "map[" + printedTypeName(key) + "]" + composed.elem.name
	default:
		composed.base, composed.name = expression, expression
	}
	t.byName[expression] = composed
	return composed
}

// printedTypeName returns the name of a type as Go prints it: both packages of API types are called v1.
func printedTypeName(name string) string {
	for _, prefix := range []string{"core.", "meta."} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return "v1." + rest
		}
	}
	return name
}
