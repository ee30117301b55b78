package v1alpha1

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestEveryProviderHasItsType: validation, metrics and the registry of providers use Types, so no query would ever be sent to
// a provider without a type.
func TestEveryProviderHasItsType(t *testing.T) {
	fields := reflect.TypeFor[MetricProvider]()
	for i := range fields.NumField() {
		field := fields.Field(i)
		if field.Name == "Plugin" {
			continue
		}
		var p MetricProvider
		reflect.ValueOf(&p).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		if types := p.Types(); len(types) != 1 || !strings.EqualFold(types[0], field.Name) {
			t.Errorf("%s has the types %v", field.Name, types)
		}
	}
	p := MetricProvider{Web: &WebMetric{}, Plugin: map[string]json.RawMessage{"a/b": nil, "c/d": nil}}
	if got, want := p.Types(), []string{"Web", "RPCPlugin", "RPCPlugin"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := (&MetricProvider{}).Types(); len(got) != 0 {
		t.Errorf("no provider has the types %v", got)
	}
}
