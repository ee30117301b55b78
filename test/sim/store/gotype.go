package store

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// convert returns the fields of an object of a Go type as a server returns them that has decoded, stored and encoded the object:
// unknown fields are removed, and empty ones are omitted or written as the type specifies.
func convert(t reflect.Type, fields map[string]any) (map[string]any, error) {
	object := reflect.New(t).Interface()
	if runtime.DefaultUnstructuredConverter.FromUnstructured(fields, object) != nil {
		// The decoder of the API server decides, and its error is that of the API server. It is slower.
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		object = reflect.New(t).Interface()
		if err := utiljson.Unmarshal(text, object); err != nil {
			return nil, err
		}
	}
	if err := throughStorage(object); err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(object)
}

// throughStorage encodes and decodes an object as etcd stores it. This form does not distinguish empty lists and maps from
// absent ones.
func throughStorage(object any) error {
	form, ok := object.(interface {
		Marshal() ([]byte, error)
		Unmarshal(data []byte) error
		Reset()
	})
	if !ok {
		return nil
	}
	data, err := form.Marshal()
	if err != nil {
		return err
	}
	form.Reset()
	return form.Unmarshal(data)
}
