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

// connectionPath is how a transport reaches what users name: which proxy it takes, and where it may connect.
//
// Without a proxy the address is checked when it is dialled. A proxy resolves names by itself, so that nobody here sees
// what it calls: the name is resolved and checked before it is asked. The proxy of the environment was chosen by the
// administrator and may be on the controller's own host; one that a user names is held to the policy as any server.
type connectionPath struct {
	policy Policy
	// environmentProxy is the proxy of the process for a request; nil: none.
	environmentProxy func(*http.Request) (*url.URL, error)
	resolve          func(ctx context.Context, host string) ([]netip.Addr, error)
}

func newPath(policy Policy) *connectionPath {
	return &connectionPath{
		policy: policy, environmentProxy: http.ProxyFromEnvironment,
		resolve: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
}

// requestRoute is what is known of the way of one request.
type requestRoute struct {
	// namedProxy is the proxy that a user named; nil: that of the environment, if there is one.
	namedProxy *url.URL
	// usesEnvironmentProxy is true while the way goes through the proxy of the environment.
	usesEnvironmentProxy atomic.Bool
}

type requestRouteKey struct{}

// withRequestRoute begins a request. Its context is also that of the connections that are made for it.
func withRequestRoute(ctx context.Context, named *url.URL) context.Context {
	return context.WithValue(ctx, requestRouteKey{}, &requestRoute{namedProxy: named})
}

// chooseProxy is the Proxy function of a transport. It is asked once for each request, redirects included.
func (p *connectionPath) chooseProxy(r *http.Request) (*url.URL, error) {
	w, _ := r.Context().Value(requestRouteKey{}).(*requestRoute)
	proxy, configured := (*url.URL)(nil), false
	if w != nil && w.namedProxy != nil {
		proxy = w.namedProxy
	} else {
		var err error
		if proxy, err = p.environmentProxy(r); err != nil {
			return nil, errors.New("the proxy of the environment is not a URL such as http://proxy:3128: correct HTTP_PROXY and HTTPS_PROXY of Serin")
		}
		configured = proxy != nil
	}
	if w != nil {
		w.usesEnvironmentProxy.Store(configured)
	}
	if proxy == nil {
		return nil, nil
	}
	return proxy, p.checkResolved(r.Context(), r.URL.Hostname())
}

// checkResolved refuses a host that a proxy would be asked for, unless all its addresses are open.
func (p *connectionPath) checkResolved(ctx context.Context, host string) error {
	if err := p.policy.checkName(host); err != nil || p.policy.ProxyResolves {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // checked with the name
	}
	addresses, err := p.resolve(ctx, host)
	if err != nil || len(addresses) == 0 {
		return NewUnreachableError(fmt.Errorf("%s cannot be resolved here, and what a proxy would call is not known: let Serin resolve it, "+
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
func (p *connectionPath) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := p.policy.Dialer()
	if w, _ := ctx.Value(requestRouteKey{}).(*requestRoute); w != nil && w.usesEnvironmentProxy.Load() {
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
	path  *connectionPath
	named *url.URL
}

// Proxy is for http.Transport.
func (g Guard) Proxy(r *http.Request) (*url.URL, error) { return g.path.chooseProxy(r) }

// Dial is for http.Transport.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.path.dial(ctx, network, address)
}

// Wrap begins each request of a transport.
func (g Guard) Wrap(next http.RoundTripper) http.RoundTripper { return guardedTransport{next, g.named} }

type guardedTransport struct {
	next       http.RoundTripper
	namedProxy *url.URL
}

// RoundTrip is http.RoundTripper.
func (w guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.next.RoundTrip(r.WithContext(withRequestRoute(r.Context(), w.namedProxy)))
}

// WrappedRoundTripper lets libraries find the transport.
func (w guardedTransport) WrappedRoundTripper() http.RoundTripper { return w.next }
