// Package metrictest is the contract test of metrics providers.
//
// It knows the contract, and must not know any provider; their differences are described by a Subject.
package metrictest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Subject is one provider under test.
type Subject struct {
	// Service is the service under test, for MetricTemplates.
	Service metric.Service
	// Cluster, instead of Service, returns the service of a provider that queries the API server of a cluster. Such a provider
	// needs no address.
	Cluster func(metric.Cluster) metric.Service
	// Querier, instead of Service, returns the querier under test, for analyses.
	Querier func(client *outbound.Client, c metric.Config) (metric.RawQuerier, error)
	// Number returns the value of a result of Querier; nil: metric.Single.
	Number func(metric.Result) (float64, error)
	// Credentials are all possible credentials; their values must not occur in ordinary texts.
	Credentials map[string][]byte
	// CredentialsFor returns further credentials that contain the address of the server. It may be nil.
	CredentialsFor func(address string) map[string][]byte
	// Region is the region in the spec.
	Region string
	// HandleOther answers requests other than the query, such as those for a token, and reports whether it did. It may be nil.
	HandleOther func(w http.ResponseWriter, r *http.Request) bool
	// NoEndMarker is true if responses of this API have no end marker, so that a truncated response may contain the value.
	NoEndMarker bool
	// OnlineIgnores are statuses that Online accepts, because they are about the requested page.
	OnlineIgnores []int
	// NoCredentials is true if the provider needs no credentials; BareHost is true if an address may be a host name without a
	// scheme.
	NoCredentials, BareHost bool
	// Headers are the headers in the spec.
	Headers map[string][]string
	// Query is a text that the provider accepts.
	Query string
	// Value is the body of a response with the value 1.5, measured right before Now.
	Value string
	// NoData are bodies of responses without a value, including those with NaN.
	NoData []string
	// Invalid are bodies of responses without a valid value, in addition to those that no API returns.
	Invalid []string
	// IsAuthorised reports whether a request has the credentials.
	IsAuthorised func(r *http.Request) bool
}

// Now is the end of the interval of every query.
var Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Interval is the interval of every query.
const Interval = time.Minute

// Namespace is the namespace of every template.
const Namespace = "shop"

// Run tests a provider against the contract.
func Run(t *testing.T, s Subject) {
	s.testValue(t)
	s.testNoData(t)
	s.testStatus(t)
	s.testBodies(t)
	s.testTruncatedResponses(t)
	s.testUnresponsiveServer(t)
	s.testRedirect(t)
	s.testPolicy(t)
	s.testConfiguration(t)
}

func (s Subject) testValue(t *testing.T) {
	t.Run("value", func(t *testing.T) {
		var mu sync.Mutex
		var headers []http.Header
		provider := s.newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			headers = append(headers, r.Header.Clone())
			if s.IsAuthorised != nil && !s.IsAuthorised(r) {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = w.Write([]byte(s.Value))
		})
		for range 3 {
			value, err := s.measure(t, provider)
			if err != nil || value != 1.5 || metric.OutcomeOf(err) != release.Measured {
				t.Fatalf("got %v, %v, want 1.5", value, err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for key, values := range headers[0] {
			if again := headers[2][key]; len(again) != len(values) {
				t.Errorf("header %s grows with each query: %d values, then %d", key, len(values), len(again))
			}
		}
	})
}

func (s Subject) testNoData(t *testing.T) {
	for _, body := range s.NoData {
		t.Run("no data", func(t *testing.T) {
			_, err := s.measure(t, s.newProviderFor(t, respond(http.StatusOK, body)))
			if !errors.Is(err, metric.ErrNoData) || metric.OutcomeOf(err) != release.NoData {
				t.Errorf("%q: got %v, want ErrNoData", body, err)
			}
		})
	}
}

func (s Subject) testStatus(t *testing.T) {
	for code, want := range map[int]release.Outcome{
		400: release.Broken, 401: release.Broken, 403: release.Broken, 404: release.Broken, 422: release.Broken, 501: release.Broken,
		429: release.Unreachable, 500: release.Unreachable, 502: release.Unreachable, 503: release.Unreachable, 504: release.Unreachable,
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			var calls atomic.Int32
			provider := s.newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
				calls.Add(1)
				w.Header().Set("Retry-After", "3600") // a provider must not retry itself
				s.echo(code)(w, r)
			})
			_, err := s.measure(t, provider)
			s.checkError(t, err, want)
			if n := calls.Load(); n != 1 {
				t.Errorf("one measurement sent %d requests, want 1", n)
			}
			if online := provider.Online(t.Context()); slices.Contains(s.OnlineIgnores, code) {
				if online != nil {
					t.Errorf("status %d: Online returns %v", code, online)
				}
			} else if online == nil {
				t.Errorf("status %d: Online returns no error", code)
			} else {
				s.checkError(t, online, want)
			}
		})
	}
}

