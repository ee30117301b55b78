package load

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthProbe checks the health of a gRPC server once. It returns an error for any status other than SERVING.
func healthProbe(ctx context.Context, o Options, args []string) error {
	var s security
	var address, service string
	var useTLS bool
	var connectTimeout, callTimeout time.Duration
	set := flag.NewFlagSet("grpc_health_probe", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&address, "addr", "", "")
	set.StringVar(&service, "service", "", "")
	set.BoolVar(&useTLS, "tls", false, "")
	set.BoolVar(&s.skipVerify, "tls-no-verify", false, "")
	set.StringVar(&s.serverName, "tls-server-name", "", "")
	set.DurationVar(&connectTimeout, "connect-timeout", time.Second, "")
	set.DurationVar(&callTimeout, "rpc-timeout", time.Second, "")
	if err := set.Parse(args); err != nil {
		return fmt.Errorf("grpc_health_probe: %w", err)
	}
	if set.NArg() > 0 || connectTimeout <= 0 || callTimeout <= 0 {
		return errors.New("grpc_health_probe: give -addr=host:port, and timeouts above zero")
	}
	s.plaintext = !useTLS
	conn, err := connect(o, address, s)
	if err != nil {
		return fmt.Errorf("grpc_health_probe: %w", err)
	}
	defer conn.Close()
	timeout := connectTimeout + callTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	response, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	code, err := classify(ctx, err)
	switch {
	case err != nil:
		return err
	case code != codes.OK:
		return fmt.Errorf("the server answered %s", code)
	}
	_, _ = fmt.Fprintf(o.Out, "status: %s\n", response.GetStatus())
	if response.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		return fmt.Errorf("service unhealthy: %s", response.GetStatus())
	}
	return nil
}
