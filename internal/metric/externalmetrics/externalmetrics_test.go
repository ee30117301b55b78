package externalmetrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func list(items string) string {
	return `{"kind":"ExternalMetricValueList","apiVersion":"external.metrics.k8s.io/v1beta1","metadata":{},"items":[` + items + `]}`
}

func item(value string) string {
	return `{"metricName":"errors","metricLabels":{"app":"cart"},"timestamp":"2026-01-02T03:04:00Z","value":` + value + `}`
}

func subject() metrictest.Subject {
	return metrictest.Subject{
		Query:  "shop/errors?labelSelector=app%3Dcart",
		Value:  list(item(`"1500m"`) + "," + item(`"7"`)),
		NoData: []string{list("")},
		Invalid: []string{
			`{"kind":"Status","status":"Failure","reason":"NotFound"}`, `{"items":[` + item(`"1"`) + `]}`,
			list(item(`""`)), list(item("1.5")), list(item("null")), list(item(`"NaN"`)), list(item(`"one"`)), list(item(`"1.2.3"`)),
			list(item(`"1e999999999"`)), list(item(`"1e-999999999"`)), list(item(`"` + strings.Repeat("9", 1<<20) + `"`)),
		},
	}
}

func TestContractAtTheAPIServer(t *testing.T) {
	s := subject()
	s.Cluster = Service
	metrictest.Run(t, s)
}

func TestContractAtAnAddress(t *testing.T) {
	s := subject()
	s.Service = Service(metric.Cluster{Address: "https://kubernetes.default.svc"}) // without clients: it must not be called
	s.Credentials = map[string][]byte{"token": []byte("tok3n-value")}
	s.IsAuthorised = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer tok3n-value" }
	metrictest.Run(t, s)
}

// controllerTokenTransport is a transport that adds the controller's own token.
type controllerTokenTransport struct{}

func (controllerTokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer of-the-controller")
	return http.DefaultTransport.RoundTrip(r)
}

// TestTokensAreSentToTheirServersOnly checks that the author of a MetricTemplate cannot receive the controller's token.
func TestTokensAreSentToTheirServersOnly(t *testing.T) {
	var receiver, authorization string
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			receiver, authorization = name, r.Header.Get("Authorization")
			_, _ = w.Write([]byte(list(item(`"1"`))))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	own, other := server("own"), server("other")
	client := func(transport http.RoundTripper) *outbound.Client {
		c, err := outbound.NewForServer(own, transport)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cluster := metric.Cluster{Address: own, Own: client(controllerTokenTransport{}), Anonymous: client(http.DefaultTransport)}
	templateClient := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(templateClient.Close)
	for _, c := range []struct{ address, token, receiver, authorization string }{
		{"", "", "own", "Bearer of-the-controller"},
		{"", "mine", "own", "Bearer mine"},
		{other, "", "other", ""},
		{other, "mine", "other", "Bearer mine"},
		{own, "", "own", ""},
	} {
		spec := flaggerv1.MetricTemplateProvider{Type: Type, Address: c.address}
		var secret map[string][]byte
		if c.token != "" {
			spec.SecretRef, secret = &flaggerv1.SecretReference{Name: "s"}, map[string][]byte{"token": []byte(c.token)}
		}
		provider, err := metric.NewRegistry(Service(cluster)).NewProvider(templateClient, "shop", spec, secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := provider.Measure(t.Context(), metric.Query{Text: "errors"}); err != nil {
			t.Error(err)
		}
		if receiver != c.receiver || authorization != c.authorization {
			t.Errorf("%+v: %s received the header %q", c, receiver, authorization)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for query, want := range map[string]string{
		"errors":      "default errors ",
		"shop/errors": "shop errors ",
		" shop/errors?labelSelector=app%3Dcart%2Ca!%3Db\n": "shop errors app=cart,a!=b",
		"shop/pubsub.googleapis.com|subscription|num":      "shop pubsub.googleapis.com|subscription|num ",
		"":                            "",
		"shop/":                       "",
		"../secrets":                  "",
		"shop/..":                     "",
		"shop/errors/x":               "",
		"Shop/errors":                 "",
		"shop/a%2fb":                  "",
		"shop/errors?labelSelector=%": "",
	} {
		namespace, name, selector, err := parseQuery(query, defaultNamespace)
		if got := namespace + " " + name + " " + selector; (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %q, %v, want %q", query, got, err, want)
		}
	}
}

func TestOnlineAcceptsNotFound(t *testing.T) {
	for body, online := range map[string]bool{
		list(""): true,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","reason":"NotFound","code":404}`: true,
		"404 page not found": false,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/external.metrics.k8s.io/v1beta1/namespaces/kube-system/dummy-metric" {
				t.Errorf("requested %s", r.URL)
			}
			if body != list("") {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(server.Close)
		client := outbound.New(outbound.Policy{AllowLoopback: true})
		t.Cleanup(client.Close)
		provider, err := metric.NewRegistry(Service(metric.Cluster{Address: server.URL, Own: client})).NewProvider(client, "shop", flaggerv1.MetricTemplateProvider{Type: Type}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := provider.Online(t.Context()); (err == nil) != online {
			t.Errorf("%s: Online returns %v", body, err)
		}
	}
}

func TestQueriesOfOtherNamespacesAreRefused(t *testing.T) {
	cluster := metric.Cluster{Address: "http://127.0.0.1:9", OneNamespace: true, Own: outbound.New(outbound.Policy{})}
	provider, err := metric.NewRegistry(Service(cluster)).NewProvider(nil, "shop", flaggerv1.MetricTemplateProvider{Type: Type}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for query, allowed := range map[string]bool{"shop/errors": true, "bank/errors": false, "errors": false} {
		_, err := provider.Measure(t.Context(), metric.Query{Text: query})
		if blocked := err != nil && strings.Contains(err.Error(), "cross-namespace"); blocked == allowed || metric.OutcomeOf(err) != release.Broken {
			t.Errorf("%s: %v", query, err)
		}
	}
}
