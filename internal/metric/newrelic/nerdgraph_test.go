package newrelic

import (
	"net/http"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContractOfNerdGraph(t *testing.T) {
	factory := metric.Factory{Type: "nerdgraph", New: func(client *outbound.Client, c metric.Config) (metric.Provider, error) {
		return New(client, Options{Address: c.Address, Key: c.Credentials["key"], Account: "42"})
	}}
	rows := func(list string) string { return `{"data":{"actor":{"account":{"nrql":{"results":` + list + `}}}}}` }
	metrictest.Run(t, metrictest.Subject{
		Factory: factory, Credentials: map[string][]byte{"key": []byte("hidden-key")}, Query: "SELECT 1",
		Value: rows(`[{"errors":1.5}]`), NoData: []string{rows("[]"), rows("null"), rows(`[{"errors":null}]`)},
		Wrong: []string{
			rows(`[{"a":1},{"a":2}]`), rows(`[{"a":1,"b":2}]`), rows(`[{"a":"x"}]`), rows("7"), `{"data":{"actor":{"account":{"nrql":null}}}}`,
			`{"errors":[{"message":"x"}]}`,
		},
		Authorised: func(r *http.Request) bool { return r.Header.Get("Api-Key") == "hidden-key" },
	})
}

func TestAccountsAreChecked(t *testing.T) {
	for _, o := range []Options{{Key: "k"}, {Account: "42"}, {Key: "k", Account: "x"}, {Key: "k", Account: "42", Region: "mars"}} {
		if _, err := New(outbound.New(outbound.Policy{}), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// FuzzRows reads whatever a server says.
func FuzzRows(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) {
		_, err := parseRows(answer)
		return 0, err
	}, `{"data":{"actor":{"account":{"nrql":{"results":[{"errors":1.5}]}}}}}`)
}
