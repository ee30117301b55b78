package kayenta

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func newOptions(address string) options {
	return options{
		Address: address, Application: "cart", ConfigName: "errors", MetricsAccount: "m", ConfigurationAccount: "c", StorageAccount: "s", Pass: 90, Marginal: 75,
		Scopes: map[string]scopes{"default": {
			Control:    scope{Scope: "cart-stable", Region: "eu", Step: 60, Start: metrictest.Now.Add(-time.Hour), End: metrictest.Now},
			Experiment: scope{Scope: "cart-canary", Region: "eu", Step: 60},
		}},
	}
}

const configurations = `[{"id":"0ther","name":"latency","applications":["cart"]},{"id":"c0nfig","name":"errors","applications":["cart"]}]`

// serveStart answers the requests that start a judgement, and reports whether the request was one of them.
func serveStart(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.URL.Path == "/canaryConfig":
		_, _ = w.Write([]byte(configurations))
	case r.Method == http.MethodPost && r.URL.Path == "/canary/c0nfig":
		_, _ = w.Write([]byte(`{"canaryExecutionId":"01EXECUT10N"}`))
	default:
		return false
	}
	return true
}

// syncQuerier adapts the provider to a RawQuerier, for judgements that are completed at once.
type syncQuerier struct{ *provider }

func (s syncQuerier) QueryRaw(ctx context.Context, q metric.Query) (metric.Result, error) {
	executionID, err := s.Start(ctx, q)
	if err != nil {
		return metric.Result{}, err
	}
	return s.Resume(ctx, executionID)
}

// halfScore returns half of a score, because the contract test expects 1.5 and scores are integers.
func halfScore(result metric.Result) (float64, error) {
	value, err := metric.Single(result)
	return value / 2, err
}

func scoreResponse(score string) string {
	return `{"application":"cart","complete":true,"status":"succeeded","result":{"judgeResult":{"judgeName":"NetflixACAJudge-v1.0","score":{"score":` + score + `,"classification":"Pass"}}}}`
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Querier: func(client *outbound.Client, c metric.Config) (metric.RawQuerier, error) {
			provider, err := newProvider(client, newOptions(c.Address))
			return syncQuerier{provider}, err
		},
		Number: halfScore, NoCredentials: true, HandleOther: serveStart,
		Value: scoreResponse("3.9"),
		Invalid: []string{
			`{"complete":true}`, `{"complete":"yes"}`, `{"result":{}}`, scoreResponse("null"), scoreResponse(`"90"`), `{"complete":false}`,
		},
	})
}

func TestJudgementIsStartedAndResumed(t *testing.T) {
	var calls []string
	complete := "false"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+string(body)))
		if !serveStart(w, r) {
			_, _ = w.Write([]byte(strings.Replace(scoreResponse("91.9"), `"complete":true`, `"complete":`+complete, 1)))
		}
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	provider, err := newProvider(client, newOptions(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	var async metric.AsyncProvider = provider
	executionID, err := async.Start(t.Context(), metric.Query{Interval: 5 * time.Minute, Now: metrictest.Now})
	if err != nil || executionID != "01EXECUT10N" {
		t.Fatalf("executionID %q, %v", executionID, err)
	}
	if _, err := async.Resume(t.Context(), executionID); !errors.Is(err, metric.ErrUnfinished) {
		t.Errorf("while it is in progress: %v", err)
	}
	complete = "true"
	if found, err := async.Resume(t.Context(), executionID); err != nil || found.Value != 91.0 {
		t.Errorf("%v, %v", found.Value, err)
	}
	want := []string{
		"GET /canaryConfig?application=cart&configurationAccountName=c",
		`POST /canary/c0nfig?application=cart&configurationAccountName=c&metricsAccountName=m&storageAccountName=s ` +
			`{"scopes":{"default":{"controlScope":{"scope":"cart-stable","region":"eu","step":60,"start":"2026-01-02T02:04:05Z","end":"2026-01-02T03:04:05Z"},` +
			`"experimentScope":{"scope":"cart-canary","region":"eu","step":60,"start":"2026-01-02T02:59:05Z","end":"2026-01-02T03:04:05Z"}}},"thresholds":{"marginal":75,"pass":90}}`,
		"GET /canary/01EXECUT10N", "GET /canary/01EXECUT10N",
	}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if _, err := async.Resume(t.Context(), "../canaryConfig"); metric.OutcomeOf(err) != release.Broken || len(calls) != 4 {
		t.Errorf("an execution ID that is a path: %v", err)
	}
}

func TestInvalidConfigurationsAndExecutions(t *testing.T) {
	for body, read := range map[string]func([]byte) (string, error){
		"[]":                              func(b []byte) (string, error) { return parseConfigurations(b, "errors") },
		"{}":                              func(b []byte) (string, error) { return parseConfigurations(b, "errors") },
		`[{"id":"../x","name":"errors"}]`: func(b []byte) (string, error) { return parseConfigurations(b, "errors") },
		`{"canaryExecutionId":""}`:        parseExecution,
		`{"canaryExecutionId":"a/../b"}`:  parseExecution,
		`{"canaryExecutionId":null}`:      parseExecution,
		`[1]`:                             parseExecution,
	} {
		if got, err := read([]byte(body)); metric.OutcomeOf(err) != release.Broken {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
}

// FuzzAnswer parses arbitrary responses.
func FuzzAnswer(f *testing.F) {
	read := func(answer []byte) (float64, error) {
		if id, err := parseConfigurations(answer, "errors"); err == nil && !idPattern.MatchString(id) {
			panic("a configuration has the ID " + id)
		}
		if id, err := parseExecution(answer); err == nil && !idPattern.MatchString(id) {
			panic("an execution has the ID " + id)
		}
		found, err := parseScore(answer)
		if err != nil {
			return 0, err
		}
		return metric.Single(found)
	}
	metrictest.Fuzz(f, read, scoreResponse("91.9"), scoreResponse("1e300"), `{"complete":false}`, configurations, `{"canaryExecutionId":"a"}`)
}
