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

// readGhz parses the command line. It accepts the flags of ghz for the call, the address and the amount of load. Message
// types are read from a set of descriptors or requested from the server; --proto is ignored, because it would need a
// compiler.
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
		return nil, fmt.Errorf("ghz: %w: use an image with ghz itself for this flag", err)
	}
	switch {
	case set.NArg() != 1:
		return nil, errors.New("ghz: give one address, host:port")
	case f.format != "summary" || f.output != "":
		return nil, errors.New("ghz: only the summary is built in, and no output file: use an image with ghz itself")
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

// path returns the HTTP path of the call. --call may have the form package.Service/Method or package.Service.Method.
func (f *ghzFlags) path() string {
	call := strings.TrimPrefix(f.call, "/")
	if i := strings.LastIndexByte(call, '.'); !strings.Contains(call, "/") && i >= 0 {
		call = call[:i] + "/" + call[i+1:]
	}
	return "/" + call
}

// ghz sends gRPC calls and prints a report. Like the tool, it succeeds whatever the server answers.
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
	withTimeout := func(ctx context.Context) (context.Context, context.CancelFunc) {
		if f.timeout <= 0 {
			return ctx, func() {}
		}
		return context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("no answer within %s", f.timeout))
	}
	path := f.path()
	messages, err := f.messages(ctx, conn, path, withTimeout)
	if err != nil {
		return fmt.Errorf("ghz: %w", err)
	}
	var next atomic.Uint64
	generateLoad(ctx, o, f.volume, func(ctx context.Context) (string, error) {
		ctx, cancel := withTimeout(ctx)
		defer cancel()
		// The response is discarded: any message decodes as an empty one with unknown fields.
		err := conn.Invoke(ctx, path, messages[(next.Add(1)-1)%uint64(len(messages))], &emptypb.Empty{}, grpc.MaxCallRecvMsgSize(maxResponse(f.volume.workers)))
		code, err := classify(ctx, err)
		return code.String(), err
	}).write(o.Out)
	return context.Cause(ctx)
}

// maxResponse is the maximum size of a response, so that those of all workers together fit into the memory of the load tester.
func maxResponse(workers int) int { return min(4<<20, 128<<20/workers) }

// messages returns the request messages, which are sent round-robin.
func (f *ghzFlags) messages(
	ctx context.Context, conn *grpc.ClientConn, path string, withTimeout func(context.Context) (context.Context, context.CancelFunc),
) ([]proto.Message, error) {
	ctx, cancel := withTimeout(ctx)
	defer cancel()
	return readMessages(ctx, conn, path, f.data, f.protoset)
}
