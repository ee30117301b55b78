package v1alpha1

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
)

// UnmarshalJSON reads a Rollout as any other type is read, but leaves out what cannot be read; see tolerant.
func (r *Rollout) UnmarshalJSON(data []byte) error {
	type plain Rollout // without this method
	return tolerant(data, (*plain)(r))
}

// UnmarshalJSON reads an AnalysisTemplate; see tolerant.
func (t *AnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain AnalysisTemplate // without this method
	return tolerant(data, (*plain)(t))
}

// UnmarshalJSON reads a ClusterAnalysisTemplate; see tolerant.
func (t *ClusterAnalysisTemplate) UnmarshalJSON(data []byte) error {
	type plain ClusterAnalysisTemplate // without this method
	return tolerant(data, (*plain)(t))
}

// UnmarshalJSON reads an AnalysisRun; see tolerant.
func (r *AnalysisRun) UnmarshalJSON(data []byte) error {
	type plain AnalysisRun // without this method
	return tolerant(data, (*plain)(r))
}

// UnmarshalJSON reads an Experiment; see tolerant.
func (e *Experiment) UnmarshalJSON(data []byte) error {
	type plain Experiment // without this method
	return tolerant(data, (*plain)(e))
}

// tolerant leaves out the values that do not fit their fields, such as a quantity that is none. Refused here, one such
// object would keep a client from listing all the others.
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
	fitting, ok := fit(tree, reflect.TypeFor[T]())
	if !ok {
		return cause
	}
	text, err := json.Marshal(fitting)
	if err != nil {
		return cause
	}
	var fresh T
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &fresh); err != nil {
		return cause
	}
	*into = fresh
	return nil
}

// fit gives what of a JSON value can be read into the type, and whether any of it can. The value may be changed in place.
func fit(value any, into reflect.Type) (any, bool) {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	if reflect.PointerTo(into).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return value, reads(value, into)
	}
	switch value := value.(type) {
	case map[string]any:
		switch into.Kind() {
		case reflect.Struct:
			fitFields(value, into)
			return value, true
		case reflect.Map:
			for key := range value {
				fitOrDrop(value, key, into.Elem())
			}
			return value, true
		default:
			return nil, false
		}
	case []any:
		if into.Kind() != reflect.Slice {
			return nil, false
		}
		kept := make([]any, 0, len(value))
		for _, element := range value {
			if fitting, ok := fit(element, into.Elem()); ok {
				kept = append(kept, fitting)
			}
		}
		return kept, true
	default:
		return value, reads(value, into)
	}
}

// fitFields does what fit does for the fields of a struct, those of embedded structs included.
func fitFields(object map[string]any, into reflect.Type) {
	for field := range into.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			fitFields(object, field.Type)
			continue
		}
		fitOrDrop(object, name, field.Type)
	}
}

func fitOrDrop(object map[string]any, key string, into reflect.Type) {
	value, found := object[key]
	if !found {
		return
	}
	if fitting, ok := fit(value, into); ok {
		object[key] = fitting
		return
	}
	delete(object, key)
}

// reads is true when the type takes the value as it is.
func reads(value any, into reflect.Type) bool {
	text, err := json.Marshal(value)
	return err == nil && kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(into).Interface()) == nil
}
