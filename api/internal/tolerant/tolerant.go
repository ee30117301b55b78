// Package tolerant reads objects that an API server has let through and that Go's types do not take as they stand. It
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

// Leaf makes a value fit a type, where it is neither an object nor a list for one; false leaves the value out. It is asked
// too of an object or a list where the type is of another kind.
type Leaf func(value any, into reflect.Type) (any, bool)

// Unmarshal reads an object that the plain decoder refuses, with every leaf made to fit. Refused, one such object would
// keep a client from listing all the others. The error is the plain decoder's, where that does not help. left are JSON
// pointers to what was left out, in the order of the object, those of a map in the order of their names.
func Unmarshal[T any](data []byte, into *T, leaf Leaf) (left []string, err error) {
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
	return f.left, nil
}

// Nearest is for schemas that say number where the meaning is a whole one, so that 12.5 and 1e12 get past the API server,
// and that take more for a moment than the decoder does. A fraction is cut off; what does not fit becomes the nearest
// number that does; a moment that cannot be read is none. Nothing is left out.
func Nearest(value any, into reflect.Type) (any, bool) {
	switch value := value.(type) {
	case json.Number:
		return fitNumber(value, into), true
	case string:
		return fitMoment(value, into), true
	default:
		return value, true
	}
}

// Readable leaves out what cannot be read, such as a quantity that is none.
func Readable(value any, into reflect.Type) (any, bool) {
	text, err := json.Marshal(value)
	return value, err == nil && kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(into).Interface()) == nil
}

// fitter makes a value fit a type, and notes down where something was left out.
type fitter struct {
	leaf Leaf
	left []string
}

// fit gives what of a JSON value can be read into the type, and whether any of it can. The value may be changed in place.
// at is the JSON pointer to it.
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
		kept := make([]any, 0, len(list))
		for i, element := range list {
			at := at + "/" + strconv.Itoa(i)
			if fitting, ok := f.fit(element, into.Elem(), at); ok {
				kept = append(kept, fitting)
			} else {
				f.left = append(f.left, at)
			}
		}
		return kept, true
	default:
		return f.leaf(value, into)
	}
}

// fitFields does what fit does for the fields of a struct, those of embedded structs included.
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

// escaped is a key in a JSON pointer (RFC 6901).
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

func (f *fitter) fitField(object map[string]any, key string, into reflect.Type, at string) {
	value, found := object[key]
	if !found {
		return
	}
	at += "/" + escaped.Replace(key)
	if fitting, ok := f.fit(value, into, at); ok {
		object[key] = fitting
		return
	}
	delete(object, key)
	f.left = append(f.left, at)
}

// fitNumber gives the nearest number towards zero that fits the type, and the number itself for types of other kinds.
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

// fitMoment gives a text that goes into a moment as that reads it, nil where it is none, and the text itself for types
// of other kinds.
func fitMoment(text string, into reflect.Type) any {
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
