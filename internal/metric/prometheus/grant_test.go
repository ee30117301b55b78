package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func clientCredentials() map[string][]byte {
	return map[string][]byte{"oauth2_client_id": []byte("cl1ent-id"), "oauth2_client_secret": []byte("cl1ent-secret"), "oauth2_scopes": []byte("metrics read")}
}

// serveTokens implements an authorisation server, and reports whether the request was for it.
func serveTokens(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/token" {
		return false
	}
	id, secret, _ := r.BasicAuth()
	if r.PostFormValue("grant_type") != "client_credentials" || r.PostFormValue("scope") != "metrics read" || id != "cl1ent-id" || secret != "cl1ent-secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"access_token":"f3tched-token","token_type":"Bearer","expires_in":3600}`))
	return true
}

func TestContractWithAClientOfAnAuthorisationServer(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: prometheus.Service(nil), Credentials: clientCredentials(), Query: "sum(errors_total)",
		CredentialsFor: func(address string) map[string][]byte {
			return map[string][]byte{"oauth2_token_url": []byte(address + "/token")}
		},
		HandleOther: serveTokens,
		Value:       vector(`{"metric":{},"value":[1,"1.5"]}`),
		NoData:      []string{vector("")},
		Invalid:     invalidResponses,
		IsAuthorised: func(r *http.Request) bool {
			return cmp.Equal(r.Header["Authorization"], []string{"Bearer f3tched-token"})
		},
	})
}

func newProviderAt(t *testing.T, address, tokenURL string, policy outbound.Policy) metric.Provider {
	t.Helper()
	client, secret := outbound.New(policy), clientCredentials()
	t.Cleanup(client.Close)
	secret["oauth2_token_url"] = []byte(tokenURL)
	spec := flaggerv1.MetricTemplateProvider{Type: prometheus.Type, Address: address, SecretRef: &flaggerv1.SecretReference{Name: "s"}}
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(client, "shop", spec, secret)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestTokenIsFetchedOnce(t *testing.T) {
	fetched := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serveTokens(w, r) {
			fetched++
			return
		}
		_, _ = w.Write([]byte(vector(`{"metric":{},"value":[1,"1"]}`)))
	}))
	t.Cleanup(server.Close)
	provider := newProviderAt(t, server.URL, server.URL+"/token", outbound.Policy{AllowLoopback: true})
	for range 3 {
		if _, err := provider.Measure(t.Context(), metric.Query{Text: "up"}); err != nil {
			t.Fatal(err)
		}
	}
	if fetched != 1 {
		t.Errorf("the token was fetched %d times, want once", fetched)
	}
}

func TestErrorsOfAuthorisationServers(t *testing.T) {
	for _, c := range []struct {
		code    int
		body    string
		outcome release.Outcome
		text    string
	}{
		{401, `{"error":"invalid_client","error_description":"cl1ent-secret of page"}`, release.Broken, "fetch a token: error response: Status 401 Unauthorized: invalid_client"},
		{400, `{"error":"page"}`, release.Broken, "fetch a token: error response: Status 400 Bad Request"},
		{400, `{"error":"temporarily_unavailable"}`, release.Unreachable, "fetch a token: error response: Status 400 Bad Request: temporarily_unavailable"},
		{429, `page`, release.Unreachable, "fetch a token: error response: Status 429 Too Many Requests"},
		{503, `page`, release.Unreachable, "fetch a token: error response: Status 503 Service Unavailable"},
		{200, `page`, release.Broken, "fetch a token: the response does not conform to the API of an authorisation server: correct the address of the provider"},
		{200, `{"token_type":"Bearer"}`, release.Broken, "fetch a token: the response does not conform to the API of an authorisation server: correct the address of the provider"},
		{200, strings.Repeat(" ", 1<<20), release.Broken, "fetch a token: the response is longer than the limit"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}))
		t.Cleanup(server.Close)
		_, err := newProviderAt(t, "http://metrics.invalid", server.URL, outbound.Policy{AllowLoopback: true}).Measure(t.Context(), metric.Query{Text: "up"})
		if err == nil || err.Error() != c.text || metric.OutcomeOf(err) != c.outcome {
			t.Errorf("%d %.40s: %v is %s", c.code, c.body, err, metric.OutcomeOf(err))
		}
	}
}

