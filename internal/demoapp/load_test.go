package demoapp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/demoapp"
	"github.com/serin-dev/serin/internal/waittest"
)

// startApp starts the application, and returns its address.
func startApp(t *testing.T, config demoapp.Config) string {
	t.Helper()
	server := httptest.NewServer(demoapp.New(config, clock.RealClock{}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestATestFailsBecauseOfErrorsOfTheNewVersionOnly(t *testing.T) {
	old := startApp(t, demoapp.Config{Version: "v1", ErrorPercent: 100})
	for _, c := range []struct {
		canary, check, report string
		status                int
	}{
		{startApp(t, demoapp.Config{Version: "v2"}), "0 of 20 test requests to v2 failed", `{"version":"v2","requests":20,"failed":0,"successPercent":100}` + "\n", http.StatusOK},
		// The request that waits for the first answer is the 1st of both tests.
		{startApp(t, demoapp.Config{Version: "v3", ErrorPercent: 50}), "10 of 20 test requests to v3 failed", `{"version":"v3","requests":20,"failed":10,"successPercent":50}` + "\n", http.StatusPreconditionFailed},
		{"http://127.0.0.1:1", "the new version does not answer", `{"version":"","requests":0,"failed":0,"successPercent":0}` + "\n", http.StatusPreconditionFailed},
	} {
		l := demoapp.NewLoad(demoapp.LoadConfig{URL: old, CanaryURL: c.canary, Rate: 1}, clock.RealClock{}, t.Output())
		if got := get(t, l, "/check"); got.Code != c.status || got.Body.String() != c.check {
			t.Errorf("/check answered %d %q, want %d %q", got.Code, got.Body, c.status, c.check)
		}
		if got := get(t, l, "/report"); got.Code != http.StatusOK || got.Body.String() != c.report {
			t.Errorf("/report answered %d %q, want %q", got.Code, got.Body, c.report)
		}
	}
}

func TestALoadSendsRequestsOfUsersUntilItEnds(t *testing.T) {
	hosts := make(chan string, 1000)
	users := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts <- r.Host
		w.Header().Set("X-Version", "v1")
	}))
	defer users.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := demoapp.NewLoad(demoapp.LoadConfig{URL: users.URL, Host: "demo.example", CanaryURL: users.URL, Rate: 200}, clock.RealClock{}, t.Output())
	ended := make(chan error)
	go func() { ended <- l.Serve(ctx, listener) }()
	if host := <-hosts; host != "demo.example" {
		t.Errorf("a request has the Host header %s", host)
	}
	waittest.Until(t, "requests of users are counted", func() error {
		if counts := get(t, l, "/users").Body.String(); strings.HasPrefix(counts, "0 of 0 ") || !strings.HasPrefix(counts, "0 of ") {
			return errors.New(counts)
		}
		return nil
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the load does not end")
	}
}

func TestAnInvalidLoadIsRefused(t *testing.T) {
	for want, config := range map[string]demoapp.LoadConfig{
		"the rate is 0: it must be above 0, and at most 1000":                           {URL: "http://demo", CanaryURL: "http://demo"},
		`the address of the users is "demo": use a URL such as http://demo.shop`:        {URL: "demo", CanaryURL: "http://demo", Rate: 1},
		`the address of the canary is "http://%zz": use a URL such as http://demo.shop`: {URL: "http://demo", CanaryURL: "http://%zz", Rate: 1},
	} {
		if err := config.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
