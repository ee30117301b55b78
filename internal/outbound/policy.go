package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Policy says which addresses may be reached. Its zero value is the default: everything but loopback, link-local,
// unspecified and multicast addresses and the metadata services of clouds. Private ranges stay open, because the
// hooks and metrics servers of a cluster live there.
type Policy struct {
	// AllowLoopback opens 127.0.0.0/8 and ::1, for tests and for servers beside the controller.
	AllowLoopback bool
	// Allowed, when not empty, are the only ranges that may be reached. They open nothing that is refused by default.
	Allowed []netip.Prefix
	// Denied are further ranges that may not be reached.
	Denied []netip.Prefix
}

// RefusedError says that a destination is closed by the policy. Trying again does not help.
type RefusedError struct {
	// Destination is a name or an address, without port.
	Destination string
	// Reason says what kind of destination it is, such as "a link-local address".
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s, which may not be called: use another address", e.Destination, e.Reason)
}

// Metadata services that do not live on link-local addresses: AWS over IPv6, Google over IPv6, Alibaba, Oracle, Azure.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),
	netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("168.63.129.16"),
}

// The names are refused as well as the addresses: behind a proxy, nobody here sees what they resolve to.
var metadataNames = []string{
	"metadata",
	"metadata.google.internal",
	"metadata.goog",
	"instance-data",
	"instance-data.ec2.internal",
	"metadata.azure.internal",
}

// checkName refuses names of metadata services, and addresses that are written in a URL. The latter counts when a
// proxy stands between; without one the address is checked again when it is dialled.
func (p Policy) checkName(host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if slices.Contains(metadataNames, host) {
		return &RefusedError{Destination: host, Reason: "a metadata service"}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return p.checkAddr(addr)
	}
	if last := host[strings.LastIndex(host, ".")+1:]; last != "" && last[0] >= '0' && last[0] <= '9' {
		// No name ends in a number, but some resolvers and proxies read 2130706433 and 0x7f.1 as addresses.
		return &RefusedError{Destination: host, Reason: "an address in an unusual spelling"}
	}
	if !p.AllowLoopback && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return &RefusedError{Destination: host, Reason: "a loopback address"}
	}
	return nil
}

// checkDial is the Control function of a net.Dialer: it sees the address after name resolution, right before the
// connection is made, so that a name cannot change its address between check and use.
func (p Policy) checkDial(network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return &RefusedError{Destination: address, Reason: "not reached by TCP"}
	}
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{Destination: address, Reason: "not an IP address"}
	}
	return p.checkAddr(target.Addr())
}

func (p Policy) checkAddr(addr netip.Addr) error {
	for _, a := range meant(addr) {
		if reason := p.refuses(a); reason != "" {
			return &RefusedError{Destination: addr.String(), Reason: reason}
		}
	}
	return nil
}

func (p Policy) refuses(addr netip.Addr) string {
	covers := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
	switch {
	case addr.IsLoopback() && !p.AllowLoopback:
		return "a loopback address"
	case addr.IsLinkLocalUnicast():
		return "a link-local address"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address"
	case addr.IsMulticast() || addr == broadcast:
		return "a multicast address"
	case slices.Contains(metadataAddresses, addr):
		return "a metadata service"
	case slices.ContainsFunc(p.Denied, covers):
		return "an address in a denied range"
	case len(p.Allowed) > 0 && !slices.ContainsFunc(p.Allowed, covers):
		return "an address outside the allowed ranges"
	default:
		return ""
	}
}

var (
	broadcast   = netip.MustParseAddr("255.255.255.255")
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux takes 0.0.0.0 for itself
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour   = netip.MustParsePrefix("2002::/16")
)

// meant are the addresses that an address stands for: itself, and the IPv4 address that translators would reach
// through it. Without them a link-local address passes in disguise.
func meant(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	out := []netip.Addr{addr}
	bytes := addr.As16()
	switch {
	case nat64.Contains(addr):
		out = append(out, netip.AddrFrom4([4]byte(bytes[12:16])))
	case sixToFour.Contains(addr):
		out = append(out, netip.AddrFrom4([4]byte(bytes[2:6])))
	}
	return out
}

// refused finds the RefusedError in what a client returned.
func refused(err error) *RefusedError {
	if out, ok := errors.AsType[*RefusedError](err); ok {
		return out
	}
	return nil
}

// Dialer is a dialer that makes connections to what the policy leaves open only. It is for load tests, which are no
// calls of Client; everything else goes through that.
func (p Policy) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: p.checkDial}
}
