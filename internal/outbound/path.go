package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
)

// path is how a transport reaches what users name: which proxy it takes, and where it may connect.
//
// Without a proxy the address is checked when it is dialled. A proxy resolves names by itself, so that nobody here sees
// what it calls: the name is resolved and checked before it is asked. The proxy of the environment was chosen by the
// administrator and may be on the controller's own host; one that a user names is held to the policy as any server.
type path struct {
	policy Policy
	// environment is the proxy of the process for a request; nil: none.
	environment func(*http.Request) (*url.URL, error)
	resolve     func(ctx context.Context, host string) ([]netip.Addr, error)
}

func newPath(policy Policy) *path {
	return &path{
		policy: policy, environment: http.ProxyFromEnvironment,
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

// way is what is known of the way of one request.
type way struct {
	// named is the proxy that a user named; nil: that of the environment, if there is one.
	named *url.URL
	// configured is true while the way goes through the proxy of the environment.
	configured atomic.Bool
}

type wayKey struct{}

// onWay begins a request. Its context is also that of the connections that are made for it.
func onWay(ctx context.Context, named *url.URL) context.Context {
	return context.WithValue(ctx, wayKey{}, &way{named: named})
}

// proxy is the Proxy function of a transport. It is asked once for each request, redirects included.
func (p *path) proxy(r *http.Request) (*url.URL, error) {
	w, _ := r.Context().Value(wayKey{}).(*way)
	proxy, configured := (*url.URL)(nil), false
	if w != nil && w.named != nil {
		proxy = w.named
	} else {
		var err error
		if proxy, err = p.environment(r); err != nil {
			return nil, errors.New("the proxy of the environment is not a URL such as http://proxy:3128: correct HTTP_PROXY and HTTPS_PROXY of Serin")
		}
		configured = proxy != nil
	}
	if w != nil {
		w.configured.Store(configured)
	}
	if proxy == nil {
		return nil, nil
	}
	return proxy, p.checkResolved(r.Context(), r.URL.Hostname())
}

// checkResolved refuses a host that a proxy would be asked for, unless all its addresses are open.
func (p *path) checkResolved(ctx context.Context, host string) error {
	if err := p.policy.checkName(host); err != nil || p.policy.ProxyResolves {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // checked with the name
	}
	addresses, err := p.resolve(ctx, host)
	if err != nil || len(addresses) == 0 {
		return Unreachable(fmt.Errorf("%s cannot be resolved here, and what a proxy would call is not known: let Serin resolve it, "+
			"or start Serin with -proxy-resolves-names if the proxy itself refuses internal addresses", host))
	}
	for _, address := range addresses {
		if refused := p.policy.checkAddr(address); refused != nil {
			return refused
		}
	}
	return nil
}

// dial is the DialContext function of a transport.
func (p *path) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := p.policy.Dialer()
	if w, _ := ctx.Value(wayKey{}).(*way); w != nil && w.configured.Load() {
		dialer.Control = nil // the administrator chose this address
	}
	return dialer.DialContext(ctx, network, address)
}

// Guard holds a transport of a library to the policy: its connections, the proxy of the environment, and one that named
// returns, where that is not nil. The transport must have Proxy and Dial of what Guard returns, and its requests must pass
// through Wrap.
func (p Policy) Guard(named *url.URL) Guard { return Guard{path: newPath(p), named: named} }

// Guard is what Policy.Guard returns.
type Guard struct {
	path  *path
	named *url.URL
}

// Proxy is for http.Transport.
func (g Guard) Proxy(r *http.Request) (*url.URL, error) { return g.path.proxy(r) }

// Dial is for http.Transport.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.path.dial(ctx, network, address)
}

// Wrap begins each request of a transport.
func (g Guard) Wrap(next http.RoundTripper) http.RoundTripper { return wrapped{next, g.named} }

type wrapped struct {
	next  http.RoundTripper
	named *url.URL
}

// RoundTrip is http.RoundTripper.
func (w wrapped) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.next.RoundTrip(r.WithContext(onWay(r.Context(), w.named)))
}

// WrappedRoundTripper lets libraries find the transport.
func (w wrapped) WrappedRoundTripper() http.RoundTripper { return w.next }
