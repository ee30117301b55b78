package splunk

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

const (
	begin = "event: control-message\ndata: {\ndata:   \"event\" : \"STREAM_START\",\ndata:   \"timestampMs\" : 1767323045000\ndata: }\n\n" +
		"event: metadata\ndata: {\ndata:   \"properties\" : { \"sf_metric\" : \"errors\" },\ndata:   \"tsId\" : \"AAAAAC\"\ndata: }\n\n"
	end = "event: control-message\ndata: {\ndata:   \"event\" : \"END_OF_CHANNEL\",\ndata:   \"timestampMs\" : 1767323045000\ndata: }\n\n"
)

// data returns the event of one time step of a stream.
func data(points string) string { return dataAt(metrictest.Now, points) }

// dataAt returns the event of the time step that starts at a time.
func dataAt(start time.Time, points string) string {
	return fmt.Sprintf("event: data\ndata: {\ndata:   \"data\" : [ %s ],\ndata:   \"logicalTimestampMs\" : %d,\ndata:   \"maxDelayMs\" : 1000\ndata: }\n\n",
		points, start.UnixMilli())
}

func point(series, value string) string {
	return `{ "tsId" : "` + series + `", "value" : ` + value + ` }`
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service:     Service(),
		Credentials: map[string][]byte{"sf_token_key": []byte("t0ken-value")},
		Query:       "data('errors').mean().publish()",
		NoEndMarker: true, // after the event that ends the stream
		Value:       begin + data(point("AAAAAC", "9")) + data(point("AAAAAC", "1.5")) + data("") + data(point("AAAAAC", "null")) + end,
		NoData: []string{
			begin + end, begin + data("") + end, begin + data(point("AAAAAC", "null")) + end,
			begin + dataAt(metrictest.Now.Add(-4*time.Minute-time.Second), point("AAAAAC", "9")) + data(point("AAAAAC", "null")) + end, strings.ReplaceAll(begin+end, "\n", "\r\n"),
		},
		Invalid: []string{
			begin + data(point("AAAAAC", "1.5")),
			begin + data(point("AAAAAC", "1.5")) + "event: control-message\ndata: {\"event\":\"CHANNEL_ABORT\",\"abortInfo\":{}}\n\n" + end,
			begin + "event: error\ndata: {\"error\":400,\"message\":\"x\"}\n\n" + end,
			begin + data(point("AAAAAC", "1.5")+","+point("AAAAAD", "1")) + end,
			begin + data(point("AAAAAC", "1.5")) + data(point("AAAAAD", "1")) + end,
			begin + data(point("AAAAAC", `"1.5"`)) + end,
			"event: data\ndata: [1]\n\n" + end,
			"event: data\ndata: {\"data\":[" + point("AAAAAC", "1.5") + "]}\n\n" + end,
			"event: control-message\ndata: [1]\n\n" + end,
		},
		IsAuthorised: func(r *http.Request) bool { return r.Header.Get("X-SF-Token") == "t0ken-value" },
	})
}

// TestLatePointsAreUsed has points that are as old as they can be if they are published in time.
func TestLatePointsAreUsed(t *testing.T) {
	const fiveMinutes = "event: metadata\ndata: {\"properties\":{\"sf_metric\":\"errors\",\"sf_resolutionMs\":300000},\"tsId\":\"AAAAAC\"}\n\n"
	q := metric.Query{Interval: time.Minute, Now: metrictest.Now}
	for metadata, age := range map[string]time.Duration{
		"": time.Minute + metric.PublishDelay, fiveMinutes: 5*time.Minute + 5*time.Minute + metric.PublishDelay,
	} {
		body := begin + metadata + dataAt(q.Now.Add(-age), point("AAAAAC", "1.5")) + data(point("AAAAAC", "null")) + end
		if value, err := parse([]byte(body), q); err != nil || value != 1.5 {
			t.Errorf("%s old: got %v, %v, want 1.5", age, value, err)
		}
	}
}

func TestRequests(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lastRequest = r.Method + " " + r.URL.String() + " " + string(body)
		_, _ = w.Write([]byte(end))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: Type, Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "s"}}
	provider, err := metric.NewRegistry(Service()).NewProvider(client, "shop", spec, map[string][]byte{keyToken: []byte("t")})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = provider.Measure(t.Context(), metric.Query{Text: "data('errors').publish()\n", Interval: time.Minute, Now: time.Unix(10_000, 0)})
	if want := "POST /v2/signalflow/execute?immediate=true&start=9400000&stop=10000000 data('errors').publish()"; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
	if err := provider.Online(t.Context()); err != nil || lastRequest != "GET /v2/metric?limit=1 " {
		t.Errorf("online: %v after %s", err, lastRequest)
	}
	if _, err := provider.Measure(t.Context(), metric.Query{Text: " \n"}); metric.OutcomeOf(err) != release.Broken {
		t.Errorf("an empty program: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for given, want := range map[string][2]string{
		"https://api.us1.signalfx.com":                  {"https://api.us1.signalfx.com", "https://stream.us1.signalfx.com"},
		"https://api.us1.signalfx.com/":                 {"https://api.us1.signalfx.com", "https://stream.us1.signalfx.com"},
		"wss://stream.us1.signalfx.com":                 {"https://api.us1.signalfx.com", "https://stream.us1.signalfx.com"},
		"wss://stream.us1.signalfx.com/v2/signalflow":   {"https://api.us1.signalfx.com", "https://stream.us1.signalfx.com"},
		"https://stream.us1.signalfx.com/v2/signalflow": {"https://api.us1.signalfx.com", "https://stream.us1.signalfx.com"},
		"https://proxy.example/splunk":                  {"https://proxy.example/splunk", "https://proxy.example/splunk"},
		"ws://proxy.example":                            {"http://proxy.example", "http://proxy.example"},
	} {
		api, stream, err := addresses(given)
		if err != nil || api.String() != want[0] || stream.String() != want[1] {
			t.Errorf("%s: %s and %s, %v; want %v", given, api, stream, err, want)
		}
	}
}
