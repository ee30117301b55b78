package stackdriver

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/metrictest"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// account returns a service account for the tests, with a key in Google's format.
var account = sync.OnceValues(func() (*rsa.PrivateKey, []byte) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "other", "private_key_id": "k1", "client_email": "serin@shop.iam.gserviceaccount.com",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"token_uri":   "http://169.254.169.254/token",
	})
	if err != nil {
		panic(err)
	}
	return key, text
})

func credentials() map[string][]byte {
	_, text := account()
	return map[string][]byte{"project": []byte("shop-17"), "serviceAccountKey": text}
}

// hasSignedToken reports whether a request has a token that the account has signed.
func hasSignedToken(r *http.Request) bool {
	key, _ := account()
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], signature) == nil &&
		strings.Contains(string(claims), `"iss":"serin@shop.iam.gserviceaccount.com"`) &&
		strings.Contains(string(claims), `"scope":"https://www.googleapis.com/auth/monitoring.read"`)
}

func series(points string) string {
	return `{"timeSeriesDescriptor":{"labelDescriptors":[{"key":"resource.project_id"}],"pointDescriptors":[{"key":"value.errors","valueType":"DOUBLE","metricKind":"GAUGE"}]},` +
		`"timeSeriesData":[{"labelValues":[{"stringValue":"shop-17"}],"pointData":[` + points + `]}]}`
}

func point(value string) string {
	return `{"values":[` + value + `],"timeInterval":{"startTime":"2026-01-02T03:03:05Z","endTime":"2026-01-02T03:04:05Z"}}`
}

func TestContract(t *testing.T) {
	metrictest.Run(t, metrictest.Subject{
		Service: Service(), Credentials: credentials(), Query: "fetch k8s_container::errors | within 1m",
		Value: series(point(`{"doubleValue":1.5}`) + "," + point(`{"doubleValue":9}`)),
		NoData: []string{
			"{}", `{"timeSeriesDescriptor":{}}`, `{"timeSeriesData":[]}`, `{"timeSeriesData":[{}]}`, series(""), series(point("")),
			series(point(`{"doubleValue":"NaN"}`)),
		},
		Invalid: []string{
			`{"partialErrors":[{"code":13}]}`, series(point(`{"stringValue":"1.5"}`)), series(point(`{"doubleValue":"one"}`)), series(point(`{"doubleValue":{}}`)),
			series(point(`{}`)), series(point(`{"distributionValue":{"mean":1.5}}`)),
		},
		IsAuthorised: hasSignedToken,
	})
}

func TestNumbersOfEachType(t *testing.T) {
	for value, want := range map[string]float64{
		`{"doubleValue":0}`: 0, `{"int64Value":"42"}`: 42, `{"int64Value":7}`: 7, `{"boolValue":true}`: 1, `{"boolValue":false}`: 0,
	} {
		if got, err := parse([]byte(series(point(value)))); err != nil || got != want {
			t.Errorf("%s: %v, %v", value, got, err)
		}
	}
}

func newProviderFor(t *testing.T, handler http.HandlerFunc) metric.Provider {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	t.Cleanup(client.Close)
	spec := flaggerv1.MetricTemplateProvider{Type: Type, Address: server.URL, SecretRef: &flaggerv1.SecretReference{Name: "s"}}
	provider, err := metric.NewRegistry(Service()).NewProvider(client, "shop", spec, credentials())
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func TestRequestMatchesTheAPI(t *testing.T) {
	var lastRequest string
	provider := newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lastRequest = r.Method + " " + r.URL.Path + " " + string(body)
		_, _ = w.Write([]byte(series(point(`{"doubleValue":1}`))))
	})
	if _, err := provider.Measure(t.Context(), metric.Query{Text: "fetch a\n| within 1m\n"}); err != nil {
		t.Fatal(err)
	}
	if want := `POST /v3/projects/shop-17/timeSeries:query {"pageSize":1,"query":"fetch a\n| within 1m"}`; lastRequest != want {
		t.Errorf("requested %s, want %s", lastRequest, want)
	}
}

func TestErrorCodesAreClassified(t *testing.T) {
	for _, c := range []struct {
		code         int
		status, text string
		outcome      release.Outcome
		online       bool
	}{
		{400, "INVALID_ARGUMENT", "error response: Status 400 Bad Request: INVALID_ARGUMENT", release.Broken, true},
		{401, "UNAUTHENTICATED", "error response: Status 401 Unauthorized: UNAUTHENTICATED", release.Broken, false},
		{403, "secret words", "error response: Status 403 Forbidden", release.Broken, false},
		{429, "RESOURCE_EXHAUSTED", "error response: Status 429 Too Many Requests: RESOURCE_EXHAUSTED", release.Unreachable, false},
		{503, "UNAVAILABLE", "error response: Status 503 Service Unavailable: UNAVAILABLE", release.Unreachable, false},
	} {
		provider := newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(`{"error":{"code":1,"message":"secret words","status":"` + c.status + `"}}`))
		})
		_, err := provider.Measure(t.Context(), metric.Query{Text: "fetch a"})
		if err == nil || err.Error() != c.text || metric.OutcomeOf(err) != c.outcome {
			t.Errorf("%s: %v is %s", c.status, err, metric.OutcomeOf(err))
		}
		if online := provider.Online(t.Context()); (online == nil) != c.online {
			t.Errorf("%s: Online returns %v", c.status, online)
		}
	}
}

func TestConfiguration(t *testing.T) {
	_, key := account()
	for name, c := range map[string]struct {
		address string
		secret  map[string][]byte
		valid   bool
	}{
		"nothing":                     {"", nil, true},
		"project":                     {"", map[string][]byte{"project": []byte("shop-17")}, true},
		"project of a domain":         {"", map[string][]byte{"project": []byte("example.com:shop-17")}, true},
		"project that is a path":      {"", map[string][]byte{"project": []byte("../shop")}, false},
		"key without project":         {"", map[string][]byte{"serviceAccountKey": key}, false},
		"key that is not JSON":        {"", map[string][]byte{"project": []byte("p"), "serviceAccountKey": []byte("hunter2")}, false},
		"key that names a command":    {"", map[string][]byte{"project": []byte("p"), "serviceAccountKey": []byte(`{"type":"external_account","credential_source":{"executable":{"command":"/bin/sh"}}}`)}, false},
		"address without credentials": {"https://evil.example", nil, false},
		"address without a key":       {"https://evil.example", map[string][]byte{"project": []byte("shop-17")}, false},
	} {
		spec := flaggerv1.MetricTemplateProvider{Type: Type, Address: c.address}
		if c.secret != nil {
			spec.SecretRef = &flaggerv1.SecretReference{Name: "s"}
		}
		_, err := metric.NewRegistry(Service()).NewProvider(outbound.New(outbound.Policy{}), "shop", spec, c.secret)
		if (err == nil) != c.valid || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
