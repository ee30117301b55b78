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
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
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
	set.StringVar(&f.call, "call", strings.TrimPrefix(healthv1.Health_Check_FullMethodName, "/"), "")
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
	conn, err := connect(o, f.address, security{plaintext: f.insecure, skipVerify: f.skipTLS, serverName: f.serverName, authority: f.authority})
	if err != nil {
		return fmt.Errorf("ghz: %w", err)
	}
	defer conn.Close()
	if f.metadata != "" {
		pairs := map[string]string{}
		if json.Unmarshal([]byte(f.metadata), &pairs) != nil {
			return errors.New(`ghz: metadata (-m) are written as '{"name":"value"}'`)
		}
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(pairs))
	}
	timed := func(ctx context.Context) (context.Context, context.CancelFunc) {
		if f.timeout <= 0 {
			return ctx, func() {}
		}
		return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	}
	path := f.path()
	messages, err := f.messages(ctx, conn, path, timed)
	if err != nil {
		return fmt.Errorf("ghz: %w", err)
	}
	var turn atomic.Uint64
	send(ctx, o, f.volume, func(ctx context.Context) (string, error) {
		ctx, cancel := timed(ctx)
		defer cancel()
		// The response is discarded: any message decodes as an empty one with unknown fields.
		err := conn.Invoke(ctx, path, messages[(turn.Add(1)-1)%uint64(len(messages))], &emptypb.Empty{})
		code, err := classify(ctx, err)
		return code.String(), err
	}).show(o.Out)
	return context.Cause(ctx)
}

// messages are the requests, which are sent in turn.
func (f *ghzFlags) messages(
	ctx context.Context, conn *grpc.ClientConn, path string, timed func(context.Context) (context.Context, context.CancelFunc),
) ([]proto.Message, error) {
	ctx, cancel := timed(ctx)
	defer cancel()
	return readMessages(ctx, conn, path, f.data, f.protoset)
}
