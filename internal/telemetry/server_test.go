package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func newServer(t *testing.T, ready func() error) *Server {
	t.Helper()
	registry := prometheus.NewRegistry()
	New(registry).SetInfo("1.2.3", "istio")
	s, err := NewServer(ServerOptions{Address: "127.0.0.1:0", Gatherer: registry, Ready: ready})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, handler http.Handler, path string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer.Code, answer.Body.String()
}

func TestHealthIsOKAndShowsMessages(t *testing.T) {
	s := newServer(t, func() error { return errors.New("not ready, and healthy all the same") })
	check := func(want string) {
		t.Helper()
		code, body := get(t, s.Handler(), "/healthz")
		expect(t, "code", code, http.StatusOK)
		expect(t, "body", body, want)
	}
	check("OK")
	s.SetHealthMessage("status", "The definition of Canary drops status.serin: apply the one of this version.")
	s.SetHealthMessage("metrics", "Prometheus does not answer.")
	check("OK\nmetrics: Prometheus does not answer.\nstatus: The definition of Canary drops status.serin: apply the one of this version.")
	s.SetHealthMessage("metrics", "")
	s.SetHealthMessage("status", "")
	check("OK")
}

func TestReadyWhenNothingIsMissing(t *testing.T) {
	missing := errors.New("the caches are not filled yet")
	s := newServer(t, func() error { return missing })
	code, body := get(t, s.Handler(), "/readyz")
	expect(t, "code", code, http.StatusServiceUnavailable)
	expect(t, "body", body, "the caches are not filled yet")
	missing = nil
	code, body = get(t, s.Handler(), "/readyz")
	expect(t, "code", code, http.StatusOK)
	expect(t, "body", body, "OK")
}

// W49: profiles and the command line were on the metrics port by accident.
func TestThePortShowsHealthAndMetricsOnly(t *testing.T) {
	s := newServer(t, nil)
	code, body := get(t, s.Handler(), "/metrics")
	expect(t, "code of /metrics", code, http.StatusOK)
	if !strings.Contains(body, `flagger_info{mesh_provider="istio",version="1.2.3"} 1`) {
		t.Errorf("metrics lack flagger_info:\n%s", body)
	}
	if !strings.Contains(body, `argo_rollouts_controller_info{goversion="go1.`) {
		t.Errorf("metrics lack argo_rollouts_controller_info:\n%s", body)
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/vars", "/debug/requests", "/debug/events"} {
		code, _ := get(t, s.Handler(), path)
		expect(t, "code of "+path, code, http.StatusNotFound)
	}
}

func TestProfilesDoNotShowTheCommandLine(t *testing.T) {
	code, _ := get(t, profilingHandler(), "/debug/pprof/goroutine?debug=1")
	expect(t, "code of a profile", code, http.StatusOK)
	code, _ = get(t, profilingHandler(), "/debug/pprof/cmdline")
	expect(t, "code of the command line", code, http.StatusNotFound)
}

func TestProfilesAreServedOnLoopbackOnly(t *testing.T) {
	for address, wrong := range map[string]string{
		"":               "",
		"127.0.0.1:6060": "",
		"[::1]:6060":     "",
		":6060":          "is not a loopback address",
		"0.0.0.0:6060":   "is not a loopback address",
		"10.0.0.7:6060":  "is not a loopback address",
		"localhost:6060": "is not a loopback address", // a name may mean anything
		"6060":           "is not HOST:PORT",
	} {
		_, err := NewServer(ServerOptions{Gatherer: prometheus.NewRegistry(), ProfilingAddress: address})
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%q: %v", address, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%q: error %v, want one that contains %q", address, err, wrong)
		}
	}
	if _, err := NewServer(ServerOptions{}); err == nil {
		t.Error("a server without metrics was created")
	}
}

func TestTheServerAnswersUntilItIsStopped(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	began, proceed := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", newServer(t, nil).Handler())
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		close(began)
		<-proceed
		writeText(w, http.StatusOK, "slow")
	})
	go func() { done <- serveOn(ctx, listener, mux) }()

	address := "http://" + listener.Addr().String()
	expect(t, "answer", fetch(t, address+"/healthz"), "OK")
	slow := make(chan string, 1)
	go func() { slow <- fetch(t, address+"/slow") }()
	<-began
	cancel()
	close(proceed)
	expect(t, "request in progress when the server was stopped", <-slow, "slow")
	if err := <-done; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

func TestRunReturnsTheErrorOfListening(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := NewServer(ServerOptions{
		Address: "127.0.0.1:0", ProfilingAddress: taken.Addr().String(), Gatherer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "listen on "+taken.Addr().String()) {
		t.Errorf("error %v, want an error about the address in use", err)
	}
}
