// Package flaggerhash computes the hash by which Flagger 1.44 identifies the revision of a target, so that Serin's status is the
// same as Flagger's would be, and a migration back to Flagger starts no release.
//
// It must not know the Go structs of the linked Kubernetes library: Flagger hashes a dump of its structs with all fields, so that
// each version of the library has different hashes. This package has a frozen list of the fields. No decision of Serin depends
// on this hash; package workload has its own revision.
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

// hashAlphabet is the alphabet of Kubernetes' SafeEncodeString, without vowels, so that no hash is a word. The digits of a
// hash are mapped to it by their code points.
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

// dump formats a value like Flagger's dumper: each value after its type, except for elements of lists and maps; structs as
// {Name:value Name:value}, maps with sorted keys, without quotes.
func dump(typeName string, value any) []byte {
	known := types()
	d := dumper{known: known}
	d.writeValue(known.lookup(typeName), value, withType)
	return d.out.Bytes()
}

// typeNaming selects whether the type of a value is written before it.
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
func (d *dumper) writeValue(t *goType, value any, naming typeNaming) {
	if t.kind == pointer {
		d.writePointer(t, value, naming)
		return
	}
	if naming == withType {
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

// writePointer writes a pointer and the value that it points to. The type is written with one asterisk in both cases: it comes
// from the type of a nil pointer, and from the indirection otherwise.
func (d *dumper) writePointer(t *goType, value any, naming typeNaming) {
	switch {
	case value == nil && naming == withType:
		d.write("(", t.name, ")<nil>")
	case value == nil:
		d.write("<nil>")
	case naming == withType:
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

// writeBytes writes bytes, which are base64 in JSON, as a list of numbers.
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
	default: // integers
		d.write(strconv.FormatInt(integerValue(value), 10))
	}
}

// integerValue returns an integer of any representation in decoded JSON; zero for other values, as for absent ones.
func integerValue(value any) int64 {
	switch number := value.(type) {
	case int64:
		return number
	case float64: // from a JSON decoder without integers
		return int64(number)
	case json.Number:
		n, _ := number.Int64()
		return n
	default:
		return 0
	}
}

// writeSpecial writes values of types with their own JSON encoding.
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
		d.write("{Type:(intstr.Type)0 IntVal:(int32)", strconv.FormatInt(integerValue(value), 10), " StrVal:(string)}")
	case "resource.Quantity":
		d.write(dumpQuantity(value))
	}
}
