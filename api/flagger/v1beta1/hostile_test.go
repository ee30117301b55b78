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

// TestObjectsThatTheSchemaAcceptsCanBeDecoded draws unusual objects from the schemas themselves, and decodes those that the API
// server would store. An object that cannot be decoded would hide all others from the controller.
func TestObjectsThatTheSchemaAcceptsCanBeDecoded(t *testing.T) {
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
				object, _ := drawValue(t, s.Structural, 0).(map[string]any)
				if object == nil {
					object = map[string]any{}
				}
				object["apiVersion"], object["kind"], object["metadata"] = "flagger.app/v1beta1", kind, map[string]any{"name": "odd"}
				stored, err := s.Create(t.Context(), object)
				if err != nil {
					return // the API server reports the error to the user
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
					t.Fatalf("accepted, but cannot be decoded: %v\n%s", err, text)
				}
				if again, err := json.Marshal(list); err != nil || !json.Valid(again) {
					t.Fatalf("decoded, but cannot be encoded: %v", err)
				}
			})
			if accepted == 0 {
				t.Error("the schema accepted none of the drawn objects")
			}
		})
	}
}

// Unusual strings, numbers and times.
var (
	oddStrings = []string{
		"", "a", "1m", "-1s", "10", "\x00", "é\u202e", "{{ }}", "http://user:pass@host/?q=1", "300000h", "9223372036854775807ns", "NaN",
	}
	oddNumbers = []any{int64(0), int64(-1), int64(1), int64(100), int64(1 << 62), int64(-1 << 63), 0.5, 1e21, -1e300, 1e308}
	oddTimes   = []string{
		"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z", "2026-01-01T00:00:00.123456789+23:59", "2026-01-01t00:00:00z",
		"0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-01-01T00:00:00ZTrailing", "2026-01-01T00:00:00x5Z",
		"2026-01-01T00:00:00+99:99", "0000-01-01T00:00:00Z", "2026-01-01T00:00:00,5Z",
	}
)

// drawValue draws a value of the type that a schema names, but otherwise arbitrary.
func drawValue(t *rapid.T, s *structuralschema.Structural, depth int) any {
	if v := s.ValueValidation; v != nil && len(v.Enum) > 0 {
		return v.Enum[rapid.IntRange(0, len(v.Enum)-1).Draw(t, "enum")].Object
	}
	if s.XIntOrString {
		return rapid.OneOf(rapid.SampledFrom(oddNumbers), rapid.Just[any]("web")).Draw(t, "port")
	}
	switch s.Type {
	case "object":
		return drawObject(t, s, depth)
	case "array":
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawValue(t, s.Items, depth+1))
		}
		return list
	case "boolean":
		return rapid.Bool().Draw(t, "bool")
	case "number", "integer":
		return rapid.SampledFrom(oddNumbers).Draw(t, "number")
	}
	if v := s.ValueValidation; v != nil && v.Format == "date-time" {
		return rapid.SampledFrom(oddTimes).Draw(t, "moment")
	}
	return rapid.SampledFrom(oddStrings).Draw(t, "text")
}

func drawObject(t *rapid.T, s *structuralschema.Structural, depth int) any {
	object := map[string]any{}
	required := map[string]bool{}
	if s.ValueValidation != nil {
		for _, name := range s.ValueValidation.Required {
			required[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		// Hardly one Canary in a million would be valid with all fields: optional fields are rare, except for spec and status.
		if depth > 0 && !required[name] && rapid.IntRange(0, 5).Draw(t, name) > 0 {
			continue
		}
		object[name] = drawValue(t, &property, depth+1)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		for i := range rapid.IntRange(0, 2).Draw(t, "keys") {
			object[fmt.Sprint("key", i)] = drawValue(t, s.AdditionalProperties.Structural, depth+1)
		}
	}
	if s.XPreserveUnknownFields && rapid.Bool().Draw(t, "unknown") {
		object["unheard-of"] = rapid.SampledFrom([]any{nil, "text", 1.5, []any{map[string]any{}}, map[string]any{"a": nil}}).Draw(t, "unknown")
	}
	return object
}

func TestTimesOfEveryFormatAreDecodedIfPossible(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-01T00:00:00Z":             "2026-01-01T00:00:00.000000Z", // as users write it
		"2026-01-01t00:00:00.5z":           "2026-01-01T00:00:00.500000Z",
		"2026-01-01T00:00:00.123456789Z":   "2026-01-01T00:00:00.123456Z",
		"2026-01-01T00:00:00ZTomorrow":     "", // which the API server accepts as a time
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
