// Package app is the demo application: a web server that is as good or as bad
// as its environment says.
//
// It must not know the playground; it is an application like any other.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"
)

// Config is what the environment says.
type Config struct {
	// Version (VERSION) is in header X-Version and in the body of each answer.
	Version string
	// Pod (HOSTNAME) is in header X-Pod.
	Pod string
	// Port (PORT) listened on, 8080 by default.
	Port int
	// Message (MESSAGE) is in header X-Message and in the body. Where MESSAGE_FILE names a file, its contents are.
	Message string
	// ErrorPercent (ERROR_PERCENT) of the answers have status 500, from 0 to 100, spread evenly.
	ErrorPercent float64
	// Latency (LATENCY) is the time each answer takes, such as 600ms.
	Latency time.Duration
	// ReadyAfter (READY_AFTER) is the time from the start until /readyz says yes.
	ReadyAfter time.Duration
	// CrashAfter (CRASH_AFTER) is the time from the start until the program ends with exit code 1, negative for never,
	// which is the default.
	CrashAfter time.Duration
	// Drain (DRAIN) is the time without requests after which the server ends, once it got SIGTERM; 3 s by default. Until
	// then /readyz returns 503 and everything else is answered as before. It has to be longer than the usual time between
	// two requests; see maxDrain for its end.
	Drain time.Duration
}

// maxDrain ends a drain during which requests never stop. It is shorter than the default grace period of a pod, 30 s.
//
// A fixed time after SIGTERM is not enough: the endpoint controller of Kubernetes repeats an update that met a stale cache
// after 1 s, then 2 s, then 4 s, and on a busy machine clients are sent to a terminating pod for as long.
const maxDrain = 20 * time.Second

// ErrCrash is how a server ends whose configuration makes it crash.
var ErrCrash = errors.New("crashed as CRASH_AFTER asked")

// FromEnvironment reads a Config. Arguments of the form -port=9898 or --port=9898 win, for manifests of applications
// that are configured that way; others are not for this application and are ignored.
func FromEnvironment(getenv func(string) string, args []string) (Config, error) {
	c := Config{
		Version: getenv("VERSION"), Pod: getenv("HOSTNAME"), Message: getenv("MESSAGE"),
		Port: 8080, CrashAfter: -1, Drain: 3 * time.Second,
	}
	var errs []error
	read := func(name string, set func(string) error) {
		value := getenv(name)
		if value == "" {
			return
		}
		if err := set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: %w", name, value, err))
		}
	}
	duration := func(d *time.Duration) func(string) error {
		return func(value string) (err error) { *d, err = time.ParseDuration(value); return err }
	}
	port := func(value string) (err error) { c.Port, err = strconv.Atoi(value); return err }
	read("PORT", port)
	read("ERROR_PERCENT", func(value string) (err error) { c.ErrorPercent, err = strconv.ParseFloat(value, 64); return err })
	read("LATENCY", duration(&c.Latency))
	read("READY_AFTER", duration(&c.ReadyAfter))
	read("CRASH_AFTER", duration(&c.CrashAfter))
	read("DRAIN", duration(&c.Drain))
	read("MESSAGE_FILE", func(path string) error {
		text, err := os.ReadFile(path)
		c.Message = strings.TrimSpace(string(text))
		return err
	})
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name == "port" {
			if err := port(value); err != nil {
				errs = append(errs, fmt.Errorf("argument %s: %w", arg, err))
			}
		}
	}
	if c.ErrorPercent < 0 || c.ErrorPercent > 100 {
		errs = append(errs, fmt.Errorf("ERROR_PERCENT is %v: it goes from 0 to 100", c.ErrorPercent))
	}
	return c, errors.Join(errs...)
}

// Server answers requests.
type Server struct {
	config      Config
	clock       clock.Clock
	started     time.Time
	draining    atomic.Bool
	lastRequest atomic.Int64 // when the last request came, in nanoseconds since 1970; probes and scrapes do not count
	latencySum  *prometheus.HistogramVec
	handler     http.Handler

	mu        sync.Mutex
	errorDebt float64 // errors owed, in per cent of an answer
}

// New makes a server that has not started yet.
func New(config Config, c clock.Clock) *Server {
	s := &Server{config: config, clock: c, started: c.Now()}
	s.latencySum = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "http_request_duration_seconds",
		Help:    "Time until a request was answered.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, .75, 1, 2.5, 5, 10},
	}, []string{"status"})
	// A version without errors has the series of errors too: absent is not zero to a query.
	s.latencySum.WithLabelValues("200")
	s.latencySum.WithLabelValues("500")
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.latencySum)

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.HandleFunc("/readyz", s.ready)
	mux.HandleFunc("/", s.answer)
	s.handler = mux
	return s
}

// ServeHTTP answers one request. While draining it asks gateways to let their kept connections go, instead of cutting
// them: one of them might carry the next request already.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	s.handler.ServeHTTP(w, r)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.draining.Load():
		http.Error(w, "draining", http.StatusServiceUnavailable)
	case s.clock.Since(s.started) < s.config.ReadyAfter:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "ready")
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	begin := s.clock.Now()
	s.lastRequest.Store(begin.UnixNano())
	status := s.nextStatus()
	if s.config.Latency > 0 {
		select {
		case <-s.clock.After(s.config.Latency):
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("X-Version", s.config.Version)
	w.Header().Set("X-Pod", s.config.Pod)
	w.Header().Set("X-Message", s.config.Message)
	w.WriteHeader(status)
	fmt.Fprintf(w, "version %s\npod %s\nmessage %s\nstatus %d\n", s.config.Version, s.config.Pod, s.config.Message, status)
	s.latencySum.WithLabelValues(strconv.Itoa(status)).Observe(s.clock.Since(begin).Seconds())
}

// nextStatus spreads errors evenly: at 10 per cent exactly each tenth answer is one, so that what a release does with
// them does not depend on luck.
func (s *Server) nextStatus() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errorDebt += s.config.ErrorPercent
	if s.errorDebt < 100 {
		return http.StatusOK
	}
	s.errorDebt -= 100
	return http.StatusInternalServerError
}

// Serve answers on listener until ctx ends, then drains. The error is nil when all requests were answered, and
// ErrCrash when the configuration asked for that.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	var crash <-chan time.Time
	if s.config.CrashAfter >= 0 {
		crash = s.clock.After(s.config.CrashAfter)
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-crash:
		return ErrCrash
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.drain()
	// Each request under way has a deadline of its own: the pod's grace period.
	if err := server.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	return nil
}

// drain returns when nobody has asked for some time: clients are no longer sent here.
func (s *Server) drain() {
	quiet := s.clock.Now()
	end := quiet.Add(max(maxDrain, s.config.Drain))
	for {
		if asked := time.Unix(0, s.lastRequest.Load()); asked.After(quiet) {
			quiet = asked
		}
		until := quiet.Add(s.config.Drain)
		if until.After(end) {
			until = end
		}
		wait := until.Sub(s.clock.Now())
		if wait <= 0 {
			return
		}
		<-s.clock.After(wait)
	}
}
