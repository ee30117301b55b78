package wavefront

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// series returns a time series whose points are the given number of seconds before Now.
func series(points ...[2]string) string {
	list := ""
	for i, p := range points {
		if i > 0 {
			list += ","
		}
		var ago int64
		_, _ = fmt.Sscan(p[0], &ago)
		list += fmt.Sprintf("[%d,%s]", metrictest.Now.Unix()-ago, p[1])
	}
	return `{"label":"errors","host":"a","tags":{},"data":[` + list + `]}`
}

func answer(all string) string {
	return `{"query":"ts(errors)","name":"ts(errors)","granularity":1,"timeseries":[` + all + `],"stats":{}}`
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: Service(), BareHost: true, Credentials: map[string][]byte{"token": []byte("t0ken-value")}, Query: "ts(errors)",
		Value:  answer(series([2]string{"30", "9"}, [2]string{"2", "1.5"}, [2]string{"-20", "7"})),
		NoData: []string{answer(""), `{"query":"ts(errors)"}`, answer(series([2]string{"2", "null"}))},
		Invalid: []string{
			answer(series()), answer(series([2]string{"1", "1"}) + "," + series([2]string{"1", "2"})), `{"errorType":"QuerySyntaxError","errorMessage":"x"}`,
			`{"timeseries":[{"data":[[1]]}]}`, `{"timeseries":[{"data":[[null,1]]}]}`, `{"timeseries":[{"data":[["1",1]]}]}`, `{"timeseries":{}}`,
		},
		IsAuthorised: func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer t0ken-value" },
	})
}

func TestResults(t *testing.T) {
	nan := cmpopts.EquateNaNs()
	for body, want := range map[string]metric.Result{
		answer(series([2]string{"2", "1.5"})): {Value: 1.5, Metadata: map[string]string{"timestamps": "1767323043", "drift": "2"}},
		answer(series([2]string{"2", "1"}) + "," + series([2]string{"0", "null"})): {
			Value: []float64{1, math.NaN()}, Metadata: map[string]string{"timestamps": "1767323043,1767323045", "drift": "2,0"},
		},
	} {
		got, err := parse([]byte(body), metrictest.Now)
		if diff := cmp.Diff(want, got, nan); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", body, err, diff)
		}
	}
}

func TestRequestsAndAddresses(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.Method + " " + r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(answer("")))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	querier, err := newQuerier(client, server.URL, "t")
	if err != nil {
		t.Fatal(err)
	}
	_, err = querier.QueryRaw(t.Context(), metric.Query{Text: "ts(errors)\n", Now: time.Unix(1_000, 0)})
	if want := "GET /api/v2/chart/api?g=s&p=1&q=ts%28errors%29&s=1000000"; lastRequest != want || metric.OutcomeOf(err) != release.NoData {
		t.Errorf("requested %s, %v, want %s", lastRequest, err, want)
	}
	online := provider{querier}.Online(t.Context())
	if want := "GET /api/v2/source?limit=1"; lastRequest != want || online != nil {
		t.Errorf("online: requested %s, %v, want %s", lastRequest, online, want)
	}
	if querier, err = newQuerier(client, "example.wavefront.com", "t"); err != nil || querier.server.String() != "https://example.wavefront.com" {
		t.Errorf("the name of a host: %v, %v", querier, err)
	}
	if _, err := newQuerier(client, "example.wavefront.com", ""); err == nil || err.Error() != "API token not found" {
		t.Errorf("without token: %v", err)
	}
}

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(answer []byte) (float64, error) {
		found, err := parse(answer, metrictest.Now)
		if err != nil {
			return 0, err
		}
		return metric.Single(found)
	}
	metrictest.Fuzz(f, read, answer(series([2]string{"2", "1.5"})), answer(series([2]string{"2", "null"})), `{"errorType":"x"}`)
}
