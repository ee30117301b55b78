// Package loadtester runs tests and generates load for webhooks, and keeps the gates that people open.
//
// It knows the payload of a webhook, programs, and the test servers that have a type of their own. It must not know why
// it is called, the Kubernetes API, or a kind of release; what may be run is decided before anything is.
package loadtester

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/telemetry"
)

// The environment of a load tester.
const (
	// TokenVariable holds the token that callers have to show; empty: none.
	TokenVariable = "LOADTESTER_TOKEN"
	// namespaceVariable holds the namespace that the load tester runs in.
	namespaceVariable = "POD_NAMESPACE"
)

// The bounds of the HTTP server. Nobody has a reason to send for long; an answer may take as long as a test.
const (
	readTimeout     = 5 * time.Second
	idleTimeout     = 15 * time.Second
	maxHeaderBytes  = 64 << 10
	shutdownTimeout = 3 * time.Second
)

// Flags are what whoever runs the load tester decides. Names and defaults of Flagger's are kept.
type Flags struct {
	Port                  string
	LogLevel, LogEncoding string
	ReplaceGlobals        bool
	// Timeout bounds each task.
	Timeout time.Duration
	// NamespaceRegexp has to be found in the namespace of a payload. Empty: the load tester's own namespace, or any
	// where that is not known.
	NamespaceRegexp string
	// TaskTypes are the types of tasks that are done.
	TaskTypes []string
	// AllowLoopback lets built-in programs and test servers be called on the load tester's own host.
	AllowLoopback bool
	// Token has to be shown by callers; it comes from the environment only.
	Token outbound.Secret
	// Namespace is the one that the load tester runs in, from the environment.
	Namespace string
}

// Register declares the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Port, "port", "9090", "port to listen on")
	set.StringVar(&f.LogLevel, "log-level", "debug", "debug, info, warn, error")
	set.DurationVar(&f.Timeout, "timeout", time.Hour, "how long a task may take")
	set.StringVar(&f.NamespaceRegexp, "namespace-regexp", "", "regular expression that is found in the namespaces whose webhooks are taken; empty: the namespace in the variable "+namespaceVariable)
	set.BoolVar(&f.ReplaceGlobals, "zap-replace-globals", false, "accepted for compatibility")
	set.StringVar(&f.LogEncoding, "zap-encoding", "json", "json or console")
	set.StringSliceVar(&f.TaskTypes, "task-types", Types(), "types of tasks that are done; without bash there is no shell for cmd either")
	set.BoolVar(&f.AllowLoopback, "allow-loopback", false, "let built-in programs and test servers be called on this host, for tests")
}

// FromEnvironment reads what is not given as a flag.
func (f *Flags) FromEnvironment(lookup func(string) string) {
	f.Token, f.Namespace = outbound.Secret(lookup(TokenVariable)), lookup(namespaceVariable)
}

// Validate says what is wrong with the flags, and what to do.
func (f *Flags) Validate() error {
	if f.Timeout <= 0 {
		return fmt.Errorf("-timeout is %s: a task needs some time", f.Timeout)
	}
	for _, each := range f.TaskTypes {
		if !slices.Contains(Types(), each) {
			return fmt.Errorf("-task-types names %q: use some of %s", each, strings.Join(Types(), ", "))
		}
	}
	if _, err := regexp.Compile(f.NamespaceRegexp); err != nil {
		return fmt.Errorf("-namespace-regexp: %w", err)
	}
	return nil
}

// namespaces are those whose webhooks are taken; nil: all.
func (f *Flags) namespaces() *regexp.Regexp {
	switch {
	case f.NamespaceRegexp != "":
		return regexp.MustCompile(f.NamespaceRegexp) // Validate has compiled it
	case f.Namespace != "":
		return regexp.MustCompile("^" + regexp.QuoteMeta(f.Namespace) + "$")
	default:
		return nil
	}
}

// Run is the load tester, until ctx is done; tasks that run then are stopped, with all their processes.
func Run(ctx context.Context, f Flags, stderr io.Writer) error {
	if err := f.Validate(); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", f.Port))
	if err != nil {
		return fmt.Errorf("listen on port %s: %w", f.Port, err)
	}
	return serve(ctx, f, listener, stderr)
}

// serve is Run on a listener, which it closes.
func serve(ctx context.Context, f Flags, listener net.Listener, stderr io.Writer) error {
	defer listener.Close()
	log, err := telemetry.NewLogger(f.LogLevel, f.LogEncoding, stderr)
	if err != nil {
		return err
	}
	programs := ""
	if self, err := os.Executable(); err == nil {
		if programs, err = linkPrograms(self); err != nil {
			log.Info("Left built-in programs out of the path of scripts", "why", err.Error())
		}
	}
	defer os.RemoveAll(programs)

	policy := outbound.Policy{AllowLoopback: f.AllowLoopback}
	client := outbound.New(policy)
	defer client.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)
	h := &handler{
		log: log, gates: newGates(), runs: newRuns(life), namespaces: f.namespaces(), types: f.TaskTypes, token: f.Token,
		executor: &executor{
			clock: clock.RealClock{}, log: log, client: client, policy: policy, timeout: f.Timeout, env: environment(os.Environ(), programs),
		},
		counts:  telemetry.NewTaskCounter(registry),
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	if h.namespaces == nil {
		log.Info("Takes webhooks of every namespace, because neither -namespace-regexp nor " + namespaceVariable + " is set")
	}
	log.Info("Listens", "address", listener.Addr().String(), "types", strings.Join(f.TaskTypes, ","))
	server := &http.Server{
		Handler: h.routes(), ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// Tasks end first: the calls that wait for them then have an answer to give.
	stop(errStopped)
	h.runs.wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close() // what did not end in time is cut off
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
