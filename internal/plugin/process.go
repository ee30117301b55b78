package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"golang.org/x/time/rate"

	"github.com/serin-dev/serin/internal/release"
)

const (
	// pingTimeout is the time that a process has to answer a ping after a call has timed out.
	pingTimeout = 5 * time.Second
	// maxAbandonedCalls is the number of calls without an answer after which a process is restarted although it answers pings:
	// each of them occupies memory there.
	maxAbandonedCalls = 16
	// maxStartErrorBytes is the maximum size of the message about a process that cannot be started, which may contain its output.
	maxStartErrorBytes = 300
)

// keptVariables are the variables of the environment that a plugin receives: they locate the API server, files and certificates,
// and contain no secrets.
var keptVariables = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "POD_NAMESPACE", "ARGO_ROLLOUTS_NAMESPACE",
}

// errEnded is the cause for which the context of a process ends with it.
var errEnded = errors.New("the process of the plugin has ended")

// errShuttingDown refuses calls while Serin is shutting down.
var errShuttingDown = errors.New("Serin is shutting down") //nolint:staticcheck // a name

// process is a running plugin. It ends with the context that it was started with.
type process struct {
	item   Item
	client *rpc.Client
	ping   func() error
	// ended is done when the process has ended, or its connection is lost. end ends it with a cause.
	ended     context.Context //nolint:containedctx // it is the lifetime of the process
	end       context.CancelCauseFunc
	startedAt time.Time
	// endedAt is nil while the process is running, and if it ended because Serin is shutting down.
	endedAt atomic.Pointer[time.Time]
	// abandoned is the number of calls that timed out and have not been answered since.
	abandoned atomic.Int32
}

// startProcess starts a plugin and initializes it. The process has an owner that ends it when ended is done, and that remains on
// its thread: Linux ends a process with a parent-death signal when the thread of its parent ends.
func (h *Host) startProcess(kind Kind, item Item, path string) (*process, error) {
	if h.ctx.Err() != nil {
		return nil, errShuttingDown
	}
	if h.options.SocketDir != "" {
		if err := os.MkdirAll(h.options.SocketDir, 0o755); err != nil { //nolint:gosec // the user of the plugins must be able to enter it
			return nil, fmt.Errorf("create the directory of sockets: %w", err)
		}
	}
	ended, end := context.WithCancelCause(h.ctx)
	p := &process{item: item, ended: ended, startedAt: h.options.Clock.Now()}
	p.end = func(cause error) {
		p.endedAt.CompareAndSwap(nil, new(h.options.Clock.Now()))
		end(cause)
	}
	connected := make(chan error, 1)
	h.owners.Go(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		h.own(p, kind, path, connected)
	})
	if err := <-connected; err != nil {
		return nil, err
	}
	return p, nil
}

// own runs a process until its end.
func (h *Host) own(p *process, kind Kind, path string, connected chan<- error) {
	output := newOutputLog(h.options.Logger.WithValues("plugin", p.item.Name))
	var run *limitedRunner
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: magicCookieKey, MagicCookieValue: interfaces[kind].cookie},
		Plugins:         map[string]goplugin.Plugin{interfaces[kind].name: rawPlugin{}},
		SkipHostEnv:     true,
		Logger:          hclog.NewNullLogger(), // it would repeat the output
		Stderr:          output,
		StartTimeout:    h.options.StartTimeout,
		RunnerFunc: func(_ hclog.Logger, given *exec.Cmd, socketDir string) (runner.Runner, error) {
			launched := append([]string{LaunchArgument, strconv.FormatUint(h.options.MemoryLimit, 10), path}, p.item.Args...)
			cmd := exec.Command(h.options.Launcher, launched...) //nolint:gosec,noctx // the administrator configures it; the owner ends it
			cmd.Env = append(h.environment(), given.Env...)
			var err error
			run, err = newLimitedRunner(p.ended, cmd, h.options, socketDir)
			if err != nil {
				return nil, err
			}
			return run, nil
		},
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: h.options.SocketDir},
	})
	address, err := client.Start()
	if err == nil {
		err = h.connect(p, kind, address, output)
	}
	if err == nil {
		select {
		case <-run.exited:
			err = errEnded
		default:
		}
	}
	if err != nil {
		err = errors.New(release.Truncate(strings.Join(strings.Fields(err.Error()), " "), maxStartErrorBytes))
	}
	if err == nil {
		h.options.Metrics.CountPluginStart(p.item.Name, string(kind), outcomeSuccess)
	}
	connected <- err
	if err == nil {
		select {
		case <-p.ended.Done():
		case <-run.exited:
		}
		h.options.Metrics.CountPluginEnd(p.item.Name, string(kind))
		h.options.Logger.Info("The process of a plugin has ended", "plugin", p.item.Name, "cause", fmt.Sprint(context.Cause(p.ended)))
	}
	p.end(errEnded)
	if run != nil {
		_ = run.Kill(h.ctx) // before the client asks the process to exit, which may not answer
		if run.cmd.Process != nil {
			<-run.exited // the client would connect to a process that is ending, and print the loss of that connection
		}
		client.Kill()
	}
	_ = output.Close()
}

