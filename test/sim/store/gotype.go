package store

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shape describes the JSON of a Go type after a server has decoded and encoded it: unknown fields are removed, and empty ones
// are omitted or written as the type specifies. Types are read once.
type shape struct {
	kind   shapeKind
	name   string // of the type, for errors
	fields map[string]*member
	// spelled are the fields that are written even when they are not set.
	spelled []*member
	items   *shape // of lists and maps
}

type member struct {
	name  string
	shape *shape
	// spelled means that the zero value is written; zero is that value.
	spelled bool
	zero    any
	pointer bool
}

type shapeKind int

const (
	structShape shapeKind = iota
	mapShape
	listShape
	textShape
	boolShape
	wholeShape
	floatShape
	bytesShape
	timeShape
	microTimeShape
	durationShape
	quantityShape
	intOrStringShape
	anyShape
	droppedShape
)

var special = map[reflect.Type]shapeKind{
	reflect.TypeFor[metav1.Time]():                 timeShape,
	reflect.TypeFor[metav1.MicroTime]():            microTimeShape,
	reflect.TypeFor[metav1.Duration]():             durationShape,
	reflect.TypeFor[resource.Quantity]():           quantityShape,
	reflect.TypeFor[intstr.IntOrString]():          intOrStringShape,
	reflect.TypeFor[runtime.RawExtension]():        anyShape,
	reflect.TypeFor[metav1.FieldsV1]():             anyShape,
	reflect.TypeFor[[]metav1.ManagedFieldsEntry](): droppedShape,
	reflect.TypeFor[[]byte]():                      bytesShape,
}

var shapes sync.Map // of reflect.Type

// shapeOf returns the shape of a type. Recursive types do not occur in the served kinds.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := shapes.Load(t); ok {
		return known.(*shape) //nolint:forcetypeassert // nothing else is in there
	}
	s := &shape{name: t.Name()}
	if kind, ok := special[t]; ok {
		s.kind = kind
	} else {
		s.read(t)
	}
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape) //nolint:forcetypeassert // nothing else is in there
}

func (s *shape) read(t reflect.Type) {
	switch t.Kind() {
	case reflect.Struct:
		s.kind, s.fields = structShape, map[string]*member{}
		s.readFields(t)
		for _, field := range s.fields {
			if field.spelled {
				s.spelled = append(s.spelled, field)
			}
		}
	case reflect.Map:
		s.kind, s.items = mapShape, shapeOf(t.Elem())
	case reflect.Slice:
		s.kind, s.items = listShape, shapeOf(t.Elem())
	case reflect.String:
		s.kind = textShape
	case reflect.Bool:
		s.kind = boolShape
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s.kind = wholeShape
	case reflect.Float32, reflect.Float64:
		s.kind = floatShape
	default:
		s.kind = anyShape
	}
}

func (s *shape) readFields(t reflect.Type) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" && field.Anonymous {
			s.readFields(field.Type)
			continue
		}
		m := &member{name: name, shape: shapeOf(field.Type), pointer: field.Type.Kind() == reflect.Pointer}
		if m.shape.kind == droppedShape {
			s.fields[name] = m
			continue
		}
		empty, zero := false, false
		for option := range strings.SplitSeq(options, ",") {
			empty = empty || option == "omitempty"
			zero = zero || option == "omitzero"
		}
		// omitempty has no effect on structs.
		isStruct := field.Type.Kind() == reflect.Struct
		m.spelled = !zero && (!empty || isStruct)
		if m.spelled {
			m.zero = m.empty(field.Type)
		}
		s.fields[name] = m
	}
}

// empty returns the zero value as it is written.
func (m *member) empty(t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		return nil
	}
	switch m.shape.kind {
	case structShape:
		out := map[string]any{}
		if _, err := m.shape.fill(out, nil, ""); err != nil {
			panic(err) // an empty object cannot be invalid
		}
		return out
	case textShape:
		return ""
	case boolShape:
		return false
	case wholeShape, floatShape, intOrStringShape:
		return int64(0)
	case durationShape:
		return "0s"
	case quantityShape:
		return "0"
	default:
		return nil
	}
}

// typeError reports a value that does not fit its type.
type typeError struct{ what, path, kind string }

func (e *typeError) Error() string {
	return fmt.Sprintf("json: cannot unmarshal %s into Go struct field %s of type %s", e.what, strings.TrimPrefix(e.path, "."), e.kind)
}

// fill converts a value to its shape, in place if possible, and returns it. A value that is identical to the old one already
// has its shape, and is not changed.
func (s *shape) fill(value, old any, path string) (any, error) {
	if old != nil && identical(value, old) {
		return value, nil
	}
	switch s.kind {
	case structShape:
		m, ok := value.(map[string]any)
		if !ok {
			return nil, &typeError{jsonName(value), path, s.name}
		}
		return m, s.fillStruct(m, old)
	case mapShape:
		return s.fillMap(value, old, path)
	case listShape:
		return s.fillList(value, old, path)
	case textShape, boolShape, wholeShape, floatShape, intOrStringShape:
		if want := s.scalar(value); want != "" {
			return nil, &typeError{jsonName(value), path, want}
		}
		return value, nil
	default:
		return s.fillText(value, path)
	}
}

