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

// embedded stands for the JSON name of a field whose own fields stand in its holder.
const embedded = "~"

// typeKind says how a type is dumped.
type typeKind int

const (
	scalar typeKind = iota
	structure
	pointer
	list
	table // a map with keys that are strings
	special
)

// goType is one type of the peer's library.
type goType struct {
	kind   typeKind
	name   string // as Go prints it
	base   string // of a scalar: the built-in type below it
	elem   *goType
	fields []field
}

type field struct{ name, json, typeName string }

// typeTable are the types by the names of the list. It is read only once it is made.
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
		made := *t.compose(underlying)
		made.name = printedTypeName(name)
		t.byName[name] = &made
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

// lookup is a type that the list names.
func (t *typeTable) lookup(name string) *goType { return t.byName[name] }

// compose finds a type by its expression, and keeps what it had to compose.
func (t *typeTable) compose(expression string) *goType {
	if known := t.byName[expression]; known != nil {
		return known
	}
	made := &goType{}
	switch {
	case strings.HasPrefix(expression, "*"):
		made.kind, made.elem = pointer, t.compose(expression[1:])
		made.name = "*" + made.elem.name
	case strings.HasPrefix(expression, "[]"):
		made.kind, made.elem = list, t.compose(expression[2:])
		made.name = "[]" + made.elem.name
	case strings.HasPrefix(expression, "map["):
		key, elem, _ := strings.Cut(expression[len("map["):], "]")
		made.kind, made.elem = table, t.compose(elem)
		made.name = "map[" + printedTypeName(key) + "]" + made.elem.name
	default:
		made.base, made.name = expression, expression
	}
	t.byName[expression] = made
	return made
}

// printedTypeName is the name of a type as Go prints it: both packages of API types are called v1.
func printedTypeName(name string) string {
	for _, prefix := range []string{"core.", "meta."} {
		if rest, found := strings.CutPrefix(name, prefix); found {
			return "v1." + rest
		}
	}
	return name
}
