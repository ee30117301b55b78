package v1beta1

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

// UnmarshalJSON reads a Canary as any other type is read, but takes everything that the schema of Flagger lets through;
// see tolerant.
func (c *Canary) UnmarshalJSON(data []byte) error {
	type plain Canary // without this method
	return tolerant(data, (*plain)(c))
}

// UnmarshalJSON reads a MetricTemplate; see tolerant.
func (t *MetricTemplate) UnmarshalJSON(data []byte) error {
	type plain MetricTemplate // without this method
	return tolerant(data, (*plain)(t))
}

// UnmarshalJSON reads an AlertProvider; see tolerant.
func (p *AlertProvider) UnmarshalJSON(data []byte) error {
	type plain AlertProvider // without this method
	return tolerant(data, (*plain)(p))
}

// tolerant reads what the schema lets through and the types do not take as it stands. The schema says number where the
// meaning is a whole one, so 12.5 and 1e12 get past the API server; and what it takes for a moment is wider than what
// the decoder does. Refused here, one such object would keep a client from listing all the others. A fraction is cut
// off; what does not fit becomes the nearest number that does; a moment that cannot be read is none.
func tolerant[T any](data []byte, into *T) error {
	cause := kjson.UnmarshalCaseSensitivePreserveInts(data, into)
	if cause == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return cause
	}
	fitting, err := json.Marshal(fit(tree, reflect.TypeFor[T]()))
	if err != nil {
		return cause
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(fitting, into)
}

// fit gives a JSON value back with every number that goes into a whole one of the type, and every moment, made to fit it.
// The value may be changed in place.
func fit(value any, into reflect.Type) any {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	switch value := value.(type) {
	case json.Number:
		return fitNumber(value, into)
	case string:
		return fitMoment(value, into)
	case []any:
		if into.Kind() == reflect.Slice {
			for i := range value {
				value[i] = fit(value[i], into.Elem())
			}
		}
	case map[string]any:
		switch into.Kind() {
		case reflect.Map:
			for key := range value {
				value[key] = fit(value[key], into.Elem())
			}
		case reflect.Struct:
			fitFields(value, into)
		default: // not an object: the decoder says so
		}
	}
	return value
}

// fitFields does what fit does for the fields of a struct, those of embedded structs included.
func fitFields(object map[string]any, into reflect.Type) {
	for field := range into.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			fitFields(object, field.Type)
			continue
		}
		if value, found := object[name]; found {
			object[name] = fit(value, field.Type)
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
