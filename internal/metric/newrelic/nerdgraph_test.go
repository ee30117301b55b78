package newrelic

import (
	"errors"
	"net/http"
	"testing"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

func TestContractOfNerdGraph(t *testing.T) {
	rows := func(list string) string { return `{"data":{"actor":{"account":{"nrql":{"results":` + list + `}}}}}` }
	metrictest.Run(t, metrictest.Subject{
		Querier: func(client *outbound.Client, c metric.Config) (metric.RawQuerier, error) {
			return newNerdGraph(client, options{Address: c.Address, Key: c.Credentials["key"], Account: "42"})
		},
		Number: onlyColumn, Credentials: map[string][]byte{"key": []byte("hidden-key")}, Query: "SELECT 1",
		Value: rows(`[{"errors":1.5}]`), NoData: []string{rows("[]"), rows("null"), rows(`[{"errors":null}]`)},
		Invalid: []string{
			rows(`[{"a":1},{"a":2}]`), rows(`[{"a":1,"b":2}]`), rows(`[{"a":"x"}]`), rows("7"), `{"data":{"actor":{"account":{"nrql":null}}}}`,
			`{"errors":[{"message":"x"}]}`,
		},
		IsAuthorised: func(r *http.Request) bool { return r.Header.Get("Api-Key") == "hidden-key" },
	})
}

// onlyColumn returns the number in a row with one column.
func onlyColumn(result metric.Result) (float64, error) {
	row, _ := result.Value.(map[string]any)
	if len(row) != 1 {
		return 0, errors.New("not a row with one column")
	}
	for _, value := range row {
		result.Value = value
	}
	return metric.Single(result)
}

func TestAccountsAreChecked(t *testing.T) {
	for _, o := range []options{{Key: "k"}, {Account: "42"}, {Key: "k", Account: "x"}, {Key: "k", Account: "42", Region: "mars"}} {
		if _, err := newNerdGraph(outbound.New(outbound.Policy{}), o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// FuzzRows parses arbitrary responses.
func FuzzRows(f *testing.F) {
	metrictest.Fuzz(f, func(answer []byte) (float64, error) {
		_, err := parseRows(answer)
		return 0, err
	}, `{"data":{"actor":{"account":{"nrql":{"results":[{"errors":1.5}]}}}}}`)
}
