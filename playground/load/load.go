// Package load sends requests at a steady rate and counts the results by
// version and over time.
//
// It must not know Kubernetes or releases. Unlike other clients it never
// retries a request, so that each lost request is counted.
package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Options configure a load. URL and Rate are required.
type Options struct {
	// URL of the gateway, with the path.
	URL string
	// Host is the Host header of the requests; it defaults to the host of the URL.
	Host string
	// Method defaults to GET.
	Method string
	// Rate is the number of requests a second, above 0. It does not depend on the duration of the answers.
	Rate float64
	// Header is sent with each request.
	Header http.Header
	// Users is the number of clients that send the requests in rotation, each with its own cookies. With 0, cookies are
	// neither stored nor sent.
	Users int
	// HTTP2 sends the requests by unencrypted HTTP/2, as gRPC clients without TLS do, and not by HTTP/1.1.
	HTTP2 bool
	// Timeout of a request, 10 s if 0.
	Timeout time.Duration
	// Clock defaults to the real clock.
	Clock clock.WithTicker
}

// Validate returns an error if the options cannot work.
func (o Options) Validate() error {
	if o.Rate <= 0 {
		return fmt.Errorf("the rate of requests is %v: it must be above 0", o.Rate)
	}
	if o.Users < 0 {
		return fmt.Errorf("the number of users is %d: it must not be negative", o.Users)
	}
	if _, err := url.Parse(o.URL); err != nil {
		return fmt.Errorf("parse the URL for load: %w", err)
	}
	return nil
}

// Sample is the result of one request.
type Sample struct {
	// StartedAt is the time at which it was sent, Duration the time until the answer was read completely.
	StartedAt time.Time
	Duration  time.Duration
	// User counts from 0.
	User int
	// Version and Pod are the headers X-Version and X-Pod. Without a version, no application answered.
	Version, Pod string
	// Status is the HTTP status, or 0 if there was no answer; Err is the reason then.
	Status int
	Err    string
}

// IsLost reports whether no application answered: the request failed, or the gateway answered it.
func (s Sample) IsLost() bool { return s.Version == "" }

// IsFailed reports whether the request is lost or was answered with status 5xx.
func (s Sample) IsFailed() bool { return s.IsLost() || s.Status >= http.StatusInternalServerError }

// maxSamples bounds the memory of one load to about 200 MB; the oldest samples are dropped.
const maxSamples = 1_000_000

// Load is a stream of requests.
type Load struct {
	options Options
	clients []*http.Client
	cancel  context.CancelFunc
	senders sync.WaitGroup

	mu      sync.Mutex
	samples []Sample
}

// Start starts to send requests, until Stop or the end of ctx.
func Start(ctx context.Context, o Options) (*Load, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Method = cmp.Or(o.Method, http.MethodGet)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!o.HTTP2)
	protocols.SetUnencryptedHTTP2(o.HTTP2)
	l := &Load{options: o}
	for range max(o.Users, 1) {
		client := &http.Client{
			Timeout: o.Timeout,
			Transport: &http.Transport{
				// The library silently retries a request on a reused connection that turns out to be closed.
				DisableKeepAlives: true,
				Protocols:         protocols,
				// An empty map disables HTTP/2 with TLS, whose client retries requests too.
				TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		if o.Users > 0 {
			jar, err := cookiejar.New(nil)
			if err != nil {
				return nil, fmt.Errorf("create a cookie jar: %w", err)
			}
			client.Jar = jar
		}
		l.clients = append(l.clients, client)
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.senders.Go(func() { l.sendRequests(ctx) })
	return l, nil
}

// sendRequests sends requests at the configured rate. After a delay of the machine it catches up, so that the number of
// requests is right.
func (l *Load) sendRequests(ctx context.Context) {
	interval := time.Duration(float64(time.Second) / l.options.Rate)
	start := l.options.Clock.Now()
	for i := 0; ; i++ {
		if wait := start.Add(time.Duration(i) * interval).Sub(l.options.Clock.Now()); wait > 0 {
			select {
			case <-ctx.Done():
				return
			case <-l.options.Clock.After(wait):
			}
		}
		if ctx.Err() != nil {
			return
		}
		// ctx must not cancel the request, which would then be counted as lost.
		l.senders.Go(func() { l.sendRequest(context.WithoutCancel(ctx), i%len(l.clients)) })
	}
}

func (l *Load) sendRequest(ctx context.Context, user int) {
	sample := Sample{StartedAt: l.options.Clock.Now(), User: user}
	if err := l.readResponse(ctx, &sample); err != nil {
		sample.Err = withoutURL(err)
	}
	sample.Duration = l.options.Clock.Since(sample.StartedAt)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.samples) == maxSamples {
		l.samples = slices.Delete(l.samples, 0, maxSamples/10)
	}
	l.samples = append(l.samples, sample)
}

// readResponse sends the request of a sample, reads the answer completely and stores its result in the sample.
func (l *Load) readResponse(ctx context.Context, sample *Sample) error {
	request, err := http.NewRequestWithContext(ctx, l.options.Method, l.options.URL, nil)
	if err != nil {
		return err
	}
	maps.Copy(request.Header, l.options.Header)
	request.Host = cmp.Or(l.options.Host, request.Host)
	response, err := l.clients[sample.User].Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// A request with an incomplete answer is lost.
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20)); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	sample.Status, sample.Version, sample.Pod = response.StatusCode, response.Header.Get("X-Version"), response.Header.Get("X-Pod")
	return nil
}

