package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/dashboard"
)

// The ways in which viewers of the dashboard sign in.
const (
	authLink  = "link"
	authToken = "token"
)

// shutdownTimeout is the time for which a dashboard that ends waits for its responses.
const shutdownTimeout = 5 * time.Second

// dashboardFlags are the flags of the dashboard.
type dashboardFlags struct {
	listen, auth, tlsCert, tlsKey string
	hosts                         []string
}

func newDashboardCommand(connect connector) *cobra.Command {
	c, flags := commonFlags{connect: connect}, dashboardFlags{}
	cmd := &cobra.Command{
		Use: "dashboard", Short: "Serve a web page that shows releases live", Args: asUsageErrors(cobra.NoArgs),
		Long: `Serves the dashboard until it is interrupted, and prints its link: all releases with what they wait for, and for each one its
gates, checks, pods and history. Commands are sent with your permissions; a command for which you have none is disabled.

By default it listens on a loopback address, and the link works once: it signs your browser in as the user of the kubeconfig.
With --auth token, viewers sign in with a bearer token for the API server, and the program itself needs no permissions; other
addresses than loopback require TLS.

` + exitCodesHelp,
		Example: "  serin dashboard\n  serin dashboard -n shop --listen 127.0.0.1:8090\n" +
			"  serin dashboard --auth token --listen :8443 --tls-cert tls.crt --tls-key tls.key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.validate(); err != nil {
				return err
			}
			options, err := c.dashboardOptions(cmd, flags)
			if err != nil {
				return err
			}
			return flags.serve(cmd, options)
		},
	}
	c.register(cmd, false)
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().StringVar(&flags.listen, "listen", "127.0.0.1:0", "address and port; port 0 selects a free port")
	cmd.Flags().StringVar(&flags.auth, "auth", authLink, "how viewers sign in: link (one viewer, as you) or token (each with a bearer token)")
	cmd.Flags().StringVar(&flags.tlsCert, "tls-cert", "", "file with the certificate")
	cmd.Flags().StringVar(&flags.tlsKey, "tls-key", "", "file with the private key of the certificate")
	cmd.Flags().StringSliceVar(&flags.hosts, "host", nil, "names, with the port if it is not 443, by which browsers reach the dashboard; default: the loopback addresses, or all with TLS")
	completeFlag(cmd, "auth", completeWords([]string{authLink, authToken}))
	return cmd
}

// validate checks the combination of flags, before anything is read.
func (f *dashboardFlags) validate() error {
	host, _, err := net.SplitHostPort(f.listen)
	switch {
	case err != nil:
		return withExitCode(ExitUsage, fmt.Errorf("--listen %q is not an address with a port: use for example 127.0.0.1:8090", f.listen))
	case f.auth != authLink && f.auth != authToken:
		return withExitCode(ExitUsage, fmt.Errorf("--auth %q is invalid: use %s or %s", f.auth, authLink, authToken))
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return withExitCode(ExitUsage, errors.New("--tls-cert and --tls-key require each other"))
	case isLoopback(host):
		return nil
	case f.auth == authLink:
		return withExitCode(ExitUsage, fmt.Errorf("--listen %s is reachable by others, who could act with your permissions: use a loopback address, or --auth token", f.listen))
	case f.tlsCert == "":
		return withExitCode(ExitUsage, fmt.Errorf("--listen %s would receive tokens without encryption: set --tls-cert and --tls-key, or use a loopback address", f.listen))
	default:
		return nil
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// dashboardOptions returns the options that do not depend on the address.
func (c *commonFlags) dashboardOptions(cmd *cobra.Command, flags dashboardFlags) (dashboard.Options, error) {
	version, _ := BuildInfo()
	options := dashboard.Options{Clock: clock.RealClock{}, Version: version, Cluster: c.connection.overrides.CurrentContext}
	namespace := ""
	if flags.auth == authToken {
		config, current, err := c.connection.load()
		if err != nil {
			return options, err
		}
		options.Connect, namespace = connectWithToken(config), current
	} else {
		session, current, err := c.connect(&c.connection, c.controllerFlags)
		if err != nil {
			return options, err
		}
		options.Session, namespace = session, current
	}
	if options.Cluster == "" {
		options.Cluster = c.connection.currentContext()
	}
	if !cmd.Flags().Changed("namespace") {
		options.Selections = append(options.Selections, cluster.Selection{})
	}
	options.Selections = append(options.Selections, cluster.Selection{Namespace: namespace})
	return options, nil
}

// connectWithToken returns a function that connects to the same cluster as another user. Nothing of the own identity remains.
func connectWithToken(config *rest.Config) func(token string) (*cluster.Session, error) {
	return func(token string) (*cluster.Session, error) {
		other := rest.AnonymousClientConfig(config)
		other.BearerToken = token
		return cluster.Connect(other, clock.RealClock{})
	}
}

// certificate returns a function that reads the certificate for each connection, because it is renewed while the dashboard runs. While
// the files do not belong together, connections get the previous one.
func (f *dashboardFlags) certificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	first, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if renewed, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey); err == nil {
			last.Store(&renewed)
		}
		return last.Load(), nil
	}, nil
}

// serve serves the dashboard until the context is done.
func (f *dashboardFlags) serve(cmd *cobra.Command, options dashboard.Options) error {
	listener, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", f.listen)
	if err != nil {
		return withExitCode(ExitUsage, fmt.Errorf("listen on %s: %w: choose another address with --listen", f.listen, err))
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	options.Hosts = f.hosts
	if len(options.Hosts) == 0 && isLoopback(host) {
		for _, name := range []string{"127.0.0.1", "localhost", "::1"} {
			options.Hosts = append(options.Hosts, net.JoinHostPort(name, port))
		}
		options.Hosts = slices.Compact(append([]string{listener.Addr().String()}, options.Hosts...))
	}
	handler, err := dashboard.New(cmd.Context(), options)
	if err != nil {
		return err
	}
	defer handler.Close()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	scheme := "http"
	if f.tlsCert != "" {
		scheme = "https"
		getCertificate, err := f.certificate()
		if err != nil {
			return withExitCode(ExitUsage, err)
		}
		server.TLSConfig = &tls.Config{GetCertificate: getCertificate, MinVersion: tls.VersionTLS12}
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s://%s%s\n", scheme, listener.Addr(), handler.Link()); err != nil {
		return err
	}
	if handler.Link() != "" {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "Open this link, which works once. Press Ctrl+C to stop.")
	}
	stopped := context.AfterFunc(cmd.Context(), func() {
		handler.Close() // streams would never end
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	defer stopped()
	if f.tlsCert != "" {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the dashboard: %w", err)
}
