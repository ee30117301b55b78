package dynatrace_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/dynatrace"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
)

// series returns a response whose last series has points that end the given number of seconds before Now.
func series(points ...[2]any) string {
	var times, values []string
	for _, p := range points {
		times = append(times, strconv.FormatInt(metrictest.Now.UnixMilli()-int64(p[0].(int))*1000, 10))
		values = append(values, fmt.Sprint(p[1]))
	}
	return fmt.Sprintf(`{"result":[{"data":[{"timestamps":[1],"values":[9]},{"timestamps":[%s],"values":[%s]}]}]}`,
		strings.Join(times, ","), strings.Join(values, ","))
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     dynatrace.Service(),
		Credentials: map[string][]byte{"dynatrace_token": []byte("tok3n-value")},
		Query:       "builtin:errors:avg",
		// Oldest first: too old, valid, not published yet, and not complete yet.
		Value: series([2]any{600, 9}, [2]any{240, 1.5}, [2]any{60, "null"}, [2]any{-1, 8}),
		NoData: []string{
			`{}`, `{"result":[]}`, `{"result":[{"data":[]}]}`, series(), series([2]any{30, "null"}),
			series([2]any{301, 9}, [2]any{241, 9}, [2]any{181, "null"}), series([2]any{-1, 8}),
		},
		Invalid: []string{`{"result":[{"data":[{"timestamps":[1],"values":["1"]}]}]}`, `{"result":[{"data":[{"values":[1.5]}]}]}`},
		IsAuthorised: func(r *http.Request) bool {
			return r.Header.Get("Authorization") == "Api-Token tok3n-value"
		},
	})
}

func TestRequests(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: "dynatrace", Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "dt"}}
	provider, err := metric.NewRegistry(dynatrace.Service()).NewProvider(client, "shop", spec, map[string][]byte{"dynatrace_token": []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "errors", Interval: time.Minute, Now: time.Unix(10_000, 0)})
	if want := "/api/v2/metrics/query?from=9400000&metricSelector=errors&resolution=1m&to=10000000"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "errors", Interval: 90 * time.Second, Now: time.Unix(10_000, 0)})
	if want := "/api/v2/metrics/query?from=8800000&metricSelector=errors&resolution=2m&to=10000000"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "/api/v2/metrics?pageSize=1" {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
}
