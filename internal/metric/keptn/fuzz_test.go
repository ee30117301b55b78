package keptn

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, keptnMetric(`{"value":"1.5"}`), keptnMetric(`{"value":"NaN"}`), keptnMetric(`{"value":"1e999"}`))
}

// FuzzQuery parses arbitrary queries, and checks that their names cannot leave the path of the API.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"keptnmetric/shop/errors", "analysis/shop/errors/5m/a=b;c=d", "analysis/../x", "a/b"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		parsed, err := parseQuery(query)
		if err != nil {
			return
		}
		root := &url.URL{Scheme: "https", Host: "kubernetes", Path: "/apis"}
		if path := root.JoinPath(parsed.namespace, parsed.name).Path; path != "/apis/"+parsed.namespace+"/"+parsed.name || strings.Count(path, "/") != 3 {
			t.Errorf("%q requests %s", query, path)
		}
		if name := analysisName(parsed, "shop", metrictest.Now); len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%q creates an Analysis with the name %q", query, name)
		}
	})
}