// connect connects to a started process, and initializes the plugin.
func (h *Host) connect(p *process, kind Kind, address net.Addr, output io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(p.ended, h.options.StartTimeout, fmt.Errorf("not finished within %s", h.options.StartTimeout))
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, address.Network(), address.String())
	if err != nil {
		return err
	}
	context.AfterFunc(p.ended, func() { _ = conn.Close() })
	var initialized rpcError
	err = await(ctx, func() error {
		client, err := goplugin.NewRPCClient(connection{conn, newThrottledReader(p.ended, conn), p.end}, map[string]goplugin.Plugin{interfaces[kind].name: rawPlugin{}})
		if err != nil {
			return err
		}
		if err := client.SyncStreams(output, output); err != nil {
			return err
		}
		raw, err := client.Dispense(interfaces[kind].name)
		if err != nil {
			return err
		}
		p.client, p.ping = raw.(*rpc.Client), client.Ping
		return p.client.Call("Plugin.InitPlugin", new(any), &initialized)
	})
	switch {
	case err != nil:
		return fmt.Errorf("initialize the plugin: %w", err)
	case initialized.ErrorString != "":
		return fmt.Errorf("initialize the plugin: %s", release.Truncate(initialized.ErrorString, maxTextBytes))
	default:
		return nil
	}
}

// call calls a method and waits for its end, for the end of the process, or for ctx. If the call is abandoned, its reply must not
// be read.
func (p *process) call(ctx context.Context, method string, args, reply any) error {
	joined, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(p.ended, func() { cancel(context.Cause(p.ended)) }) //nolint:contextcheck // the call ends with the process, too
	defer stop()
	var over atomic.Bool // set by the first of the answer and the end of the wait
	err := await(joined, func() error {
		err := p.client.Call("Plugin."+method, args, reply)
		if over.Swap(true) {
			p.abandoned.Add(-1)
		}
		return err
	})
	if errors.Is(err, errAbandoned) && !over.Swap(true) {
		p.abandoned.Add(1)
	}
	return err
}

// restartIfHanging ends a process that does not answer a ping, or that has too many calls without an answer.
func (p *process) restartIfHanging(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	switch err := await(ctx, p.ping); {
	case err != nil:
		p.end(errors.New("it does not answer pings"))
	case p.abandoned.Load() >= maxAbandonedCalls:
		p.end(fmt.Errorf("%d calls have not been answered", maxAbandonedCalls))
	}
}

// errAbandoned is wrapped by the error of a function that await does not wait for any longer.
var errAbandoned = errors.New("no answer")

// await runs a function that cannot be cancelled, until ctx is done. The function must end when the process ends.
func await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }() // ends with the process at the latest
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errAbandoned, context.Cause(ctx))
	}
}

// environment returns the environment of plugins.
func (h *Host) environment() []string {
	var out []string
	for _, name := range keptVariables {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return slices.Clip(out)
}

// rawPlugin returns the connection to a plugin as it is.
type rawPlugin struct{}

// Server implements goplugin.Plugin.
func (rawPlugin) Server(*goplugin.MuxBroker) (any, error) {
	return nil, errors.New("this side is not a plugin")
}

// Client implements goplugin.Plugin.
func (rawPlugin) Client(_ *goplugin.MuxBroker, client *rpc.Client) (any, error) { return client, nil }

// connection is the connection to a process: reading is throttled, and its loss ends the process. It reports a loss as the end of the
// stream: go-plugin's multiplexer prints all other errors to the standard error of Serin, where they are no log lines. The owner logs
// the end of the process.
type connection struct {
	net.Conn
	reader throttledReader
	end    context.CancelCauseFunc
}

// Read implements io.Reader.
func (c connection) Read(into []byte) (int, error) {
	n, err := c.reader.Read(into)
	if err != nil {
		c.end(errEnded)
		return n, io.EOF
	}
	return n, nil
}

// Write implements io.Writer. After the loss of the connection, it discards the text: the end of the process ends the reading side, and
// with it all calls.
func (c connection) Write(text []byte) (int, error) {
	if _, err := c.Conn.Write(text); err != nil {
		c.end(errEnded)
	}
	return len(text), nil
}

// outputLog logs the lines of a plugin's output, at a limited rate.
type outputLog struct {
	lines  *io.PipeWriter
	logger logr.Logger
}

const (
	// linesPerSecond and lineBurst limit the logged lines of one plugin; further lines are dropped.
	linesPerSecond = 10
	lineBurst      = 100
	maxLineBytes   = 1 << 10
)

// newOutputLog returns a writer that logs lines. It ends when the writer is closed.
func newOutputLog(logger logr.Logger) *outputLog {
	reader, writer := io.Pipe()
	go func() {
		limiter, lines := rate.NewLimiter(linesPerSecond, lineBurst), bufio.NewReaderSize(reader, maxLineBytes)
		for {
			line, prefix, err := lines.ReadLine()
			if err != nil {
				return
			}
			if limiter.Allow() && len(line) > 0 {
				logger.Info("Output of a plugin", "line", string(line))
			}
			for prefix && err == nil { // the rest of a long line is dropped
				_, prefix, err = lines.ReadLine()
			}
		}
	}()
	return &outputLog{writer, logger}
}

// Write implements io.Writer.
func (o *outputLog) Write(text []byte) (int, error) { return o.lines.Write(text) }

// Close ends the log.
func (o *outputLog) Close() error { return o.lines.Close() }
