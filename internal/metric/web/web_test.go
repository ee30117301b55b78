package web

import (
	"encoding/json"
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

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Querier: func(client *outbound.Client, c metric.Config) (metric.RawQuerier, error) {
			return newQuerier(client, options{
				URL: c.Address, JSONPath: "{$.data.value}", Header: http.Header{"X-Key": {c.Credentials["key"].Reveal()}},
			})
		},
		NoCredentials: true, Credentials: map[string][]byte{"key": []byte("k3y-value")},
		Value:        `{"data":{"value":1.5}}`,
		NoData:       []string{`{"data":{"value":null}}`},
		Invalid:      []string{`{"data":{}}`, `{"data":{"value":"1.5"}}`, `{"data":{"value":[1]}}`, `{"data":{"value":{}}}`, `{"data":[]}`, "1.5"},
		IsAuthorised: func(r *http.Request) bool { return r.Header.Get("X-Key") == "k3y-value" },
	})
}

func TestPathsFindValues(t *testing.T) {
	const body = `{"data":{"ok":true,"rate":1.5,"name":"cart","list":[{"n":1,"up":true},{"n":2,"up":false}],"nothing":null}}`
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]any{
		"":                              document,
		"{$}":                           document,
		"{$.data.ok}":                   true,
		"{$.data.rate}":                 1.5,
		"{$.data.name}":                 "cart",
		"{.data.list[1].n}":             2.0,
		"{.data.list[*].n}":             1.0,
		"{.data.list[?(@.up==true)].n}": 1.0,
		"{..rate}":                      1.5,
		"{.data['ok','rate']}":          true,
		"{$.data.list[0]}":              map[string]any{"n": 1.0, "up": true},
	} {
		if text == "" {
			text = defaultPath
		}
		path, err := parsePath(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		found, err := find(path, []byte(body))
		if diff := cmp.Diff(want, found.Value); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	path, _ := parsePath("{$.data.missing}")
	if _, err := find(path, []byte(body)); err == nil || !strings.HasPrefix(err.Error(), "Could not find JSONPath in body: ") || strings.Contains(err.Error(), "cart") {
		t.Errorf("missing key: %v", err)
	}
	path, _ = parsePath(defaultPath)
	if found, err := find(path, []byte("all is well\n")); err != nil || found.Value != "all is well\n" {
		t.Errorf("response that is not JSON: %v, %v", found.Value, err)
	}
	if _, err := find(path, []byte(" \n")); !errors.Is(err, errNoValue) {
		t.Errorf("empty response: %v", err)
	}
}

// TestExpensivePathsAreRefused covers paths that would take hours for a response of a million values.
func TestExpensivePathsAreRefused(t *testing.T) {
	for _, text := range []string{
		"{..a..b}", "{range .a[*]}{range $.b[*]}{.c}{end}{end}", "{[0,0,0][0,0,0][0,0,0]}", "{.a[?(@..b==1)]..c}",
		"{." + strings.Repeat("a", maxPath) + "}", "{$.a", "{.a[?(@.b",
	} {
		if _, err := parsePath(text); err == nil || len(err.Error()) > 400 {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func TestRequestsMatchTheOptions(t *testing.T) {
	var lastRequest string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"f3tched","expires_in":60}`))
			return
		}
		body, _ := io.ReadAll(r.Body)
		lastRequest = strings.Join([]string{r.Method, r.URL.String(), r.Header.Get("Content-Type"), r.Header.Get("X-A"), r.Header.Get("Authorization"), string(body)}, "|")
		_, _ = w.Write([]byte("1"))
	}))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	for _, c := range []struct {
		options     options
		lastRequest string
	}{
		{options{}, "GET|/x?y=1||||"},
		{options{Header: http.Header{"X-A": {"b"}}}, "GET|/x?y=1||b||"},
		{options{Method: "POST", Body: "text"}, "POST|/x?y=1||||text"},
		{options{Method: "PUT", JSONBody: json.RawMessage(`{"a":1}`)}, `PUT|/x?y=1|application/json|||{"a":1}`},
		{options{Grant: &metric.Grant{TokenURL: server.URL + "/token", ID: "id", Secret: "secret"}}, "GET|/x?y=1|||Bearer f3tched|"},
	} {
		c.options.URL = server.URL + "/x?y=1"
		querier, err := newQuerier(client, c.options)
		if err != nil {
			t.Fatal(err)
		}
		if result, err := querier.QueryRaw(t.Context(), metric.Query{}); err != nil || result.Value != 1.0 || lastRequest != c.lastRequest {
			t.Errorf("%v, %v after %s, want %s", result.Value, err, lastRequest, c.lastRequest)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for name, o := range map[string]options{
		errTwoBodies.Error(): {Method: "POST", Body: "a", JSONBody: json.RawMessage("1")},
		errBodyOfGet.Error(): {Body: "a"},
		"is not GET":         {Method: "DELETE"},
		"client for tokens":  {Grant: &metric.Grant{TokenURL: "https://login.example"}},
		"address for tokens": {Grant: &metric.Grant{TokenURL: "login", ID: "a", Secret: "b"}},
		"JSONPath cannot":    {JSONPath: "{.a"},
	} {
		o.URL = "https://metrics.example"
		if _, err := newQuerier(nil, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTimeoutOfTheOptionsApplies(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	querier, err := newQuerier(client, options{URL: server.URL, Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := querier.QueryRaw(t.Context(), metric.Query{}); metric.OutcomeOf(err) != release.Unreachable {
		t.Errorf("got %v", err)
	}
}

// FuzzAnswer evaluates arbitrary paths over arbitrary responses.
func FuzzAnswer(f *testing.F) {
	for _, path := range []string{"{$}", "{.a.b[0]}", "{..a}", "{.a[?(@.b>1)]}", "{.a['b','c']}", "{.a[0:2:1]}", "{.a[-1]}", "text", "{'a'}"} {
		f.Add(path, `{"a":{"b":[1,2],"c":null}}`)
		f.Add(path, `[[1,"a",{"a":true}],null]`)
	}
	f.Fuzz(func(t *testing.T, text, answer string) {
		path, err := parsePath(text)
		if err != nil {
			return
		}
		found, err := find(path, []byte(answer))
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("the error has %d bytes, want at most 400", len(err.Error()))
		}
		if value, err := metric.Single(found); err != nil && value != 0 {
			t.Errorf("got the value %v and the error %v", value, err)
		}
	})
}
