// Package flaggerhash computes the hash by which Flagger 1.44 identifies what a target runs, so that Serin's status is the
// same as Flagger's would be, and a migration back to Flagger starts no release.
//
// It must not know the Go structs of the linked Kubernetes library: Flagger hashes a dump of its structs with every
// field, so each version of that library has other hashes. Here the fields are in a frozen list. No decision of Serin
// depends on this hash; package workload has its own revision.
package flaggerhash

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
)

// hashAlphabet has no vowels, so that no hash is a word. Digits of the hash are mapped by their code point.
const hashAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// HashTemplate returns the hash of a pod template as the API server stores it, decoded from JSON: at most ten characters. Like
// Flagger, it ignores fields that are not in the frozen list.
func HashTemplate(template map[string]any) string { return fnvHash(podTemplate, template) }

// HashServiceSpec returns the hash of the spec of a Service.
func HashServiceSpec(spec map[string]any) string { return fnvHash(serviceSpec, spec) }

// HashText returns the hash of a name.
func HashText(name string) string { return fnvHash(text, name) }

func fnvHash(typeName string, value any) string {
	sum := fnv.New32a()
	_, _ = sum.Write(dump(typeName, value)) // a hash never fails
	text := []byte(strconv.FormatUint(uint64(sum.Sum32()), 10))
	for i, digit := range text {
		text[i] = hashAlphabet[int(digit)%len(hashAlphabet)]
	}
	return string(text)
}

// dump formats a value as Flagger's dumper does: each value after its type, except for elements of lists and maps;
// structs as {Name:value Name:value}, keys of maps sorted, nothing quoted.
func dump(typeName string, value any) []byte {
	known := types()
	d := dumper{known: known}
	d.writeValue(known.lookup(typeName), value, withType)
	return d.out.Bytes()
}

// typeNaming is whether the type of a value is written before it.
type typeNaming bool

const (
	withType    typeNaming = true
	withoutType typeNaming = false
)

type dumper struct {
	known *typeTable
	out   bytes.Buffer
}

func (d *dumper) write(texts ...string) {
	for _, text := range texts {
		d.out.WriteString(text)
	}
}

// writeValue writes a JSON value as a value of the given type; nil is the zero value.
func (d *dumper) writeValue(t *goType, value any, by typeNaming) {
	if t.kind == pointer {
		d.writePointer(t, value, by)
		return
	}
	if by == withType {
		d.write("(", t.name, ")")
	}
	switch t.kind {
	case structure:
		d.writeStruct(t, value)
	case list:
		d.writeList(t, value)
	case table:
		d.writeMap(t, value)
	case special:
		d.writeSpecial(t, value)
	default:
		d.writeScalar(t, value)
	}
}

// writePointer writes what is pointed to. The type of a pointer has one asterisk either way: from the type where it is nil,
// from the indirection where it is not.
func (d *dumper) writePointer(t *goType, value any, by typeNaming) {
	switch {
	case value == nil && by == withType:
		d.write("(", t.name, ")<nil>")
	case value == nil:
		d.write("<nil>")
	case by == withType:
		d.write("(", t.name, ")")
		d.writeValue(t.elem, value, withoutType)
	default:
		d.write("<*>")
		d.writeValue(t.elem, value, withoutType)
	}
}

func (d *dumper) writeStruct(t *goType, value any) {
	object, _ := value.(map[string]any)
	d.write("{")
	for i, field := range t.fields {
		if i > 0 {
			d.write(" ")
		}
		d.write(field.name, ":")
		if field.json == embedded {
			d.writeValue(d.known.lookup(field.typeName), value, withType)
			continue
		}
		d.writeValue(d.known.lookup(field.typeName), object[field.json], withType)
	}
	d.write("}")
}

func (d *dumper) writeList(t *goType, value any) {
	if text, ok := value.(string); ok && t.elem.kind == scalar && t.elem.name == "uint8" {
		d.writeBytes(text)
		return
	}
	items, ok := value.([]any)
	if !ok {
		d.write("<nil>")
		return
	}
	d.write("[")
	for i, item := range items {
		if i > 0 {
			d.write(" ")
		}
		d.writeValue(t.elem, item, withoutType)
	}
	d.write("]")
}

// writeBytes are base64 in JSON and a list of numbers in the dump.
func (d *dumper) writeBytes(text string) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		d.write("<nil>")
		return
	}
	d.writeNumbers(raw)
}

func (d *dumper) writeNumbers(raw []byte) {
	d.write("[")
	for i, b := range raw {
		if i > 0 {
			d.write(" ")
		}
		d.write(strconv.Itoa(int(b)))
	}
	d.write("]")
}

func (d *dumper) writeMap(t *goType, value any) {
	entries, ok := value.(map[string]any)
	if !ok {
		d.write("<nil>")
		return
	}
	d.write("map[")
	for i, key := range slices.Sorted(maps.Keys(entries)) {
		if i > 0 {
			d.write(" ")
		}
		d.write(key, ":")
		d.writeValue(t.elem, entries[key], withoutType)
	}
	d.write("]")
}

func (d *dumper) writeScalar(t *goType, value any) {
	switch t.base {
	case "string":
		text, _ := value.(string)
		d.write(text)
	case "bool":
		yes, _ := value.(bool)
		d.write(strconv.FormatBool(yes))
	default: // the whole numbers
		d.write(strconv.FormatInt(isWholeNumber(value), 10))
	}
}

func isWholeNumber(value any) int64 {
	switch number := value.(type) {
	case int64:
		return number
	case float64: // a decoder that knows only floats
		return int64(number)
	case json.Number:
		n, _ := number.Int64() // not a whole number: zero, as for what is absent
		return n
	default:
		return 0
	}
}

// writeSpecial are the types that read JSON in their own way.
func (d *dumper) writeSpecial(t *goType, value any) {
	switch t.name {
	case "v1.Time":
		// The API server stores no times in a pod template: creationTimestamp is null there.
		d.write("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}")
	case "v1.FieldsV1":
		d.write("{Raw:([]uint8)")
		if text, err := json.Marshal(value); err == nil && value != nil {
			d.writeNumbers(text)
		} else {
			d.write("<nil>")
		}
		d.write("}")
	case "intstr.IntOrString":
		if text, ok := value.(string); ok {
			d.write("{Type:(intstr.Type)1 IntVal:(int32)0 StrVal:(string)", text, "}")
			return
		}
		d.write("{Type:(intstr.Type)0 IntVal:(int32)", strconv.FormatInt(isWholeNumber(value), 10), " StrVal:(string)}")
	case "resource.Quantity":
		d.write(dumpQuantity(value))
	}
}
