//go:build linux

package services_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/serin-dev/serin/playground/services"
)

// newResolver returns Go's resolver, which queries the server as programs in pods do.
func newResolver(t *testing.T, table services.Table, transport string) *net.Resolver {
	t.Helper()
	names := &services.Names{}
	names.Set(table)
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- names.ServeUDP(udp) }()
	go func() { ended <- names.ServeTCP(t.Context(), tcp) }()
	t.Cleanup(func() {
		if err := errors.Join(udp.Close(), tcp.Close(), <-ended, <-ended); err != nil {
			t.Error(err)
		}
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if transport == "tcp" || network == "tcp" {
			return new(net.Dialer).DialContext(ctx, "tcp", tcp.Addr().String())
		}
		return new(net.Dialer).DialContext(ctx, "udp", udp.LocalAddr().String())
	}}
}

func TestNamesAreResolvedInAllForms(t *testing.T) {
	table := services.Table{"cart.shop": {netip.MustParseAddr("10.96.0.7")}, "empty.shop": nil}
	for _, transport := range []string{"udp", "tcp"} {
		r := newResolver(t, table, transport)
		for _, name := range []string{"cart.shop", "cart.shop.svc", "cart.shop.svc.cluster.local", "CART.shop.svc.cluster.local."} {
			got, err := r.LookupHost(t.Context(), name)
			if err != nil || !slices.Equal(got, []string{"10.96.0.7"}) {
				t.Errorf("%s over %s: got %v, %v", name, transport, got, err)
			}
		}
		for _, name := range []string{"cart.other.svc.cluster.local.", "example.com.", "empty.shop."} {
			got, err := r.LookupHost(t.Context(), name)
			var dnsErr *net.DNSError
			if !errors.As(err, &dnsErr) || !dnsErr.IsNotFound {
				t.Errorf("%s over %s: got %v, %v, want a not-found error", name, transport, got, err)
			}
		}
	}
}

func TestLongAnswersAreSentOverTCP(t *testing.T) {
	var many []netip.Addr
	for address := netip.MustParseAddr("10.244.0.2"); len(many) < 100; address = address.Next() {
		many = append(many, address)
	}
	got, err := newResolver(t, services.Table{"all.shop": many}, "udp").LookupHost(t.Context(), "all.shop.svc.cluster.local.")
	if err != nil || len(got) != len(many) {
		t.Errorf("got %d addresses, %v, want %d", len(got), err, len(many))
	}
}
