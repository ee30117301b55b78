package outbound

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// startProxy starts a proxy on loopback, like a sidecar. It returns its address and the requests that it received.
func startProxy(t *testing.T) (address *url.URL, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { *asked = append(*asked, r.RequestURI) }))
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address, asked
}

// TestNamesAreResolvedAndCheckedBeforeAProxyIsUsed: a proxy resolves names itself, so that the dialled address is not
// known.
func TestNamesAreResolvedAndCheckedBeforeAProxyIsUsed(t *testing.T) {
	proxy, asked := startProxy(t)
	answers := map[string][]netip.Addr{
		"chat.example":  {netip.MustParseAddr("93.184.216.34")},
		"local.example": {netip.MustParseAddr("127.0.0.1")},
		"cloud.example": {netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("169.254.169.254")},
	}
	through := func(policy Policy) *Client {
		p := newPath(policy)
		p.environmentProxy = func(*http.Request) (*url.URL, error) { return proxy, nil }
		p.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			if known, ok := answers[host]; ok {
				return known, nil
			}
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		c := newClient(p)
		t.Cleanup(c.Close)
		return c
	}
	const open, refused, unresolved = "open", "refused", "unresolved"
	for _, tt := range []struct {
		host   string
		policy Policy
		want   string
	}{
		{"chat.example", Policy{}, open},
		{"local.example", Policy{}, refused},
		{"local.example", Policy{AllowLoopback: true}, open},
		{"cloud.example", Policy{}, refused},
		{"cloud.example", Policy{AllowLoopback: true}, refused},
		{"unknown.example", Policy{}, unresolved},
		{"unknown.example", Policy{ProxyResolves: true}, open},
		{"metadata.google.internal", Policy{ProxyResolves: true}, refused},
		{"169.254.169.254", Policy{ProxyResolves: true}, refused},
		{"93.184.216.34", Policy{}, open},
	} {
		*asked = nil
		_, err := through(tt.policy).Do(t.Context(), get("http://"+tt.host+"/hook"))
		var denied *RefusedError
		var away *UnreachableError
		got := open
		switch {
		case errors.As(err, &denied):
			got = refused
		case errors.As(err, &away) && strings.Contains(err.Error(), "cannot be resolved here"):
			got = unresolved
		case err != nil:
			got = err.Error()
		}
		if got != tt.want || (len(*asked) > 0) != (tt.want == open) {
			t.Errorf("%s under %+v: %s, and the proxy received %q; want %s", tt.host, tt.policy, got, *asked, tt.want)
		}
	}
}

// TestOnlyTheProxyOfTheEnvironmentMayBeOnLoopback: the administrator chose its address. The same address is refused as a
// proxy or server of a user.
func TestOnlyTheProxyOfTheEnvironmentMayBeOnLoopback(t *testing.T) {
	proxy, asked := startProxy(t)
	p := newPath(Policy{ProxyResolves: true})
	p.environmentProxy = func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() == "chat.example" {
			return proxy, nil
		}
		return nil, nil
	}
	c := newClient(p)
	t.Cleanup(c.Close)
	named := get("http://other.example/")
	named.Proxy = proxy.String()
	var refused *RefusedError
	if _, err := c.Do(t.Context(), named); !errors.As(err, &refused) || len(*asked) > 0 {
		t.Errorf("proxy of a user on loopback: %v", err)
	}
	if _, err := c.Do(t.Context(), get(proxy.String())); !errors.As(err, &refused) || len(*asked) > 0 {
		t.Errorf("the proxy as a server: %v", err)
	}
	if _, err := c.Do(t.Context(), get("http://chat.example/")); err != nil || len(*asked) != 1 {
		t.Errorf("through the proxy of the environment: %v, it received %q", err, *asked)
	}
}
