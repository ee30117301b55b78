// Package tolerant decodes objects that an API server has accepted, although Go's types cannot represent them unchanged. It
// knows JSON and types, and no kind of resource.
package tolerant

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// Leaf converts a value, which is neither an object nor a list, so that it fits a type; false omits the value. It is also
// called for an object or a list if the type is of another kind.
type Leaf func(value any, into reflect.Type) (any, bool)

// Unmarshal decodes an object that the plain decoder refuses, with every leaf converted. A single such object would otherwise
// prevent a client from listing all others. If the conversion does not help, the error is the one of the plain decoder.
// omitted are JSON pointers to the omitted values, in the order of the object, those of a map in the order of their keys.
func Unmarshal[T any](data []byte, into *T, leaf Leaf) (omitted []string, err error) {
	cause := kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	if cause == nil {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, cause
	}
	f := fitter{leaf: leaf}
	fitting, ok := f.fit(tree, reflect.TypeFor[T](), "")
	if !ok {
		return nil, cause
	}
	text, err := json.Marshal(fitting)
	if err != nil {
		return nil, cause
	}
	var fresh T
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &fresh); err != nil {
		return nil, cause
	}
	*into = fresh
	return f.omitted, nil
}

// Nearest is for schemas that use number for an integer, so that 12.5 and 1e12 pass the API server, and that accept more
// formats of a time than the decoder. Fractions are truncated, numbers out of range become the nearest one in range, and a
// time that cannot be parsed becomes null. No value is omitted.
func Nearest(value any, into reflect.Type) (any, bool) {
	switch value := value.(type) {
	case json.Number:
		return fitNumber(value, into), true
	case string:
		return fitTime(value, into), true
	default:
		return value, true
	}
}

// Readable omits values that cannot be decoded, such as an invalid quantity.
func Readable(value any, into reflect.Type) (any, bool) {
	text, err := json.Marshal(value)
	return value, err == nil && kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(into).Interface()) == nil
}

// fitter converts a value for a type, and records where values were omitted.
type fitter struct {
	leaf    Leaf
	omitted []string
}

// fit returns the part of a JSON value that can be decoded into the type, and whether there is any. The value may be modified
// in place. at is its JSON pointer.
func (f *fitter) fit(value any, into reflect.Type, at string) (any, bool) {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	if reflect.PointerTo(into).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return f.leaf(value, into)
	}
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case isObject && into.Kind() == reflect.Struct:
		f.fitFields(object, into, at)
		return object, true
	case isObject && into.Kind() == reflect.Map:
		for _, key := range slices.Sorted(maps.Keys(object)) {
			f.fitField(object, key, into.Elem(), at)
		}
		return object, true
	case isList && into.Kind() == reflect.Slice:
		fitted := make([]any, 0, len(list))
		for i, element := range list {
			at := at + "/" + strconv.Itoa(i)
			if fitting, ok := f.fit(element, into.Elem(), at); ok {
				fitted = append(fitted, fitting)
			} else {
				f.omitted = append(f.omitted, at)
			}
		}
		return fitted, true
	default:
		return f.leaf(value, into)
	}
}

// fitFields converts the fields of a struct, including those of embedded structs.
func (f *fitter) fitFields(object map[string]any, into reflect.Type, at string) {
	for field := range into.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			f.fitFields(object, field.Type, at)
			continue
		}
		f.fitField(object, name, field.Type, at)
	}
}

// pointerEscaper escapes a key for a JSON pointer (RFC 6901).
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

func (f *fitter) fitField(object map[string]any, key string, into reflect.Type, at string) {
	value, found := object[key]
	if !found {
		return
	}
	at += "/" + pointerEscaper.Replace(key)
	if fitting, ok := f.fit(value, into, at); ok {
		object[key] = fitting
		return
	}
	delete(object, key)
	f.omitted = append(f.omitted, at)
}

// fitNumber returns the nearest number towards zero that fits the type. Numbers for types of other kinds are unchanged.
func fitNumber(number json.Number, into reflect.Type) json.Number {
	bits := 0
	switch {
	case into == reflect.TypeFor[intstr.IntOrString]():
		bits = 32
	case into.Kind() >= reflect.Int && into.Kind() <= reflect.Int64:
		bits = into.Bits()
	default:
		return number
	}
	highest := int64(math.MaxInt64) >> (64 - bits)
	whole, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil {
		float, _ := number.Float64() // out of range is infinite, which is above the highest or below the lowest
		switch float = math.Trunc(float); {
		case float >= math.MaxInt64:
			whole = math.MaxInt64
		case float <= math.MinInt64:
			whole = math.MinInt64
		default:
			whole = int64(float)
		}
	}
	return json.Number(strconv.FormatInt(max(min(whole, highest), -highest-1), 10))
}

// fitTime returns a string for a time in the format of its decoder, and nil if it cannot be parsed. Strings for types of
// other kinds are unchanged.
func fitTime(text string, into reflect.Type) any {
	layout := ""
	switch into {
	case reflect.TypeFor[metav1.Time]():
		layout = time.RFC3339
	case reflect.TypeFor[metav1.MicroTime]():
		layout = metav1.RFC3339Micro
	default:
		return text
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(text)) // which reads fractions of any length
	if err != nil {
		return nil
	}
	return at.Format(layout)
}
