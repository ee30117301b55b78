package skywalking

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

const query = `query q($duration: Duration!) { service_apdex: readMetricsValues(duration: $duration) { values { values { value } } } }`

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: Service(), NoCredentials: true, Query: query,
		Value:  `{"data":{"service_apdex":{"label":null,"values":{"values":[{"value":1.5}]}}}}`,
		NoData: []string{`{"data":null}`, `{"data":{}}`, `{"data":{"service_apdex":{"values":{"values":[]}}}}`, `{"data":{"service_apdex":{"values":{"values":[{"value":null}]}}}}`, "{}"},
		Invalid: []string{
			`{"data":null,"errors":[{"message":"x"}]}`, `{"data":{"a":1},"errors":[{"message":"x"}]}`, `{"data":{"values":[{"value":1},{"value":2}]}}`,
			`{"errors":"x"}`,
		},
	})
}

func TestResultIsTheWholeDocument(t *testing.T) {
	found, err := parse([]byte(`{"data":{"a":{"values":[{"value":1},{"value":2}],"label":"x"}}}`))
	want := map[string]any{"a": map[string]any{"label": "x", "values": []any{map[string]any{"value": 1.0}, map[string]any{"value": 2.0}}}}
	if diff := cmp.Diff(want, found.Value); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestRequestMatchesTheAPI(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lastRequest = r.Method + " " + r.URL.Path + " " + string(body)
		_, _ = w.Write([]byte(`{"data":{"a":1}}`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	querier, err := newQuerier(client, server.URL+"/sw/")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 0, 4, 5, 0, time.FixedZone("east", 3600))
	if _, err := querier.QueryRaw(t.Context(), metric.Query{Text: "q", Interval: 5 * time.Minute, Now: now}); err != nil {
		t.Fatal(err)
	}
	if want := `POST /sw/graphql {"query":"q","variables":{"duration":{"start":"2026-01-01 2259","end":"2026-01-01 2304","step":"MINUTE"}}}`; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
}

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(answer []byte) (float64, error) {
		found, err := parse(answer)
		if err != nil {
			return 0, err
		}
		return onlyNumber(found)
	}
	metrictest.Fuzz(f, read, `{"data":{"a":{"values":[{"value":1.5}]}}}`, `{"data":null,"errors":[{}]}`)
}