func withoutURL(err error) string {
	text := err.Error()
	// net/http puts method and URL in front: Get "http://…": cause.
	if _, cause, found := strings.Cut(text, `": `); found {
		return cause
	}
	return text
}

// Stop sends nothing more and returns when every request under way has ended.
func (l *Load) Stop() {
	l.cancel()
	l.senders.Wait()
}

// Samples returns the results of all requests that have ended so far, in the order in which they ended.
func (l *Load) Samples() []Sample {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.samples)
}

// Counts returns the sums over all requests that have ended so far.
func (l *Load) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return CountSamples(l.samples)
}

// Between returns the sums over the requests that were sent at or after from and before to.
func (l *Load) Between(from, to time.Time) Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	var some []Sample
	for _, s := range l.samples {
		if !s.StartedAt.Before(from) && s.StartedAt.Before(to) {
			some = append(some, s)
		}
	}
	return CountSamples(some)
}

// WaitFor returns nil once enough returns true for the current counts, which it checks every 20 ms. If ctx ends first, the error
// contains the last counts.
func (l *Load) WaitFor(ctx context.Context, enough func(Counts) bool) error {
	ticker := l.options.Clock.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		counts := l.Counts()
		if enough(counts) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for requests: %w; so far %s", context.Cause(ctx), counts)
		case <-ticker.C():
		}
	}
}

// Counts are sums over requests.
type Counts struct {
	// Requests is the number of all requests, Lost the number of those that no application answered, Errors the number of those
	// that an application answered with 5xx.
	Requests, Lost, Errors int
	// ByVersion contains the requests that each version answered.
	ByVersion map[string]VersionCounts
	// Reasons is the number of lost requests by reason.
	Reasons map[string]int
}

// VersionCounts are the sums of one version.
type VersionCounts struct {
	Requests, Errors int
	// Slowest is the longest duration of a request.
	Slowest time.Duration
}

// Failed returns the number of lost requests and of requests that were answered with 5xx.
func (c Counts) Failed() int { return c.Lost + c.Errors }

// CountSamples returns the sums over samples.
func CountSamples(samples []Sample) Counts {
	c := Counts{ByVersion: map[string]VersionCounts{}, Reasons: map[string]int{}}
	for _, s := range samples {
		c.Requests++
		if s.IsLost() {
			c.Lost++
			c.Reasons[cmp.Or(s.Err, fmt.Sprintf("the gateway answered %d", s.Status))]++
			continue
		}
		v := c.ByVersion[s.Version]
		v.Requests++
		v.Slowest = max(v.Slowest, s.Duration)
		if s.IsFailed() {
			c.Errors++
			v.Errors++
		}
		c.ByVersion[s.Version] = v
	}
	return c
}

// Since returns the difference from earlier counts of the same load. Slowest is the maximum over all requests.
func (c Counts) Since(earlier Counts) Counts {
	added := Counts{
		Requests: c.Requests - earlier.Requests, Lost: c.Lost - earlier.Lost, Errors: c.Errors - earlier.Errors,
		ByVersion: map[string]VersionCounts{}, Reasons: map[string]int{},
	}
	for version, now := range c.ByVersion {
		before := earlier.ByVersion[version]
		if now.Requests > before.Requests {
			added.ByVersion[version] = VersionCounts{
				Requests: now.Requests - before.Requests, Errors: now.Errors - before.Errors, Slowest: now.Slowest,
			}
		}
	}
	for reason, n := range c.Reasons {
		if n -= earlier.Reasons[reason]; n > 0 {
			added.Reasons[reason] = n
		}
	}
	return added
}

// String returns one line for users: v1 300 (0 errors), v2 75 (8 errors), lost 0.
func (c Counts) String() string {
	var parts []string
	for _, version := range slices.Sorted(maps.Keys(c.ByVersion)) {
		v := c.ByVersion[version]
		parts = append(parts, fmt.Sprintf("%s %d (%d errors)", version, v.Requests, v.Errors))
	}
	var lost strings.Builder
	fmt.Fprintf(&lost, "lost %d", c.Lost)
	for _, reason := range slices.Sorted(maps.Keys(c.Reasons)) {
		fmt.Fprintf(&lost, " (%d × %s)", c.Reasons[reason], reason)
	}
	return strings.Join(append(parts, lost.String()), ", ")
}
