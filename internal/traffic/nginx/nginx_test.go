package nginx_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic/nginx"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	for _, prefix := range []string{"", "ingress.example.com"} {
		t.Run(prefix, func(t *testing.T) {
			traffictest.Run(t, nginx.New(prefix), traffictest.Options{
				Provider: "nginx", Admission: traffictest.IngressAdmission(),
				Canary: traffictest.IngressRef, Given: traffictest.GivenIngress, Route: taken, Copies: true,
			})
		})
	}
}

// taken are the matches that the controller knows: all who match or none, by one header and one cookie.
func taken(t *rapid.T, r *release.Route) {
	if len(r.Matches) == 0 {
		return
	}
	r.Canary = rapid.SampledFrom([]int{0, 100}).Draw(t, "all or none")
	header := map[string]release.StringMatch{"x-canary": rapid.SampledFrom([]release.StringMatch{
		{Exact: "insider"}, {Regex: "in.*"}, {Prefix: "in."}, {Suffix: "@example.com"},
	}).Draw(t, "header")}
	cookie := map[string]release.StringMatch{"Cookie": {Exact: "canary"}}
	r.Matches = rapid.SampledFrom([][]release.Match{
		{{Headers: header}}, {{Headers: cookie}}, {{Headers: header}, {Headers: cookie}},
	}).Draw(t, "taken matches")
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, nginx.New(""), "nginx", "testdata/golden")
	traffictest.Golden(t, nginx.New("ingress.example.com"), "nginx", "testdata/golden-prefix")
}

// TestRecorded compares with Ingresses that Flagger wrote.
func TestRecorded(t *testing.T) { traffictest.Recorded(t, nginx.New(""), "nginx", 20, nil) }
