package demoapp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// LoadConfig is the configuration of a load.
type LoadConfig struct {
	// URL is the address that users call; Host is the Host header of their requests, by default the host of the URL.
	URL, Host string
	// CanaryURL is an address that only the new version answers, for tests.
	CanaryURL string
	// Rate is the number of requests of users a second, above 0.
	Rate float64
}

// Validate returns an error that names the invalid setting and how to correct it.
func (c LoadConfig) Validate() error {
	if c.Rate <= 0 || c.Rate > maxRate {
		return fmt.Errorf("the rate is %v: it must be above 0, and at most %d", c.Rate, maxRate)
	}
	for name, address := range map[string]string{"address of the users": c.URL, "address of the canary": c.CanaryURL} {
		if parsed, err := url.Parse(address); err != nil || parsed.Host == "" {
			return fmt.Errorf("the %s is %q: use a URL such as http://demo.shop", name, address)
		}
	}
	return nil
}

// The limits of a load. A lost packet of the name resolution, which is repeated after 5 s, is no lost request.
const (
	maxRate        = 1000
	requestTimeout = 15 * time.Second
	maxBody        = 1 << 20
)

// A test sends testRequests requests at testInterval, as soon as the new version answers: its Service may route requests a moment
// later than its pods are ready. minSuccessPercent must succeed.
const (
	testRequests       = 20
	testInterval       = 50 * time.Millisecond
	firstAnswerTimeout = 4 * time.Second
	minSuccessPercent  = 99
)

// Report is the result of a test.
type Report struct {
	// Version answered the last request; empty: none was answered.
	Version string `json:"version"`
	// Requests is the number of requests; Failed of them were not answered, or with status 5xx.
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	// SuccessPercent is 0 if no request was sent.
	SuccessPercent float64 `json:"successPercent"`
}

func (r Report) isSuccessful() bool { return r.SuccessPercent >= minSuccessPercent }

// String describes the report for users.
func (r Report) String() string {
	if r.Requests == 0 {
		return "the new version does not answer"
	}
	return fmt.Sprintf("%d of %d test requests to %s failed", r.Failed, r.Requests, cmp.Or(r.Version, "the new version"))
}

// Load sends the requests of users at a steady rate, and tests the new version when a webhook or a measurement asks for it.
type Load struct {
	config LoadConfig
	clock  clock.WithTicker
	client *http.Client
	out    io.Writer

	mu       sync.Mutex
	all      int
	failures int
}

// NewLoad returns a load that sends nothing yet. It writes its counts to out.
func NewLoad(config LoadConfig, c clock.WithTicker, out io.Writer) *Load {
	return &Load{config: config, clock: c, out: out, client: &http.Client{
		Timeout: requestTimeout,
		// Each request has its own connection: a Service distributes connections, and a retry would hide a lost request.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ServeHTTP answers /check, a webhook that succeeds if the new version passes a test, /report, the same test as JSON, and /users,
// the counts of the requests of users.
func (l *Load) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/readyz":
		fmt.Fprintln(w, "ready")
	case "/users":
		fmt.Fprintln(w, l.counts())
	case "/check":
		report := l.test(r.Context())
		if !report.isSuccessful() {
			w.WriteHeader(http.StatusPreconditionFailed)
		}
		fmt.Fprint(w, report)
	case "/report":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(l.test(r.Context()))
	default:
		http.NotFound(w, r)
	}
}

// Serve sends requests and answers on a listener until ctx ends.
func (l *Load) Serve(ctx context.Context, listener net.Listener) error {
	if err := l.config.Validate(); err != nil {
		return err
	}
	server := &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var users sync.WaitGroup
	defer users.Wait()
	users.Go(func() { l.sendUserRequests(ctx, &users) })
	select {
	case err := <-ended:
		cancel()
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// countsInterval is the interval at which the counts are written.
const countsInterval = 10 * time.Second

// sendUserRequests sends requests until ctx ends.
func (l *Load) sendUserRequests(ctx context.Context, users *sync.WaitGroup) {
	requests := l.clock.NewTicker(time.Duration(float64(time.Second) / l.config.Rate))
	defer requests.Stop()
	counts := l.clock.NewTicker(countsInterval)
	defer counts.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-counts.C():
			fmt.Fprintln(l.out, l.counts())
		case <-requests.C():
			users.Go(func() {
				version, err := l.send(context.WithoutCancel(ctx), l.config.URL, l.config.Host) // a canceled request would count as failed
				l.count(version, err)
			})
		}
	}
}

// count counts a request from the first successful one on: before that, the application has not started.
func (l *Load) count(version string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.all == 0 {
		return
	}
	l.all++
	if err != nil {
		l.failures++
		fmt.Fprintf(l.out, "%s request %d failed: %s: %v\n", l.clock.Now().UTC().Format(time.RFC3339), l.all, cmp.Or(version, "no answer"), err)
	}
}

func (l *Load) counts() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d of %d requests of users failed", l.failures, l.all)
}

// test sends test requests to the new version.
func (l *Load) test(ctx context.Context) Report {
	if !l.waitForAnswer(ctx) {
		return Report{}
	}
	var report Report
	var mu sync.Mutex
	var requests sync.WaitGroup
	for range testRequests {
		requests.Go(func() {
			version, err := l.send(ctx, l.config.CanaryURL, "")
			mu.Lock()
			defer mu.Unlock()
			report.Requests++
			report.Version = cmp.Or(version, report.Version)
			if err != nil {
				report.Failed++
			}
		})
		select {
		case <-ctx.Done():
		case <-l.clock.After(testInterval):
		}
	}
	requests.Wait()
	report.SuccessPercent = 100 * float64(report.Requests-report.Failed) / float64(report.Requests)
	return report
}

// waitForAnswer reports whether the new version answers in time, whatever the status.
func (l *Load) waitForAnswer(ctx context.Context) bool {
	for end := l.clock.Now().Add(firstAnswerTimeout); ctx.Err() == nil && l.clock.Now().Before(end); {
		if version, _ := l.send(ctx, l.config.CanaryURL, ""); version != "" {
			return true
		}
		select {
		case <-ctx.Done():
		case <-l.clock.After(testInterval):
		}
	}
	return false
}

// send sends a request, and returns the version that answered, and an error if none did, or with status 5xx.
func (l *Load) send(ctx context.Context, address, host string) (version string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	request.Host = cmp.Or(host, request.Host)
	response, err := l.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	version = response.Header.Get("X-Version")
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, maxBody))
	switch {
	case err != nil:
		return version, err
	case version == "", response.StatusCode >= http.StatusInternalServerError:
		return version, fmt.Errorf("status %s", response.Status)
	default:
		return version, nil
	}
}
