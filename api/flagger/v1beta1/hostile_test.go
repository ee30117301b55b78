package v1beta1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"pgregory.net/rapid"

	"github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/config/crd/crdtest"
)

// TestWhateverTheSchemaAcceptsCanBeRead draws objects from the schemas themselves, odd ones, and reads those that the
// API server would store. One that could not be read would keep the controller from seeing all the others.
func TestWhateverTheSchemaAcceptsCanBeRead(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	all := crdtest.Servers(t, v1beta1.GroupName)
	for _, kind := range []string{"Canary", "MetricTemplate", "AlertProvider"} {
		s := all["v1beta1/"+kind]
		t.Run(kind, func(t *testing.T) {
			accepted := 0
			rapid.Check(t, func(t *rapid.T) {
				object, _ := odd(t, s.Structural, 0).(map[string]any)
				if object == nil {
					object = map[string]any{}
				}
				object["apiVersion"], object["kind"], object["metadata"] = "flagger.app/v1beta1", kind, map[string]any{"name": "odd"}
				stored, err := s.Create(t.Context(), object)
				if err != nil {
					return // whoever wrote it reads why
				}
				accepted++
				text, err := json.Marshal(map[string]any{
					"apiVersion": "flagger.app/v1beta1", "kind": kind + "List",
					"items": []any{stored, map[string]any{"metadata": map[string]any{"name": "good"}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				list, err := runtime.Decode(decoder, text)
				if err != nil {
					t.Fatalf("accepted, and cannot be read: %v\n%s", err, text)
				}
				if again, err := json.Marshal(list); err != nil || !json.Valid(again) {
					t.Fatalf("read, and cannot be written: %v", err)
				}
			})
			if accepted == 0 {
				t.Error("the schema accepted nothing that was drawn")
			}
		})
	}
}

// The texts, numbers and moments that no sane person writes.
var (
	oddTexts = []string{
		"", "a", "1m", "-1s", "10", "\x00", "é\u202e", "{{ }}", "http://user:pass@host/?q=1", "300000h", "9223372036854775807ns", "NaN",
	}
	oddNumbers = []any{int64(0), int64(-1), int64(1), int64(100), int64(1 << 62), int64(-1 << 63), 0.5, 1e21, -1e300, 1e308}
	oddMoments = []string{
		"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.123456789+23:59", "2026-01-01t00:00:00z",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-01T00:00:00ZTrailing", "2026-01-01T00:00:00x5Z",
		"2026-01-01T00:00:00+99:99", "0000-01-01T00:00:00Z", "2026-01-01T00:00:00,5Z",
	}
)

// odd draws a value of a schema: of the type that it names, with nothing else about it likely.
func odd(t *rapid.T, s *structuralschema.Structural, depth int) any {
	if v := s.ValueValidation; v != nil && len(v.Enum) > 0 {
		return v.Enum[rapid.IntRange(0, len(v.Enum)-1).Draw(t, "enum")].Object
	}
	if s.XIntOrString {
		return rapid.OneOf(rapid.SampledFrom(oddNumbers), rapid.Just[any]("web")).Draw(t, "port")
	}
	switch s.Type {
	case "object":
		return oddObject(t, s, depth)
	case "array":
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, odd(t, s.Items, depth+1))
		}
		return list
	case "boolean":
		return rapid.Bool().Draw(t, "bool")
	case "number", "integer":
		return rapid.SampledFrom(oddNumbers).Draw(t, "number")
	}
	if v := s.ValueValidation; v != nil && v.Format == "date-time" {
		return rapid.SampledFrom(oddMoments).Draw(t, "moment")
	}
	return rapid.SampledFrom(oddTexts).Draw(t, "text")
}

func oddObject(t *rapid.T, s *structuralschema.Structural, depth int) any {
	object := map[string]any{}
	required := map[string]bool{}
	if s.ValueValidation != nil {
		for _, name := range s.ValueValidation.Required {
			required[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		// Of a whole Canary hardly one in a million would pass: what is optional is rare, and spec and status are not.
		if depth > 0 && !required[name] && rapid.IntRange(0, 5).Draw(t, name) > 0 {
			continue
		}
		object[name] = odd(t, &property, depth+1)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		for i := range rapid.IntRange(0, 2).Draw(t, "keys") {
			object[fmt.Sprint("key", i)] = odd(t, s.AdditionalProperties.Structural, depth+1)
		}
	}
	if s.XPreserveUnknownFields && rapid.Bool().Draw(t, "unknown") {
		object["unheard-of"] = rapid.SampledFrom([]any{nil, "text", 1.5, []any{map[string]any{}}, map[string]any{"a": nil}}).Draw(t, "unknown")
	}
	return object
}

func TestMomentsOfEveryKindAreTakenAsFarAsTheyCanBeRead(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-01T00:00:00Z":             "2026-01-01T00:00:00.000000Z", // as people write it
		"2026-01-01t00:00:00.5z":           "2026-01-01T00:00:00.500000Z",
		"2026-01-01T00:00:00.123456789Z":   "2026-01-01T00:00:00.123456Z",
		"2026-01-01T00:00:00ZTomorrow":     "", // which the API server takes for a moment
		"2026-01-01T00:00:00.000001+01:00": "2025-12-31T23:00:00.000001Z",
	} {
		var c v1beta1.Canary
		if err := json.Unmarshal(fmt.Appendf(nil, `{"status":{"serin":{"since":%q}}}`, text), &c); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		if since := c.Status.Serin.Since; since != nil {
			got = since.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		}
		if got != want {
			t.Errorf("%s was read as %s, want %s", text, got, want)
		}
	}
}