// TestClientCredentialsAreSentToTheAuthorisationServerOnly checks that neither the metrics server nor the target of a redirect
// receives the client's credentials.
func TestClientCredentialsAreSentToTheAuthorisationServerOnly(t *testing.T) {
	called := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	_, err := newProviderAt(t, other.URL, server.URL, outbound.Policy{AllowLoopback: true}).Measure(t.Context(), metric.Query{Text: "up"})
	if metric.OutcomeOf(err) != release.Broken || called {
		t.Errorf("%v, called %t", err, called)
	}
	_, err = newProviderAt(t, other.URL, "http://169.254.169.254/token", outbound.Policy{AllowLoopback: true}).Measure(t.Context(), metric.Query{Text: "up"})
	if metric.OutcomeOf(err) != release.Broken || !strings.Contains(err.Error(), "may not be called") {
		t.Errorf("a token URL at the metadata service of the cloud: %v", err)
	}
}

func TestIncompleteClientCredentialsAreRefused(t *testing.T) {
	for name, secret := range map[string]map[string][]byte{
		"no secret":  {"oauth2_token_url": []byte("https://login.example"), "oauth2_client_id": []byte("hunter2")},
		"no id":      {"oauth2_token_url": []byte("https://login.example"), "oauth2_client_secret": []byte("hunter2")},
		"no address": {"oauth2_token_url": []byte("hunter2"), "oauth2_client_id": []byte("a"), "oauth2_client_secret": []byte("hunter2")},
	} {
		spec := flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: "http://prom", SecretRef: &flaggerv1.SecretReference{Name: "s"}}
		_, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(outbound.New(outbound.Policy{}), "shop", spec, secret)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRawResults(t *testing.T) {
	var lastRequest, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lastRequest = r.URL.Path + "?" + r.URL.Query().Encode()
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	c := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(c.Close)
	provider, err := metric.NewRegistry(prometheus.Service(nil)).NewProvider(c, "shop", flaggerv1.MetricTemplateProvider{Type: "prometheus", Address: server.URL + "?tenant=a"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	querier := provider.(metric.RawQuerier)
	queryRange := &metric.Range{Start: time.UnixMilli(1_000_500), End: time.Unix(1_060, 0), Step: 30 * time.Second}
	matrix := `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"a":"1"},"values":[[1,"1"],[2,"2"]]},{"metric":{"a":"2"},"values":[[1,"+Inf"]]}]}}`
	for _, c := range []struct {
		body        string
		queryRange  *metric.Range
		value       any
		lastRequest string
	}{
		{`{"status":"success","data":{"resultType":"scalar","result":[1,"1.5"]}}`, nil, 1.5, "/api/v1/query?query=up&tenant=a"},
		{vector(`{"metric":{},"value":[1,"7"]},{"metric":{},"value":[1,"1.5"]}`), nil, []float64{7, 1.5}, "/api/v1/query?query=up&tenant=a"},
		{matrix, queryRange, []float64{1, 2, infinity()}, "/api/v1/query_range?end=1060.000&query=up&start=1000.500&step=30&tenant=a"},
		{vector(""), nil, nil, "/api/v1/query?query=up&tenant=a"},
		{`{"status":"success","data":{"resultType":"matrix","result":[]}}`, queryRange, nil, "/api/v1/query_range?end=1060.000&query=up&start=1000.500&step=30&tenant=a"},
	} {
		body = c.body
		found, err := querier.QueryRaw(t.Context(), metric.Query{Text: " up\n", Range: c.queryRange})
		if diff := cmp.Diff(c.value, found.Value); diff != "" || lastRequest != c.lastRequest || (c.value == nil) != (metric.OutcomeOf(err) == release.NoData) {
			t.Errorf("%s requested %s, %v (-want +got):\n%s", c.body, lastRequest, err, diff)
		}
	}
	for _, bad := range append(invalidResponses, `{`, `{"status":"success"}`) {
		if strings.Contains(bad, "values") {
			continue // valid if the query returns all values
		}
		body = bad
		if found, err := querier.QueryRaw(t.Context(), metric.Query{Text: "up"}); metric.OutcomeOf(err) != release.Broken {
			t.Errorf("%s is accepted as %v, %v", bad, found.Value, err)
		}
	}
	lastRequest = ""
	for name, bad := range map[string]metric.Range{
		"no step":         {Start: queryRange.Start, End: queryRange.End},
		"backwards":       {Start: queryRange.End, End: queryRange.Start, Step: time.Second},
		"too many points": {Start: time.Unix(0, 0), End: time.Unix(11_000, 0), Step: time.Second},
	} {
		if _, err := querier.QueryRaw(t.Context(), metric.Query{Text: "up", Range: &bad}); err == nil || lastRequest != "" {
			t.Errorf("%s: %v, requested %q", name, err, lastRequest)
		}
	}
}

func infinity() float64 {
	zero := 0.0
	return 1 / zero
}
