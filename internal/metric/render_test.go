package metric_test

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
)

func TestRender(t *testing.T) {
	v := cartVars("Deployment")
	v.Variables = map[string]string{"reporter": `so"urce`, "empty": ""}
	for in, want := range map[string]string{
		`up`: `up`,
		`{{ name }}/{{ namespace }}/{{ target }}/{{ service }}/{{ ingress }}/{{ route }}/{{ interval }}`:    `cart/shop/cart/cart-svc/front/cart-00002/30s`,
		`{reporter="{{ variables.reporter }}"}`:                                                             `{reporter="so"urce"}`, // not quoted
		`{{ index variables "reporter" | printf "%q" }}`:                                                    `"so\"urce"`,
		`{{ if variables.empty }}a{{ else }}b{{ end }}`:                                                     `b`,
		`{{ range $k, $v := variables }}{{ $k }},{{ end }}`:                                                 `empty,reporter,`,
		`{{ range 3 }}x{{ end }}`:                                                                           `xxx`,
		`{{ range $i := 0 }}x{{ else }}none{{ end }}`:                                                       `none`,
		`{{ define "ns" }}ns="{{ namespace }}"{{ end }}up{ {{ template "ns" }} }`:                           `up{ ns="shop" }`,
		`{{ with target }}{{ . }}{{ end }}{{ print "a" 1 }}{{ urlquery "a b" }}{{ html "<" }}`:              `carta1a+b&lt;`,
		`{{ if and (eq target "cart") (ne namespace "x") }}{{ printf "%5.2f" 1.5 }}{{ end }}`:               ` 1.50`,
		`{{ range variables }}{{ range 2 }}{{ if true }}{{ range 2 }}.{{ end }}{{ end }}{{ end }}{{ end }}`: `........`,
	} {
		if got, err := metric.Render(in, v); err != nil || got != want {
			t.Errorf("%s gives %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := metric.Render("{{ interval }}", metric.Vars{}); err != nil || got != "1m" {
		t.Errorf("no interval gives %q, %v, want 1m", got, err)
	}
}

func TestRenderRefuses(t *testing.T) {
	double := `{{ $x := "0123456789" }}` + strings.Repeat(`{{ $x = print $x $x }}`, 40)
	for name, in := range map[string]string{
		"a variable that is missing":   `{{ variables.reporter }}`,
		"an unknown function":          `{{ env "HOME" }}`,
		"invalid syntax":               `{{ name`,
		"a call of a constant":         `{{ call name }}`,
		"fields of nothing":            `{{ .Secret }}`,
		"a loop over a number":         `{{ range 1000000000000 }}{{ end }}`,
		"loops in loops":               `{{ range 9999 }}{{ range 9999 }}{{ range 9999 }}{{ end }}{{ end }}{{ end }}`,
		"a loop in an if in a loop":    `{{ range 9 }}{{ if true }}{{ with 1 }}{{ range 99999 }}{{ end }}{{ end }}{{ end }}{{ end }}`,
		"recursion":                    `{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`,
		"branching recursion":          `{{ define "x" }}{{ template "x" }}{{ template "x" }}{{ end }}{{ template "x" }}`,
		"too much output":              `{{ range 9000 }}0123456789{{ end }}`,
		"doubling":                     double,
		"a wide verb":                  `{{ printf "%1000000d" 1 }}`,
		"a precise verb":               `{{ printf "%.1000000f" 1.0 }}`,
		"a computed width":             `{{ printf "%*d" 1000000 1 }}`,
		"an indexed width":             `{{ printf "%[2]*[1]d" 1 1000000 }}`,
		"an argument that is repeated": `{{ printf (printf "%s%s" "%[1]s%[1]s" "%[1]s") "x" }}`,
		"a long template":              strings.Repeat("x", 64<<10+1),
	} {
		got, err := metric.Render(in, cartVars("Deployment"))
		if err == nil {
			t.Errorf("%s: gives %.40q", name, got)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes: %s", name, len(err.Error()), err)
		}
	}
}

func TestRenderReportsMissingVariables(t *testing.T) {
	_, err := metric.Render(`{{ variables.reporter }}`, metric.Vars{Variables: map[string]string{"other": "x"}})
	if err == nil || !strings.Contains(err.Error(), `no entry for key "reporter"`) {
		t.Errorf("got %v", err)
	}
}