func (s Subject) testBodies(t *testing.T) {
	deep := strings.Repeat(`{"data":`, 100_000)
	for _, body := range append([]string{"<html>" + secretPage + "</html>", "", "{", `{"` + secretPage + `":1}`, `[[["` + secretPage + `"]]]`, "null", deep}, s.Invalid...) {
		t.Run("unexpected response", func(t *testing.T) {
			_, err := s.measure(t, s.newProviderFor(t, respond(http.StatusOK, body)))
			if err == nil {
				t.Errorf("%.60q is accepted as a value", body)
			}
			if outcome := metric.OutcomeOf(err); outcome != release.Broken && outcome != release.NoData {
				t.Errorf("%.60q is %s: %v", body, outcome, err)
			}
			s.checkText(t, err)
		})
	}
	t.Run("endless response", func(t *testing.T) {
		_, err := s.measure(t, s.newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 64<<10)); err != nil {
					return
				}
			}
		}))
		s.checkError(t, err, release.Broken)
	})
	bomb := gzipped(t, make([]byte, 8<<20)) // compressed beforehand, because the test is about reading it
	t.Run("gzip bomb", func(t *testing.T) {
		_, err := s.measure(t, s.newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(bomb)
		}))
		s.checkError(t, err, release.Broken)
	})
}

// testTruncatedResponses checks that a truncated response is not a value, in particular not the first digits of one.
func (s Subject) testTruncatedResponses(t *testing.T) {
	t.Run("connection closed during the response", func(t *testing.T) {
		for _, length := range []int{0, len(s.Value) / 2, len(s.Value) - 1} {
			_, err := s.measure(t, s.newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", strconv.Itoa(len(s.Value)))
				_, _ = w.Write([]byte(s.Value[:length]))
			}))
			s.checkError(t, err, release.Unreachable)
		}
	})
	t.Run("truncated response", func(t *testing.T) {
		var length atomic.Int32
		provider := s.newProviderFor(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s.Value[:length.Load()])) })
		for n := range strings.TrimSpace(s.Value) {
			length.Store(int32(n))
			value, err := s.measure(t, provider)
			if err == nil && (!s.NoEndMarker || value != 1.5) {
				t.Errorf("%d bytes of the response are accepted as the value %v", n, value)
			}
		}
	})
}

func gzipped(t *testing.T, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (s Subject) testUnresponsiveServer(t *testing.T) {
	t.Run("no response", func(t *testing.T) {
		provider := s.newProviderFor(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // a server notices a closed connection only after the body
			hang(t, r)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := provider.Measure(ctx, s.query())
		s.checkError(t, err, release.Unreachable)
	})
	t.Run("response that never ends", func(t *testing.T) {
		provider := s.newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", strconv.Itoa(len(s.Value)))
			_, _ = w.Write([]byte(s.Value[:len(s.Value)-1]))
			w.(http.Flusher).Flush()
			hang(t, r)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := provider.Measure(ctx, s.query())
		s.checkError(t, err, release.Unreachable)
	})
	t.Run("connection refused", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		_, err := s.measure(t, s.newProviderAt(t, server.URL, outbound.Policy{AllowLoopback: true}))
		s.checkError(t, err, release.Unreachable)
	})
}

// hang returns when the client has closed the connection, or when the test ends: a request that several callers share continues after
// its caller has left.
func hang(t *testing.T, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-t.Context().Done():
	}
}

