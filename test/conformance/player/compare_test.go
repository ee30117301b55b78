package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestCollapse(t *testing.T) {
	for in, want := range map[string]string{
		"a":             "a",
		"a a a b":       "a b",
		"a b a b a":     "a b a",
		"x a b c a b c": "x a b c",
		"a b c d a b c": "a b c d a b c",
		"":              "",
	} {
		if got := strings.Join(collapse(strings.Fields(in)), " "); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestCanonicalQuery(t *testing.T) {
	a := canonical(`sum( rate( x{ b="1,2", a=~"c", }[1m] ) )`)
	if b := canonical(`sum(rate(x{a=~"c",b="1,2"}[1m]))`); a != b {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestCanonicalVersions(t *testing.T) {
	w := func(n float64) map[string]any {
		return map[string]any{"spec": map[string]any{"weight": n, "empty": map[string]any{}}}
	}
	o := objectFile{Object: "HTTPProxy/x", Versions: []map[string]any{w(0), {}, w(1)}}
	if got := canonicalVersions(o); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	o.Object = "TraefikService/x"
	if got := canonicalVersions(o); len(got) != 3 {
		t.Errorf("got %v", got)
	}
}

func TestCompareCase(t *testing.T) {
	none := &ruleSet{}
	dir := t.TempDir()
	put := func(sub, name, text string) {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, sub, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("want", "phases.txt", "a\nb\n")
	put("want", "events.txt", "Normal\tSynced\tx\nWarning\tSynced\tp not ready: waiting for rollout to finish: 1\nNormal\tSynced\tx\n")
	put("same", "phases.txt", "a\nb\nb\n")
	put("same", "events.txt", "Normal\tSynced\tx\n")
	put("other", "phases.txt", "b\na\n")
	put("other", "events.txt", "Normal\tSynced\ty\n")
	c := &caseFile{}
	if d := compareCase(c, filepath.Join(dir, "want"), filepath.Join(dir, "same"), none, 3); d != nil {
		t.Errorf("differs: %v", d)
	}
	if d := compareCase(c, filepath.Join(dir, "want"), filepath.Join(dir, "other"), none, 3); len(d) == 0 || !strings.HasPrefix(d[0], "phases.txt") {
		t.Errorf("got %v", d)
	}
	if d := compareCase(c, filepath.Join(dir, "want"), filepath.Join(dir, "nowhere"), none, 3); !reflect.DeepEqual(d, []string{"not recorded"}) {
		t.Errorf("got %v", d)
	}
	c.Compare = &tolerance{Phases: "set", Events: "ignore"}
	if d := compareCase(c, filepath.Join(dir, "want"), filepath.Join(dir, "other"), none, 3); d != nil {
		t.Errorf("differs: %v", d)
	}
}

func TestDifferences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.yaml")
	put := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{
		`[{in: events, where: x, drop: true}]`,
		`[{why: w, in: events, drop: true}]`,
		`[{why: w, in: objects, drop: true, where: x}]`,
		`[{why: w, in: objects, path: a.b}]`,
		`[{why: w, in: nothing, drop: true, where: x}]`,
		`[{why: w, in: events, replace: "("}]`,
		`[{why: w, in: steps, where: x, drop: true}]`,
		`[{why: w, in: steps}]`,
		`[{why: w, in: objects, object: a, retain: true}]`,
	} {
		put(bad)
		if _, err := loadDifferences(file); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
	put(`
- {why: noise, in: events, where: too often, drop: true}
- {why: weight, in: phases, where: phase=P, replace: 'weight=\d+', with: weight=x}
- {why: annotations, in: objects, object: Deployment/*, path: spec.*.annotations}
- {why: fewer writes, in: objects, object: Service/*, versions: last}
- {why: not ours, in: objects, object: Secret/*, skip: true}
- {why: dotted key, in: objects, object: Ingress/*, path: [metadata, annotations, "a.b/weight"]}
- {why: refused, in: steps, where: '"canary":"second"'}
`)
	rules, err := loadDifferences(file)
	if err != nil {
		t.Fatal(err)
	}
	r := &ruleSet{rules: rules}
	if got := r.lines("events", []string{"a", "b too often"}); !reflect.DeepEqual(got, []string{"a"}) {
		t.Errorf("got %v", got)
	}
	if got := r.lines("phases", []string{"phase=P weight=10", "phase=S weight=10"}); !reflect.DeepEqual(got, []string{"phase=P weight=x", "phase=S weight=10"}) {
		t.Errorf("got %v", got)
	}
	v := func(n any) map[string]any {
		return map[string]any{"spec": map[string]any{"t": map[string]any{"annotations": n, "image": "i"}}}
	}
	if got, ok := r.versions("Deployment/a", []map[string]any{v("1"), v("2")}, true); !ok || len(got) != 1 {
		t.Errorf("got %v", got)
	}
	if got, ok := r.versions("Service/a", []map[string]any{v("1"), v("2")}, true); !ok || len(got) != 1 || !reflect.DeepEqual(got[0], v("2")) {
		t.Errorf("got %v", got)
	}
	if _, ok := r.versions("Secret/a", nil, true); ok {
		t.Error("compared")
	}
	ing := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a.b/weight": "1", "c": "2"}}}
	want := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"c": "2"}}}
	if got, ok := r.versions("Ingress/a", []map[string]any{ing}, true); !ok || !reflect.DeepEqual(got, []map[string]any{want}) {
		t.Errorf("got %v", got)
	}
	if r.unplayable(`step 1 ({"wait":{"canary":"first"}})`) || !r.unplayable(`step 2 ({"wait":{"canary":"second"}})`) {
		t.Error("unplayable")
	}
	for i, d := range rules {
		if d.touched != 1 {
			t.Errorf("entry %d: %d cases", i+1, d.touched)
		}
	}
}

func TestRetainedEntries(t *testing.T) {
	rules := []*difference{{In: "objects", Object: "Deployment/*", Path: fieldPath{"metadata", "annotations"}, Retain: true}}
	object := func(image string, annotations map[string]any) map[string]any {
		out := map[string]any{"spec": map[string]any{"image": image}}
		if annotations != nil {
			out["metadata"] = map[string]any{"annotations": annotations}
		}
		return out
	}
	first, dropped := object("v1", map[string]any{"note": "mine"}), object("v2", nil)
	retained := object("v2", map[string]any{"note": "mine"})
	for _, x := range []struct {
		actual map[string]any
		equal  bool
	}{
		{retained, true},
		{dropped, false},
		{object("v2", map[string]any{"note": "other"}), false},
		{object("v2", map[string]any{"note": "mine", "stray": "x"}), false},
	} {
		want := map[string]objectFile{"a": {Object: "Deployment/a", Versions: []map[string]any{first, dropped}}}
		got := map[string]objectFile{"a": {Object: "Deployment/a", Versions: []map[string]any{first, x.actual}}}
		d := compareObjects(want, got, &tolerance{}, &ruleSet{rules: rules}, 3)
		if (len(d) == 0) != x.equal {
			t.Errorf("%v: differs: %q", x.actual, d)
		}
	}
	if rules[0].touched == 0 {
		t.Error("not counted")
	}
}

func TestKnownDifferences(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known.txt")
	put := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("# Why.\nDIFF a\n     events.txt:\n       - x\n\n# Why not.\nDIFF b\n     not recorded\n")
	known, err := loadKnown(file)
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string][]string{"a": {"events.txt:", "  - x"}, "b": {"not recorded"}}; !reflect.DeepEqual(known, want) {
		t.Errorf("read %q, want %q", known, want)
	}
	for _, bad := range []string{"same a\n", "     events.txt:\n", "DIFF a\n     x\nDIFF a\n     x\n"} {
		put(bad)
		if _, err := loadKnown(file); err == nil {
			t.Errorf("accepted: %q", bad)
		}
	}
	for _, x := range []struct {
		differences, known []string
		verdict            string
		ok                 bool
	}{
		{nil, nil, "same", true},
		{known["a"], known["a"], "known", true},
		{known["a"], nil, "", false},
		{nil, known["a"], "no longer different", false},
		{known["b"], known["a"], "different in another way than before", false},
	} {
		if verdict, ok := judge(x.differences, x.known); verdict != x.verdict || ok != x.ok {
			t.Errorf("%q with known %q: %q, %v", x.differences, x.known, verdict, ok)
		}
	}
}
