package keptn

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer reads whatever a server says.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, keptnMetric(`{"value":"1.5"}`), keptnMetric(`{"value":"NaN"}`), keptnMetric(`{"value":"1e999"}`))
}

// FuzzQuery takes whatever a template says apart: what it names stays below the API.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"keptnmetric/shop/errors", "analysis/shop/errors/5m/a=b;c=d", "analysis/../x", "a/b"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		asked, err := read(query)
		if err != nil {
			return
		}
		root := &url.URL{Scheme: "https", Host: "kubernetes", Path: "/apis"}
		if path := root.JoinPath(asked.namespace, asked.name).Path; path != "/apis/"+asked.namespace+"/"+asked.name || strings.Count(path, "/") != 3 {
			t.Errorf("%q asks %s", query, path)
		}
		if name := analysisName(asked, "shop", metrictest.Now); len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%q makes an Analysis of the name %q", query, name)
		}
	})
}
