// Package loadtester runs tests and generates load for webhooks, and stores the gates that users open and close.
//
// It knows the payload of a webhook, programs, and the test servers that have their own task type. It must not know why
// it is called, the Kubernetes API, or a kind of release. It decides whether a task is allowed before it starts it.
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
	// TokenVariable names the variable with the token that clients must present; if it is empty, no token is required.
	TokenVariable = "LOADTESTER_TOKEN"
	// namespaceVariable names the variable with the namespace in which the load tester runs.
	namespaceVariable = "POD_NAMESPACE"
)

// The limits of the HTTP server. A request is short, so reading it has a timeout; writing the response has none, because
// a response may take as long as the test.
const (
	readTimeout     = 5 * time.Second
	idleTimeout     = 15 * time.Second
	maxHeaderBytes  = 64 << 10
	shutdownTimeout = 3 * time.Second
)

// Flags are the settings of the load tester. Those that exist in Flagger's load tester have its names and defaults.
type Flags struct {
	Port                  string
	LogLevel, LogEncoding string
	ReplaceGlobals        bool
	// Timeout bounds each task.
	Timeout time.Duration
	// NamespaceRegexp must match a part of the payload's namespace. If it is empty, only the load tester's own namespace
	// is accepted, or any namespace if the own one is unknown.
	NamespaceRegexp string
	// TaskTypes are the accepted types of tasks.
	TaskTypes []string
	// AllowLoopback permits requests of built-in programs, and to test servers, on the load tester's own host.
	AllowLoopback bool
	// Token must be presented by clients; it is read from the environment only.
	Token outbound.Secret
	// Namespace is the namespace in which the load tester runs; it is read from the environment.
	Namespace string
}

// Register declares the flags.
func (f *Flags) Register(set *pflag.FlagSet) {
	set.StringVar(&f.Port, "port", "9090", "port to listen on")
	set.StringVar(&f.LogLevel, "log-level", "debug", "debug, info, warn, error")
	set.DurationVar(&f.Timeout, "timeout", time.Hour, "how long a task may take")
	set.StringVar(&f.NamespaceRegexp, "namespace-regexp", "", "regular expression that matches the namespaces whose webhooks are accepted; default: the namespace in the variable "+namespaceVariable)
	set.BoolVar(&f.ReplaceGlobals, "zap-replace-globals", false, "accepted for compatibility: there is one logger")
	set.StringVar(&f.LogEncoding, "zap-encoding", "json", "json or console")
	set.StringSliceVar(&f.TaskTypes, "task-types", Types(), "accepted types of tasks; without bash, cmd is not passed to a shell, but may itself be one if the image contains it")
	set.BoolVar(&f.AllowLoopback, "allow-loopback", false, "allow built-in programs and test servers to be called on this host, for tests")
}

// FromEnvironment reads the settings that are environment variables instead of flags.
func (f *Flags) FromEnvironment(lookup func(string) string) {
	f.Token, f.Namespace = outbound.Secret(lookup(TokenVariable)), lookup(namespaceVariable)
}

// Validate returns an error that names the invalid flag and how to correct it.
func (f *Flags) Validate() error {
	if f.Timeout <= 0 {
		return fmt.Errorf("-timeout is %s: it must be positive", f.Timeout)
	}
	for _, each := range f.TaskTypes {
		if !slices.Contains(Types(), each) {
			return fmt.Errorf("-task-types contains %q: use one or more of %s", each, strings.Join(Types(), ", "))
		}
	}
	if _, err := regexp.Compile(f.NamespaceRegexp); err != nil {
		return fmt.Errorf("-namespace-regexp: %w", err)
	}
	return nil
}

// namespacePattern returns the expression that accepted namespaces match; nil accepts all.
func (f *Flags) namespacePattern() *regexp.Regexp {
	switch {
	case f.NamespaceRegexp != "":
		return regexp.MustCompile(f.NamespaceRegexp) // Validate has compiled it
	case f.Namespace != "":
		return regexp.MustCompile("^" + regexp.QuoteMeta(f.Namespace) + "$")
	default:
		return nil
	}
}

// Run runs the load tester until ctx is done, and then stops the running tasks with all their processes.
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

// serve runs the load tester on a listener, which it closes.
func serve(ctx context.Context, f Flags, listener net.Listener, stderr io.Writer) error {
	defer listener.Close()
	log, err := telemetry.NewLogger(f.LogLevel, f.LogEncoding, stderr)
	if err != nil {
		return err
	}
	programs := ""
	if self, err := os.Executable(); err == nil {
		if programs, err = linkPrograms(self); err != nil {
			log.Info("Could not add the built-in programs to the PATH of scripts", "err", err.Error())
		}
	}
	defer os.RemoveAll(programs)

	policy := outbound.Policy{AllowLoopback: f.AllowLoopback}
	client := outbound.New(policy)
	defer client.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	tasksCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(errStopped)
	h := &handler{
		log: log, gates: newGates(), runs: newRuns(tasksCtx), namespacePattern: f.namespacePattern(), types: f.TaskTypes, token: f.Token,
		executor: &executor{
			clock: clock.RealClock{}, log: log, client: client, policy: policy, timeout: f.Timeout, env: environment(os.Environ(), programs),
		},
		countTask: telemetry.NewTaskCounter(registry),
		metrics:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	if h.namespacePattern == nil {
		log.Info("Accepting webhooks from every namespace, because neither -namespace-regexp nor " + namespaceVariable + " is set")
	}
	log.Info("Listening", "address", listener.Addr().String(), "types", strings.Join(f.TaskTypes, ","))
	server := &http.Server{
		Handler: h.routes(), ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	// Tasks are stopped before the server, so that the requests that wait for them can still be answered.
	stop(errStopped)
	h.runs.wait()
	shutdownCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(shutdownCtx) != nil {
		_ = server.Close() // closes the connections that did not end in time
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
