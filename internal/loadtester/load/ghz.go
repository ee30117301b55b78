package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// ghzFlags is the command line of ghz.
type ghzFlags struct {
	volume                                volume
	call, data, metadata                  string
	authority, serverName                 string
	insecure, skipTLS                     bool
	timeout                               time.Duration
	proto, protoset, name, format, output string
	connections, cpus                     uint
	imports                               []string
	connectTimeout, keepalive             time.Duration
	address                               string
}

// readGhz reads the command line. Of the flags of ghz it takes those that say what is sent where and how much of it. What
// a message means is in a set of descriptors, or asked of the server: to read --proto would take a compiler.
func readGhz(args []string) (*ghzFlags, error) {
	var f ghzFlags
	set := pflag.NewFlagSet("ghz", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	set.IntVarP(&f.volume.requests, "total", "n", 200, "")
	set.IntVarP(&f.volume.workers, "concurrency", "c", 50, "")
	set.Float64VarP(&f.volume.rate, "rps", "r", 0, "")
	set.Float64VarP(&f.volume.rate, "qps", "q", 0, "")
	set.DurationVarP(&f.volume.duration, "duration", "z", 0, "")
	set.StringVar(&f.call, "call", strings.TrimPrefix(healthMethod, "/"), "")
	set.StringVarP(&f.data, "data", "d", "", "")
	set.StringVarP(&f.metadata, "metadata", "m", "", "")
	set.StringVar(&f.authority, "authority", "", "")
	set.StringVar(&f.serverName, "cname", "", "")
	set.BoolVar(&f.insecure, "insecure", false, "")
	set.BoolVar(&f.skipTLS, "skipTLS", false, "")
	set.DurationVarP(&f.timeout, "timeout", "t", 20*time.Second, "")
	set.DurationVar(&f.connectTimeout, "connect-timeout", 10*time.Second, "")
	set.DurationVar(&f.keepalive, "keepalive", 0, "")
	set.StringVar(&f.proto, "proto", "", "")
	set.StringVar(&f.protoset, "protoset", "", "")
	set.StringSliceVarP(&f.imports, "import-paths", "i", nil, "")
	set.StringVar(&f.name, "name", "", "")
	set.StringVarP(&f.format, "format", "O", "summary", "")
	set.StringVarP(&f.output, "output", "o", "", "")
	set.UintVar(&f.connections, "connections", 1, "")
	set.UintVar(&f.cpus, "cpus", uint(runtime.NumCPU()), "")
	if err := set.Parse(args); err != nil {
		return nil, fmt.Errorf("ghz: %w: use an image with ghz itself, if you need that", err)
	}
	switch {
	case set.NArg() != 1:
		return nil, errors.New("ghz: give one address, host:port")
	case f.format != "summary" || f.output != "":
		return nil, errors.New("ghz: only the summary is built in, without a file: use an image with ghz itself")
	case !strings.Contains(f.call, ".") && !strings.Contains(f.call, "/"):
		return nil, errors.New("ghz: --call is written as package.Service/Method")
	}
	f.address = set.Arg(0)
	if f.volume.duration == 0 && !set.Changed("concurrency") {
		f.volume.workers = min(f.volume.workers, max(f.volume.requests, 1))
	}
	if err := f.volume.validate(); err != nil {
		return nil, fmt.Errorf("ghz: %w", err)
	}
	return &f, nil
}

// path is that of the call: package.Service/Method, or with a dot in the place of the slash.
func (f *ghzFlags) path() string {
	call := strings.TrimPrefix(f.call, "/")
	if i := strings.LastIndexByte(call, '.'); !strings.Contains(call, "/") && i >= 0 {
		call = call[:i] + "/" + call[i+1:]
	}
	return "/" + call
}

// ghz makes gRPC calls. It prints what came and is content with any answer, as the tool is.
func ghz(ctx context.Context, o Options, args []string) error {
	f, err := readGhz(args)
	if err != nil {
		return err
	}
	p, err := newPeer(o, f.address, security{plaintext: f.insecure, skipVerify: f.skipTLS, serverName: f.serverName})
	if err != nil {
		return fmt.Errorf("ghz: %w", err)
	}
	defer p.close()
	p.authority = f.authority
	if f.metadata != "" {
		pairs := map[string]string{}
		if json.Unmarshal([]byte(f.metadata), &pairs) != nil {
			return errors.New(`ghz: metadata (-m) are written as '{"name":"value"}'`)
		}
		for name, value := range pairs {
			p.metadata.Set(name, value)
		}
	}
	timed := func(ctx context.Context) (context.Context, context.CancelFunc) {
		if f.timeout <= 0 {
			return ctx, func() {}
		}
		return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	}
	path := f.path()
	sent, err := f.messages(ctx, p, path, timed)
	if err != nil {
		return fmt.Errorf("ghz: %w", err)
	}
	var turn atomic.Uint64
	send(ctx, o, f.volume, func(ctx context.Context) (string, error) {
		ctx, cancel := timed(ctx)
		defer cancel()
		_, code, err := p.call(ctx, path, sent[(turn.Add(1)-1)%uint64(len(sent))])
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return codeName(code), err
	}).show(o.Out)
	return context.Cause(ctx)
}

// messages are what is sent, in turn.
func (f *ghzFlags) messages(ctx context.Context, p *peer, path string, timed func(context.Context) (context.Context, context.CancelFunc)) ([][]byte, error) {
	ctx, cancel := timed(ctx)
	defer cancel()
	return messages(ctx, p, path, f.data, f.protoset)
}
