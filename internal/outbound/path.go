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

// connectionPath chooses the proxy of a request and restricts the connections of a transport.
//
// Without a proxy, the address is checked when it is dialled. A proxy resolves names itself, so the name is resolved and
// checked here before the request is sent to the proxy. The proxy of the environment is chosen by the administrator and may
// be on the controller's own host; the policy applies to a proxy of a user as to any server.
type connectionPath struct {
	policy Policy
	// environmentProxy returns the proxy of the process for a request; nil: none.
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

// requestRoute is the state of the proxy choice of one request.
type requestRoute struct {
	// namedProxy is the proxy of a user; nil: the proxy of the environment, if there is one.
	namedProxy *url.URL
	// usesEnvironmentProxy reports whether the request is sent through the proxy of the environment.
	usesEnvironmentProxy atomic.Bool
}

type requestRouteKey struct{}

// withRequestRoute returns the context of a request, which is also that of the connections that are made for it.
func withRequestRoute(ctx context.Context, named *url.URL) context.Context {
	return context.WithValue(ctx, requestRouteKey{}, &requestRoute{namedProxy: named})
}

// chooseProxy is the Proxy function of a transport. It is called once for each request, including redirects.
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

// checkResolved refuses a host that a proxy would call, unless all its addresses are allowed.
func (p *connectionPath) checkResolved(ctx context.Context, host string) error {
	if err := p.policy.checkName(host); err != nil || p.policy.ProxyResolves {
		return err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil // checked with the name
	}
	addresses, err := p.resolve(ctx, host)
	if err != nil || len(addresses) == 0 {
		return NewUnreachableError(fmt.Errorf("%s cannot be resolved here, so the address that a proxy would call is not known: "+
			"let Serin resolve it, or start Serin with -proxy-resolves-names if the proxy itself refuses internal addresses", host))
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

// Guard returns functions that apply the policy to the transport of a library: to its connections and its proxy, which is
// named or, if that is nil, the proxy of the environment. The transport must use Proxy and Dial of the result, and be wrapped
// by Wrap.
func (p Policy) Guard(named *url.URL) Guard { return Guard{path: newPath(p), named: named} }

// Guard applies a Policy to a transport; see Policy.Guard.
type Guard struct {
	path  *connectionPath
	named *url.URL
}

// Proxy is the function Proxy of an http.Transport.
func (g Guard) Proxy(r *http.Request) (*url.URL, error) { return g.path.chooseProxy(r) }

// Dial is the function DialContext of an http.Transport.
func (g Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return g.path.dial(ctx, network, address)
}

// Wrap returns a transport that prepares each request for Proxy and Dial.
func (g Guard) Wrap(next http.RoundTripper) http.RoundTripper { return guardedTransport{next, g.named} }

type guardedTransport struct {
	next       http.RoundTripper
	namedProxy *url.URL
}

// RoundTrip implements http.RoundTripper.
func (w guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.next.RoundTrip(r.WithContext(withRequestRoute(r.Context(), w.namedProxy)))
}

// WrappedRoundTripper returns the wrapped transport, which libraries unwrap.
func (w guardedTransport) WrappedRoundTripper() http.RoundTripper { return w.next }
