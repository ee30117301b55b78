package load

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// security contains the TLS settings of a connection. authority is the name of the server, if it differs from the address.
type security struct {
	plaintext, skipVerify bool
	serverName, authority string
}

// connect returns a connection to a gRPC server, which is established by the first call. The dialer resolves the name,
// so that the policy applies to the resulting addresses.
func connect(o Options, address string, s security) (*grpc.ClientConn, error) {
	address = strings.TrimPrefix(address, "dns:///")
	base, err := url.Parse("https://" + address)
	if err != nil || base.Hostname() == "" || base.Port() == "" || base.Path != "" || base.User != nil || base.RawQuery != "" {
		return nil, errors.New("the address of a gRPC server is written as host:port")
	}
	transport := insecure.NewCredentials()
	if !s.plaintext {
		transport = credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: s.serverName,
			InsecureSkipVerify: s.skipVerify, //nolint:gosec // the user sets a flag to skip verification
		})
	}
	dialer := o.Policy.Dialer()
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithUserAgent("serin"), grpc.WithNoProxy(), grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
	}
	if s.authority != "" {
		options = append(options, grpc.WithAuthority(s.authority))
	}
	return grpc.NewClient("passthrough:///"+address, options...)
}

// classify returns the status of a call, or an error if the server did not respond.
func classify(ctx context.Context, err error) (code codes.Code, failure error) {
	result := status.Convert(err)
	switch {
	case err != nil && ctx.Err() != nil:
		return result.Code(), context.Cause(ctx)
	case result.Code() == codes.Unavailable:
		return result.Code(), errors.New(result.Message())
	default:
		return result.Code(), nil
	}
}