func (s Subject) testRedirect(t *testing.T) {
	t.Run("redirect to another host", func(t *testing.T) {
		called := make(chan struct{}, 8)
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
		t.Cleanup(other.Close)
		provider := s.newProviderFor(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		_, err := s.measure(t, provider)
		s.checkError(t, err, release.Broken)
		s.checkError(t, provider.Online(t.Context()), release.Broken)
		if len(called) > 0 {
			t.Error("the other host was called, with the credentials in the headers")
		}
	})
}

func (s Subject) testPolicy(t *testing.T) {
	t.Run("refused destination", func(t *testing.T) {
		_, err := s.measure(t, s.newProviderAt(t, "http://127.0.0.1:9", outbound.Policy{}))
		s.checkError(t, err, release.Broken)
		if _, ok := errors.AsType[*outbound.RefusedError](err); !ok {
			t.Errorf("got %v, want a RefusedError", err)
		}
	})
}

func (s Subject) testConfiguration(t *testing.T) {
	if s.Cluster != nil {
		return // the template contains neither address nor credentials
	}
	t.Run("invalid address", func(t *testing.T) {
		for _, address := range []string{"metrics", "file:///etc/passwd", "http://", "http://u:" + secretPage} {
			_, err := s.newProvider(address, s.Credentials, outbound.New(outbound.Policy{}))
			if err == nil && (!s.BareHost || address != "metrics") {
				t.Errorf("%s is accepted", address)
			}
			s.checkText(t, err)
		}
	})
	if s.NoCredentials {
		return
	}
	t.Run("missing credentials", func(t *testing.T) {
		if _, err := s.newProvider("http://metrics", map[string][]byte{}, outbound.New(outbound.Policy{})); err == nil {
			t.Error("an empty Secret is accepted")
		}
	})
}

// secretPage is a text that only the controller can read.
const secretPage = "for-the-controllers-eyes-only"

func (s Subject) query() metric.Query {
	return metric.Query{Text: s.Query, Interval: Interval, Now: Now}
}

func (s Subject) measure(t *testing.T, provider metric.Provider) (float64, error) {
	t.Helper()
	return provider.Measure(t.Context(), s.query())
}

func (s Subject) newProvider(address string, credentials map[string][]byte, client *outbound.Client) (metric.Provider, error) {
	service, spec := s.Service, flaggerv1.MetricTemplateProvider{
		Address: address, Headers: s.Headers, Region: s.Region, SecretRef: &flaggerv1.SecretReference{Name: "credentials"},
	}
	switch {
	case s.Cluster != nil:
		service = s.Cluster(metric.Cluster{Address: address, Own: client, Anonymous: client})
		spec = flaggerv1.MetricTemplateProvider{}
	case s.Querier != nil:
		service = metric.Service{TemplateType: "analysis", NewProvider: s.adaptQuerier}
	}
	spec.Type = service.TemplateType
	return metric.NewRegistry(service).NewProvider(client, Namespace, spec, credentials)
}

func (s Subject) adaptQuerier(client *outbound.Client, c metric.Config) (metric.Provider, error) {
	raw, err := s.Querier(client, c)
	return adapter{subject: s, raw: raw}, err
}

// adapter adapts a RawQuerier to a Provider, whose value is the number in the result.
type adapter struct {
	subject Subject
	raw     metric.RawQuerier
}

func (a adapter) Measure(ctx context.Context, q metric.Query) (float64, error) {
	result, err := a.raw.QueryRaw(ctx, q)
	switch {
	case err != nil:
		return 0, err
	case a.subject.Number != nil:
		return a.subject.Number(result)
	default:
		return metric.Single(result)
	}
}

// Online sends the query, because analyses have no other request.
func (a adapter) Online(ctx context.Context) error {
	_, err := a.raw.QueryRaw(ctx, a.subject.query())
	return err
}

func (s Subject) newProviderAt(t *testing.T, address string, policy outbound.Policy) metric.Provider {
	t.Helper()
	client := outbound.New(policy)
	t.Cleanup(client.Close)
	credentials := maps.Clone(s.Credentials)
	if s.CredentialsFor != nil {
		maps.Copy(credentials, s.CredentialsFor(address))
	}
	provider, err := s.newProvider(address, credentials, client)
	if err != nil {
		t.Fatal(err)
	}
	return provider
}

func (s Subject) newProviderFor(t *testing.T, handler http.HandlerFunc) metric.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.HandleOther == nil || !s.HandleOther(w, r) {
			handler(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return s.newProviderAt(t, server.URL, outbound.Policy{AllowLoopback: true})
}

func respond(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

// echo returns a handler that answers with the whole request, as some error pages do.
func (s Subject) echo(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(secretPage + r.URL.String()))
		_ = r.Header.Write(w)
		for _, value := range s.Credentials {
			_, _ = w.Write(value)
		}
	}
}

func (s Subject) checkError(t *testing.T, err error, want release.Outcome) {
	t.Helper()
	if got := metric.OutcomeOf(err); got != want {
		t.Errorf("%v is %s, want %s", err, got, want)
	}
	s.checkText(t, err)
}

// checkText checks that an error may be shown to every user who may read the Canary.
func (s Subject) checkText(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for key, value := range s.Credentials {
		if strings.Contains(err.Error(), string(value)) {
			t.Errorf("%q contains the value of %s", err, key)
		}
	}
	if strings.Contains(err.Error(), secretPage) {
		t.Errorf("%q repeats the response", err)
	}
	if len(err.Error()) > 1<<10 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}
