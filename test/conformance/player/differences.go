package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// A difference is one deliberate difference between the controller under test and the recordings, with its reason. It names
// fields and texts, never cases, and is applied to both sides before they are compared.
type difference struct {
	Why string `json:"why"`
	In  string `json:"in"` // phases, events, webhooks, queries, objects, steps

	// Of steps: a case that stops at a step whose text (as INCOMPLETE shows it)
	// matches Where cannot be played further on purpose. Nothing else of it is
	// compared; it counts as passed and is listed.

	// Lines of phases, events, webhooks and queries.
	Where   string `json:"where,omitempty"`   // regular expression: only such lines
	Drop    bool   `json:"drop,omitempty"`    // omit them
	Replace string `json:"replace,omitempty"` // regular expression: replaced with With
	With    string `json:"with,omitempty"`

	// Versions of objects.
	Object   string    `json:"object,omitempty"`   // Kind/name, either may be * or a pattern
	Path     fieldPath `json:"path,omitempty"`     // omitted field, or a map whose entries are retained
	Retain   bool      `json:"retain,omitempty"`   // later versions must have the entries of the first one at Path
	Versions string    `json:"versions,omitempty"` // last: only the last version is compared
	Skip     bool      `json:"skip,omitempty"`     // not compared at all

	where, replace *regexp.Regexp
	touched        int // number of cases that it changed
}

// A fieldPath names a field: a list of names, or one string of names separated by dots; * matches any name.
type fieldPath []string

func (p *fieldPath) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*p = strings.Split(s, ".")
		return nil
	}
	return json.Unmarshal(b, (*[]string)(p))
}

func loadDifferences(file string) ([]*difference, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []*difference
	if err := yaml.UnmarshalStrict(b, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, d := range out {
		fail := func(s string) error { return fmt.Errorf("%s: entry %d: %s", file, i+1, s) }
		if strings.TrimSpace(d.Why) == "" {
			return nil, fail("why is missing")
		}
		lines := d.Drop || d.Replace != ""
		objects := len(d.Path) > 0 || d.Versions != "" || d.Skip
		switch d.In {
		case "phases", "events", "webhooks", "queries":
			if !lines || objects || d.Drop && d.Where == "" {
				return nil, fail("lines need drop with where, or replace")
			}
		case "objects":
			if !objects || lines || d.Object == "" || d.Versions != "" && d.Versions != "last" || d.Retain && len(d.Path) == 0 {
				return nil, fail("objects need object, and path, versions: last or skip; retain needs path")
			}
		case "steps":
			if lines || objects || d.Where == "" {
				return nil, fail("steps need where, nothing else")
			}
		default:
			return nil, fail("in must be phases, events, webhooks, queries, objects or steps")
		}
		if d.where, err = regexp.Compile(d.Where); err != nil {
			return nil, fail(err.Error())
		}
		if d.replace, err = regexp.Compile(d.Replace); err != nil {
			return nil, fail(err.Error())
		}
	}
	return out, nil
}

// lines applies the differences of one file to its lines.
func (r *ruleSet) lines(in string, l []string) []string {
	for i, d := range r.rules {
		if d.In != in {
			continue
		}
		var out []string
		for _, s := range l {
			switch {
			case !d.where.MatchString(s):
			case d.Drop:
				r.touch(i)
				continue
			default:
				if n := d.replace.ReplaceAllString(s, d.With); n != s {
					r.touch(i)
					s = n
				}
			}
			out = append(out, s)
		}
		l = out
	}
	return l
}

// versions applies the differences of objects to the versions of one object; false if it is not compared. recorded is true
// for versions that Flagger wrote.
func (r *ruleSet) versions(object string, v []map[string]any, recorded bool) ([]map[string]any, bool) {
	for i, d := range r.rules {
		if d.In != "objects" {
			continue
		}
		if ok, _ := path.Match(d.Object, object); !ok {
			continue
		}
		switch {
		case d.Skip:
			r.touch(i)
			return nil, false
		case d.Retain:
			if recorded && retain(v, d.Path) {
				r.touch(i)
			}
		case len(d.Path) > 0:
			var out []map[string]any
			for _, o := range v {
				c, _ := prune(withoutField(o, d.Path), false).(map[string]any)
				if !reflect.DeepEqual(c, o) {
					r.touch(i)
				}
				if n := len(out); n == 0 || !reflect.DeepEqual(out[n-1], c) {
					out = append(out, c)
				}
			}
			v = out
		case d.Versions == "last" && len(v) > 1:
			r.touch(i)
			v = v[len(v)-1:]
		}
	}
	return v, true
}

// retain adds the entries of the map at path in the first version to those later versions that lack them.
func retain(versions []map[string]any, path []string) (changed bool) {
	if len(versions) == 0 {
		return false
	}
	first, _, _ := unstructured.NestedMap(versions[0], path...)
	for i, version := range versions[1:] {
		for name, value := range first {
			entry := append(slices.Clone(path), name)
			if _, has, _ := unstructured.NestedFieldNoCopy(version, entry...); has || version["deleted"] == true {
				continue
			}
			version = runtime.DeepCopyJSON(version)
			if unstructured.SetNestedField(version, value, entry...) == nil {
				versions[i+1], changed = version, true
			}
		}
	}
	return changed
}

// withoutField copies v without the field at p; it descends into lists.
func withoutField(v any, p []string) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if k == p[0] || p[0] == "*" {
				if len(p) == 1 {
					continue
				}
				e = withoutField(e, p[1:])
			}
			out[k] = e
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = withoutField(e, p)
		}
		return out
	}
	return v
}

// unplayable returns whether a case may stop at this step.
func (r *ruleSet) unplayable(step string) bool {
	for i, d := range r.rules {
		if d.In == "steps" && d.where.MatchString(step) {
			r.touch(i)
			return true
		}
	}
	return false
}

// ruleSet counts the cases that each difference changed.
type ruleSet struct {
	rules []*difference
	seen  map[int]bool // in the current case
}

func (r *ruleSet) touch(i int) {
	if r.seen == nil {
		r.seen = map[int]bool{}
	}
	if !r.seen[i] {
		r.seen[i] = true
		r.rules[i].touched++
	}
}

func (r *ruleSet) report(cases int) {
	for _, d := range r.rules {
		fmt.Printf("difference on purpose, in %d of %d cases: %s\n", d.touched, cases, d.Why)
	}
}
