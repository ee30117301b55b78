package traffic_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/traffic"
)

func TestWriteFieldsPreservesUnknownFields(t *testing.T) {
	entries := traffic.Field{Fields: traffic.Fields{"name": {}, "weight": {}, "options": {Fields: traffic.WholeFields("retries")}}}
	byName := entries
	byName.Same = traffic.SameField("name")
	for _, c := range []struct {
		name            string
		fields          traffic.Fields
		was, want, then string
	}{
		{
			"an unknown field", traffic.WholeFields("mine"),
			`{mine: 1, theirs: 2}`, `{mine: 3}`, `{mine: 3, theirs: 2}`,
		},
		{
			"a field that is no longer desired", traffic.WholeFields("mine"),
			`{mine: 1, theirs: 2}`, `{}`, `{theirs: 2}`,
		},
		{
			"a value that is written as a whole", traffic.WholeFields("labels"),
			`{labels: {a: b, theirs: c}}`, `{labels: {a: b}}`, `{labels: {a: b}}`,
		},
		{
			"inside of an object",
			traffic.Fields{"mine": {Fields: traffic.WholeFields("a")}},
			`{mine: {a: 1, theirs: 2}}`, `{mine: {a: 3}}`, `{mine: {a: 3, theirs: 2}}`,
		},
		{
			"an object that is no longer desired",
			traffic.Fields{"mine": {Fields: traffic.WholeFields("a")}},
			`{mine: {a: 1, theirs: 2}}`, `{}`, `{}`,
		},
		{
			"in a list, by name, in another order",
			traffic.Fields{"list": byName},
			`{list: [{name: a, weight: 1, theirs: x}, {name: b, weight: 2, theirs: y, options: {retries: 1, theirs: z}}]}`,
			`{list: [{name: b, weight: 9, options: {retries: 2}}, {name: a, weight: 8}]}`,
			`{list: [{name: b, weight: 9, theirs: y, options: {retries: 2, theirs: z}}, {name: a, weight: 8, theirs: x}]}`,
		},
		{
			"in a list, by all known fields",
			traffic.Fields{"list": entries},
			`{list: [{name: a, weight: 1, theirs: x}, {name: a, weight: 2, theirs: y}]}`,
			`{list: [{name: a, weight: 2}, {name: a, weight: 3}]}`,
			`{list: [{name: a, weight: 2, theirs: y}, {name: a, weight: 3}]}`,
		},
		{
			"the closest of several candidates",
			traffic.Fields{"list": byName},
			`{list: [{name: a, weight: 1, theirs: x}, {name: a, weight: 2, theirs: y}]}`,
			`{list: [{name: a, weight: 3}, {name: a, weight: 1}]}`,
			`{list: [{name: a, weight: 3, theirs: y}, {name: a, weight: 1, theirs: x}]}`,
		},
		{
			"values that are not objects",
			traffic.Fields{"list": byName, "mine": {Fields: traffic.WholeFields("a")}},
			`{list: text, mine: [1]}`, `{list: [{name: a}], mine: {a: 1}}`, `{list: [{name: a}], mine: {a: 1}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := object(t, c.was)
			traffic.WriteFields(obj, object(t, c.want), c.fields)
			if diff := cmp.Diff(object(t, c.then), obj); diff != "" {
				t.Errorf("write %s over %s (-want +got):\n%s", c.want, c.was, diff)
			}
		})
	}
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