func (s *shape) fillMap(value, old any, path string) (any, error) {
	m, ok := value.(map[string]any)
	if !ok {
		return nil, &typeError{jsonName(value), path, "map"}
	}
	before, _ := old.(map[string]any)
	for key, item := range m {
		filled, err := s.items.element(item, before[key], path)
		if err != nil {
			return nil, err
		}
		m[key] = filled
	}
	return m, nil
}

func (s *shape) fillList(value, old any, path string) (any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, &typeError{jsonName(value), path, "[]" + s.items.name}
	}
	before, _ := old.([]any)
	for i, item := range list {
		var was any
		if i < len(before) {
			was = before[i]
		}
		filled, err := s.items.element(item, was, path)
		if err != nil {
			return nil, err
		}
		list[i] = filled
	}
	return list, nil
}

// scalar returns the Go type that a value should have, or "" if it has it.
func (s *shape) scalar(value any) string {
	switch v := value.(type) {
	case string:
		if s.kind == textShape || s.kind == intOrStringShape {
			return ""
		}
	case bool:
		if s.kind == boolShape {
			return ""
		}
	case int64:
		fits := v <= math.MaxInt32 && v >= math.MinInt32
		if s.kind == wholeShape || s.kind == floatShape || s.kind == intOrStringShape && fits {
			return ""
		}
	case float64:
		if s.kind == floatShape {
			return ""
		}
	}
	switch s.kind {
	case textShape:
		return "string"
	case boolShape:
		return "bool"
	case floatShape:
		return "float64"
	default:
		return "int32"
	}
}

// fillText converts values that are encoded as formatted strings.
func (s *shape) fillText(value any, path string) (any, error) {
	if s.kind == anyShape {
		return value, nil
	}
	if n, ok := value.(int64); ok && s.kind == quantityShape {
		return resource.NewQuantity(n, resource.DecimalSI).String(), nil
	}
	v, ok := value.(string)
	if !ok {
		return nil, &typeError{jsonName(value), path, "string"}
	}
	switch s.kind { //nolint:exhaustive // other kinds are not formatted strings
	case bytesShape:
		if _, err := base64.StdEncoding.DecodeString(v); err != nil {
			return nil, fmt.Errorf("illegal base64 data in %s: %w", path, err)
		}
	case timeShape:
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return nil, err
		}
		return t.UTC().Format(time.RFC3339), nil
	case microTimeShape:
		t, err := time.Parse(metav1.RFC3339Micro, v)
		if err != nil {
			return nil, err
		}
		return t.UTC().Format(metav1.RFC3339Micro), nil
	case durationShape:
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, err
		}
		return d.String(), nil
	case quantityShape:
		q, err := resource.ParseQuantity(v)
		if err != nil {
			return nil, err
		}
		return q.String(), nil
	}
	return v, nil
}

func (s *shape) fillStruct(m map[string]any, old any) error {
	before, _ := old.(map[string]any)
	for name, value := range m {
		field := s.fields[name]
		if field == nil || value == nil || field.shape.kind == droppedShape {
			delete(m, name)
			continue
		}
		filled, err := field.shape.fill(value, before[name], name)
		if err != nil {
			return err
		}
		if !field.pointer && emptyValue(filled) && field.shape.kind != structShape || emptyCollection(filled) && field.shape.kind != structShape {
			delete(m, name)
			continue
		}
		m[name] = filled
	}
	for _, field := range s.spelled {
		if _, found := m[field.name]; !found {
			m[field.name] = copyOf(field.zero)
		}
	}
	return nil
}

// element converts members of lists and maps, where null is the zero value.
func (s *shape) element(value, old any, path string) (any, error) {
	if value == nil {
		switch s.kind {
		case structShape:
			value = map[string]any{}
		case textShape, bytesShape:
			return "", nil
		case wholeShape, floatShape:
			return int64(0), nil
		case boolShape:
			return false, nil
		default:
			return nil, nil
		}
	}
	return s.fill(value, old, path)
}

// emptyValue reports whether omitempty omits a value.
func emptyValue(value any) bool {
	switch v := value.(type) {
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	default:
		return emptyCollection(value)
	}
}

// emptyCollection reports whether storage does not distinguish a value from absence.
func emptyCollection(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return value == nil
	}
}

func jsonName(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case string:
		return "string"
	case bool:
		return "bool"
	case float64:
		return fmt.Sprintf("number %v", v)
	case int64:
		return "number"
	default:
		return "null"
	}
}
