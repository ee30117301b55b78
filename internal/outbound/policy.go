package outbound

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Policy restricts the addresses that may be called. Its zero value is the default: all addresses except loopback,
// link-local, unspecified and multicast addresses and the metadata services of clouds. Private ranges are allowed, because
// the webhooks and metrics servers of a cluster have such addresses.
type Policy struct {
	// AllowLoopback allows 127.0.0.0/8 and ::1, for tests and for servers in the controller's pod.
	AllowLoopback bool
	// Allowed, if not empty, are the only ranges that may be called. Addresses that the default refuses remain refused.
	Allowed []netip.Prefix
	// Denied are further ranges that may not be called.
	Denied []netip.Prefix
	// ProxyResolves lets a proxy decide which addresses a name may have. Otherwise, a name that is sent to a proxy must
	// resolve to allowed addresses here too.
	ProxyResolves bool
}

// RefusedError reports that the policy refuses a destination. Retrying does not help.
type RefusedError struct {
	// Destination is a name or an address, without port.
	Destination string
	// Reason is the kind of the destination, such as "a link-local address".
	Reason string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s, which may not be called: use another address", e.Destination, e.Reason)
}

// metadataAddresses are the metadata services that do not have link-local addresses: Google over IPv6, Oracle over IPv6,
// Scaleway over IPv6, Akamai over IPv6, Alibaba, Oracle, Azure.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd20:ce::254"),
	netip.MustParseAddr("fd00:c1::a9fe:a9fe"),
	netip.MustParseAddr("fd00:42::42"),
	netip.MustParseAddr("fd00:a9fe:a9fe::1"),
	netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("168.63.129.16"),
}

// metadataNames are refused in addition to the addresses, because a proxy may resolve them differently.
var metadataNames = []string{
	"metadata",
	"metadata.google.internal",
	"metadata.goog",
	"instance-data",
	"instance-data.ec2.internal",
	"metadata.azure.internal",
}

// checkName refuses names of metadata services, and addresses in a URL. The latter is needed with a proxy; without one, the
// address is checked again when it is dialled.
func (p Policy) checkName(host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if slices.Contains(metadataNames, host) {
		return &RefusedError{Destination: host, Reason: "a metadata service"}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return p.checkAddr(addr)
	}
	if last := host[strings.LastIndex(host, ".")+1:]; last != "" && last[0] >= '0' && last[0] <= '9' {
		// No name ends in a number, but some resolvers and proxies accept 2130706433 and 0x7f.1 as addresses.
		return &RefusedError{Destination: host, Reason: "an address in an unusual spelling"}
	}
	if !p.AllowLoopback && (host == "localhost" || strings.HasSuffix(host, ".localhost")) {
		return &RefusedError{Destination: host, Reason: "a loopback address"}
	}
	return nil
}

// Check refuses a server by its name or address. The addresses to which a name resolves are checked when it is dialled.
func (p Policy) Check(server *url.URL) error { return p.checkName(server.Hostname()) }

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
	for _, a := range embeddedAddresses(addr) {
		if reason := p.refusalReason(a); reason != "" {
			return &RefusedError{Destination: addr.String(), Reason: reason}
		}
	}
	return nil
}

func (p Policy) refusalReason(addr netip.Addr) string {
	covers := func(prefix netip.Prefix) bool { return prefix.Contains(addr) }
	switch {
	case addr.IsLoopback() && !p.AllowLoopback:
		return "a loopback address"
	case addr.IsLinkLocalUnicast():
		return "a link-local address"
	case addr.IsUnspecified() || thisNetwork.Contains(addr):
		return "an unspecified address"
	case localNAT64.Contains(addr):
		return "an address of a local translator to IPv4"
	case addr.IsMulticast() || addr == broadcast:
		return "a multicast address"
	case slices.Contains(metadataAddresses, addr) || awsServices.Contains(addr):
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
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // Linux connects 0.0.0.0 to the local host
	// awsServices contains the metadata service of instances (::254), the credentials of EKS pods (::23), and more.
	awsServices = netip.MustParsePrefix("fd00:ec2::/32")
	// localNAT64 is for translators of one network (RFC 8215). The position of the IPv4 address depends on their
	// configuration, so that it cannot be extracted and checked.
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")

	nat64          = netip.MustParsePrefix("64:ff9b::/96")
	nat64Ranges    = netip.MustParsePrefix("::ffff:0:0:0/96")
	ipv4Compatible = netip.MustParsePrefix("::/96")
	sixToFour      = netip.MustParsePrefix("2002::/16")
	teredo         = netip.MustParsePrefix("2001::/32")
)

// embeddedAddresses returns an address and the IPv4 addresses embedded in it, to which translators and tunnels would connect.
// Without them, a link-local address in IPv6 notation would be accepted.
func embeddedAddresses(addr netip.Addr) []netip.Addr {
	addr = addr.WithZone("").Unmap()
	out := []netip.Addr{addr}
	if addr.Is4() {
		return out
	}
	bytes := addr.As16()
	embed := func(at int) { out = append(out, netip.AddrFrom4([4]byte(bytes[at:at+4]))) }
	switch {
	case addr.IsUnspecified() || addr.IsLoopback():
	case nat64.Contains(addr) || nat64Ranges.Contains(addr) || ipv4Compatible.Contains(addr) || isatap(bytes):
		embed(12)
	case sixToFour.Contains(addr):
		embed(2)
	case teredo.Contains(addr): // the server, and the client with all bits inverted
		embed(4)
		for i := 12; i < len(bytes); i++ {
			bytes[i] ^= 0xff
		}
		embed(12)
	}
	return out
}

// isatap reports whether an address has an interface identifier of RFC 5214, for a private or a public IPv4 address. The
// prefix is not considered.
func isatap(bytes [16]byte) bool {
	return bytes[8]&^0x02 == 0 && bytes[9] == 0 && bytes[10] == 0x5e && bytes[11] == 0xfe
}

// findRefusedError returns the RefusedError in the chain of an error; nil if there is none.
func findRefusedError(err error) *RefusedError {
	if out, ok := errors.AsType[*RefusedError](err); ok {
		return out
	}
	return nil
}

// Dialer returns a dialer that connects only to addresses that the policy permits. It is for load tests, mail and NATS, which
// cannot use Client.
func (p Policy) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: p.checkDial}
}
