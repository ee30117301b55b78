package operator

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// slowServer is an API server that answers no list until it is released.
type slowServer struct {
	// listed is closed at the first list, and closed when the test ends.
	listed, released, closed chan struct{}
	first                    sync.Once
}

func (s *slowServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") != "" {
		if r.URL.Query().Get("sendInitialEvents") != "" {
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-s.closed
		return
	}
	s.first.Do(func() { close(s.listed) })
	select {
	case <-s.released:
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	case <-s.closed:
	}
}

// newSlowManager returns a manager that watches ConfigMaps.
func newSlowManager(t *testing.T) (*slowServer, manager.Manager) {
	t.Helper()
	s := &slowServer{listed: make(chan struct{}), released: make(chan struct{}), closed: make(chan struct{})}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(s.closed) })
	mgr, err := manager.New(&rest.Config{Host: server.URL}, manager.Options{
		Scheme: Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper(nil)
			mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	return s, mgr
}

// waitForResponse waits until a server answers with a status code, and returns the body.
func waitForResponse(t *testing.T, url string, code int) string {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute) // far longer than needed
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		state := ""
		if err == nil {
			body, readErr := io.ReadAll(response.Body)
			state, err = string(body), errors.Join(readErr, response.Body.Close())
			if response.StatusCode == code {
				return state
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v, %s", url, err, state)
		}
		<-tick.C
	}
}

// TestHealthIsServedWhileTheCachesAreFilled: otherwise, kubelet would kill the container. A process that is stopped meanwhile ends.
func TestHealthIsServedWhileTheCachesAreFilled(t *testing.T) {
	for name, fills := range map[string]bool{"they are filled": true, "stopped before": false} {
		t.Run(name, func(t *testing.T) {
			server, mgr := newSlowManager(t)
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(listener.Addr().String())
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			health, err := newHealth(Flags{Port: port}, mgr)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- run(ctx, mgr, health) }()
			<-server.listed
			waitForResponse(t, "http://127.0.0.1:"+port+"/healthz", http.StatusOK)
			if got := waitForResponse(t, "http://127.0.0.1:"+port+"/readyz", http.StatusServiceUnavailable); !strings.Contains(got, "the caches are not synchronised yet") {
				t.Errorf("/readyz: %s", got)
			}
			if fills {
				close(server.released)
				waitForResponse(t, "http://127.0.0.1:"+port+"/readyz", http.StatusOK)
			}
			stop()
			switch err := <-ended; {
			case fills && err != nil:
				t.Errorf("stopped: %v", err)
			case !fills && (err == nil || !strings.Contains(err.Error(), "stopped before the caches were filled")):
				t.Errorf("stopped before the caches were filled: %v", err)
			}
		})
	}
}

// TestAnUnusablePortEndsTheProcess, also while the caches are filled.
func TestAnUnusablePortEndsTheProcess(t *testing.T) {
	_, mgr := newSlowManager(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	health, err := newHealth(Flags{Port: port}, mgr)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), mgr, health); err == nil || !strings.Contains(err.Error(), "listen on") {
		t.Errorf("got %v", err)
	}
}

// addedRunnables records what is added to a manager.
type addedRunnables struct {
	manager.Manager
	all []manager.Runnable
}

func (a *addedRunnables) Add(r manager.Runnable) error {
	a.all = append(a.all, r)
	return nil
}

// TestAStandbyServesAnAPIThatIsInstalledLater, so that its caches are filled when it takes over.
func TestAStandbyServesAnAPIThatIsInstalledLater(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	served := make(chan string, 2)
	missing := errors.New("not installed")
	serve := func(name string) func(context.Context) error {
		return func(context.Context) error { served <- name; return nil }
	}
	var mgr addedRunnables
	err := serveAPIs(t.Context(), &mgr, clk, logr.Discard(), []api{
		{apiCanary, func(context.Context) error { return nil }, serve(apiCanary)},
		{apiRollout, func(context.Context) error { return missing }, serve(apiRollout)},
	})
	if err != nil || len(mgr.all) != 1 || <-served != apiCanary {
		t.Fatalf("added %v, %v", mgr.all, err)
	}
	if onLeader, ok := mgr.all[0].(manager.LeaderElectionRunnable); !ok || onLeader.NeedLeaderElection() {
		t.Error("only the leader waits for the API")
	}
	missing = nil
	ended := make(chan error, 1)
	go func() { ended <- mgr.all[0].Start(t.Context()) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !clk.HasWaiters() {
		<-tick.C
	}
	clk.Step(installedPollInterval)
	if err := <-ended; err != nil || <-served != apiRollout {
		t.Errorf("got %v", err)
	}
}
