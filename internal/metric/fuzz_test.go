package metric

import "testing"

// FuzzRender renders arbitrary templates. Rendering ends, and its output is bounded.
func FuzzRender(f *testing.F) {
	for _, text := range []string{
		`errors{app="{{ target }}"}`, `{{ range $i := variables }}{{ . }}{{ end }}`, `{{ define "a" }}{{ template "a" }}{{ end }}{{ template "a" }}`,
		`{{ printf "%0999d" 1 }}`, `{{ index variables "x" | urlquery | html | js }}`, `{{ slice (print 1 2 3) 1 99 }}`, `{{ call name }}`, `{{ len 5 }}`, `{{/* */}}{{- 1e9 -}}`,
		`{{ range 1000000000 }}x{{ end }}`, `{{ with $x := print name name }}{{ break }}{{ end }}`,
	} {
		f.Add(text, "cart", "value")
	}
	f.Fuzz(func(t *testing.T, text, name, variable string) {
		out, err := Render(text, Vars{Name: name, Target: name, Variables: map[string]string{"x": variable}})
		if len(out) > maxQuery {
			t.Errorf("the output has %d bytes, want at most %d", len(out), maxQuery)
		}
		if err != nil && out != "" {
			t.Errorf("got the error %v and the output %q", err, out)
		}
	})
}
