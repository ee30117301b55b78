package hook_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/hook"
)

func TestPayloadsEqualThoseOfFlagger(t *testing.T) {
	p := hook.Payload{Name: "cart", Namespace: "shop", Phase: "Progressing", Checksum: "c1"}
	with := p
	with.Metadata = map[string]string{"suite": "smoke", "level": "1"}
	for want, payload := range map[string]hook.Payload{
		`{"name":"cart","namespace":"shop","phase":"Progressing","checksum":"c1"}`:                                          p,
		`{"name":"cart","namespace":"shop","phase":"Progressing","checksum":"c1","metadata":{"level":"1","suite":"smoke"}}`: with,
	} {
		got, err := payload.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestMetadataCannotOverrideAnEvent(t *testing.T) {
	p := hook.Payload{
		Name: "cart", Namespace: "shop", Phase: "Failed", Checksum: "c1",
		Metadata: map[string]string{"cluster": "lab", "eventMessage": "mine", "timestamp": "1"},
	}
	got, err := hook.EventPayload(p, "Canary failed! Scaling down cart.shop", "Warning", "1767323045000")
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"cart","namespace":"shop","phase":"Failed","checksum":"c1","metadata":{"cluster":"lab",` +
		`"eventMessage":"Canary failed! Scaling down cart.shop","eventType":"Warning","timestamp":"1767323045000"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if p.Metadata["eventMessage"] != "mine" {
		t.Error("the payload was modified")
	}
	if _, err := hook.EventPayload(hook.Payload{}, "m", "Normal", "1"); err != nil {
		t.Error(err)
	}
}

func TestChecksumDistinguishesRevisions(t *testing.T) {
	same := hook.Checksum(map[string]string{"configmap/a": "1", "secret/b": "2"}, "rev1")
	if again := hook.Checksum(map[string]string{"secret/b": "2", "configmap/a": "1"}, "rev1"); again != same {
		t.Errorf("%s and %s for one revision", same, again)
	}
	for name, other := range map[string]string{
		"another revision":          hook.Checksum(map[string]string{"configmap/a": "1", "secret/b": "2"}, "rev2"),
		"another config":            hook.Checksum(map[string]string{"configmap/a": "3", "secret/b": "2"}, "rev1"),
		"fewer configs":             hook.Checksum(map[string]string{"configmap/a": "1"}, "rev1"),
		"names and values exchange": hook.Checksum(map[string]string{"configmap/a": "2", "secret/b": "1"}, "rev1"),
		"nothing":                   hook.Checksum(nil, ""),
	} {
		if other == same {
			t.Errorf("%s has the same checksum %s", name, same)
		}
		if !regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{1,10}$`).MatchString(other) {
			t.Errorf("%s is not a short name without vowels", other)
		}
	}
}

// TestChecksumEqualsThatOfFlagger compares with checksums that Flagger 1.44 computed for these two fields of a status.
func TestChecksumEqualsThatOfFlagger(t *testing.T) {
	for _, tt := range []struct {
		configs map[string]string
		want    string
	}{
		{nil, "556f5b46bb"},
		{map[string]string{}, "67ffc7c855"},
		{map[string]string{"secret/b": "34", "configmap/a": "12"}, "6885b96798"},
	} {
		if got := hook.Checksum(tt.configs, "5fcc94f9fb"); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.configs, got, tt.want)
		}
	}
}
