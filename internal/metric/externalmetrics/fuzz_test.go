package externalmetrics

import (
	"net/url"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/metric/metrictest"
)

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	metrictest.Fuzz(f, parse, list(item(`"1500m"`)), list(item(`"1e99"`)), list(item(`"9Ei"`)), list(""))
}

// FuzzQuery parses arbitrary queries, and checks that their names cannot leave the path of the API.
func FuzzQuery(f *testing.F) {
	for _, query := range []string{"shop/errors?labelSelector=app%3Dcart", "errors", "../x", "a/b/c", "a/..", "?"} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		namespace, name, _, err := parseQuery(query, defaultNamespace)
		if err != nil {
			return
		}
		root := &url.URL{Scheme: "https", Host: "kubernetes", Path: "/apis"}
		if path := root.JoinPath("namespaces", namespace, name).Path; path != "/apis/namespaces/"+namespace+"/"+name || strings.Count(path, "/") != 4 {
			t.Errorf("%q requests %s", query, path)
		}
	})
}
