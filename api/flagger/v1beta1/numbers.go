package v1beta1

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// UnmarshalJSON reads a Canary as any other type is read, but takes every number that the schema of Flagger lets through:
// that schema says number where the meaning is a whole one, so 12.5 and 1e12 get past the API server. Refused here, one
// such object would keep a client from listing all the others. A fraction is cut off; what does not fit becomes the
// nearest number that does.
func (c *Canary) UnmarshalJSON(data []byte) error {
	type plain Canary // without this method
	cause := kjson.UnmarshalCaseSensitivePreserveInts(data, (*plain)(c))
	if cause == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return cause
	}
	fitting, err := json.Marshal(fitNumbers(tree, reflect.TypeFor[plain]()))
	if err != nil {
		return cause
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(fitting, (*plain)(c))
}

// fitNumbers gives a JSON value back with every number that goes into a whole one of the type made to fit it. The value
// may be changed in place.
func fitNumbers(value any, into reflect.Type) any {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	switch value := value.(type) {
	case json.Number:
		return fitNumber(value, into)
	case []any:
		if into.Kind() == reflect.Slice {
			for i := range value {
				value[i] = fitNumbers(value[i], into.Elem())
			}
		}
	case map[string]any:
		switch into.Kind() {
		case reflect.Map:
			for key := range value {
				value[key] = fitNumbers(value[key], into.Elem())
			}
		case reflect.Struct:
			fitFields(value, into)
		default: // not an object: the decoder says so
		}
	}
	return value
}

// fitFields does what fitNumbers does for the fields of a struct, those of embedded structs included.
func fitFields(object map[string]any, into reflect.Type) {
	for field := range into.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			fitFields(object, field.Type)
			continue
		}
		if value, found := object[name]; found {
			object[name] = fitNumbers(value, field.Type)
		}
	}
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
