//go:build linux

package network

import (
	"net/netip"
	"strings"
	"testing"
)

func TestReleasedAddressesAreReusedAsLateAsPossible(t *testing.T) {
	n := &Network{lastAddress: NodeAddress, used: map[netip.Addr]bool{NodeAddress: true}}
	allocate := func() netip.Addr {
		t.Helper()
		address, err := n.allocate()
		if err != nil {
			t.Fatal(err)
		}
		return address
	}
	first := allocate()
	if first != netip.MustParseAddr("10.244.0.2") {
		t.Errorf("the first pod has %s", first)
	}
	n.release(first)
	if second := allocate(); second == first {
		t.Errorf("the second pod has %s again", second)
	}
	// The remaining addresses: 65536 without those of the network and the node, the broadcast address, and the one in use.
	for range 1<<16 - 4 {
		if address := allocate(); !PodRange.Contains(address) || address == NodeAddress {
			t.Fatalf("a pod has %s", address)
		}
	}
	if address, err := n.allocate(); err == nil {
		t.Errorf("all addresses are in use, but a pod has %s", address)
	}
	n.release(first)
	if address := allocate(); address != first {
		t.Errorf("the only free address is %s, a pod has %s", first, address)
	}
}

func TestResolvConfSearchesTheNamespaceOfThePodFirst(t *testing.T) {
	if got := ResolvConf("shop"); !strings.Contains(got, "\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\n") {
		t.Errorf("in a namespace: %s", got)
	}
	if got := ResolvConf(""); !strings.Contains(got, "\nsearch svc.cluster.local cluster.local\n") {
		t.Errorf("outside pods: %s", got)
	}
}
