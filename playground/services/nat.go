//go:build linux

package services

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/serin-dev/serin/playground/network"
)

// Protocol is the number of a transport protocol in IP packets.
type Protocol uint8

// The protocols of Service ports that the playground supports.
const (
	TCP Protocol = unix.IPPROTO_TCP
	UDP Protocol = unix.IPPROTO_UDP
)

// Forward forwards connections to one port of one Service to its backends, with equal probability.
type Forward struct {
	Service  netip.AddrPort
	Protocol Protocol
	Backends []netip.AddrPort
}

// tableName is the name of the only nftables table of the playground.
const tableName = "serin"

// Replace atomically replaces all forwards of this network namespace. The backends of existing connections do not change.
// Connections to a Service without backends are refused, as in any cluster.
func Replace(forwards []Forward) error {
	connection, err := nftables.New(nftables.WithSockOptions(setBufferSizes))
	if err != nil {
		return fmt.Errorf("open the packet filter: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	connection.AddTable(table) // otherwise DelTable fails if it does not exist
	connection.DelTable(table)
	connection.AddTable(table)

	services := connection.AddChain(&nftables.Chain{Name: "services", Table: table})
	for _, f := range forwards {
		for i, backend := range f.Backends {
			connection.AddRule(&nftables.Rule{Table: table, Chain: services, Exprs: f.rule(backend, len(f.Backends)-i)})
		}
	}
	for _, hook := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"prerouting", nftables.ChainHookPrerouting}, {"output", nftables.ChainHookOutput}} {
		chain := connection.AddChain(&nftables.Chain{
			Name: hook.name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook.hook, Priority: nftables.ChainPriorityNATDest,
		})
		connection.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(matchServices(), jumpRule(services.Name))})
	}
	// Replies must pass the node to be rewritten. Between two pods on one bridge they would be sent directly.
	masquerade := connection.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	connection.AddRule(&nftables.Rule{Table: table, Chain: masquerade, Exprs: matchForwarded(&expr.Masq{})})
	for _, hook := range []struct {
		name string
		hook *nftables.ChainHook
	}{{"refuse-forward", nftables.ChainHookForward}, {"refuse-output", nftables.ChainHookOutput}} {
		chain := connection.AddChain(&nftables.Chain{
			Name: hook.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook.hook, Priority: nftables.ChainPriorityFilter,
		})
		refuse := &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable}
		connection.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(matchServices(), refuse)})
	}
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("replace the forwards of %d Service ports: %w", len(forwards), err)
	}
	return nil
}

// setBufferSizes enlarges the socket buffers for all rules of one replacement, which are sent as one message, and for their
// acknowledgements. The default buffers are sufficient for some hundred rules only.
func setBufferSizes(c *netlink.Conn) error {
	return errors.Join(c.SetReadBuffer(bufferSize), c.SetWriteBuffer(bufferSize))
}

const bufferSize = 16 << 20

// Remove removes all forwards.
func Remove() error {
	connection, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open the packet filter: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	connection.AddTable(table)
	connection.DelTable(table)
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("remove the forwards of Services: %w", err)
	}
	return nil
}

// portUnreachable is the ICMP code that clients report as "connection refused" (RFC 792).
const portUnreachable = 3

// Offsets in the headers of IP (RFC 791) and of TCP and UDP, whose first fields are the same.
const (
	ipDestination    = 16
	destinationPort  = 2
	addressRegister  = 1
	portRegister     = 2
	conntrackWasDNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
)

// rule forwards a connection to backend with a probability of 1 in remaining. A rule is evaluated only if the previous ones
// did not match, so a sequence of rules with remaining descending to 1 selects all backends with equal probability.
func (f Forward) rule(backend netip.AddrPort, remaining int) []expr.Any {
	exprs := []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: f.Service.Addr().AsSlice()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(f.Protocol)}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: destinationPort, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(f.Service.Port())},
	}
	if remaining > 1 {
		exprs = append(exprs,
			&expr.Numgen{Register: 1, Modulus: uint32(remaining), Type: unix.NFT_NG_RANDOM},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, 0)},
		)
	}
	return append(exprs,
		&expr.Immediate{Register: addressRegister, Data: backend.Addr().AsSlice()},
		&expr.Immediate{Register: portRegister, Data: binaryutil.BigEndian.PutUint16(backend.Port())},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4,
			RegAddrMin: addressRegister, RegProtoMin: portRegister, Specified: true,
		},
	)
}

func matchServices() []expr.Any {
	mask := uint32(0xffffffff) << (32 - network.ServiceRange.Bits())
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binary.BigEndian.AppendUint32(nil, mask), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: network.ServiceRange.Masked().Addr().AsSlice()},
	}
}

func matchForwarded(then expr.Any) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binary.NativeEndian.AppendUint32(nil, conntrackWasDNAT), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		then,
	}
}

func jumpRule(chain string) expr.Any { return &expr.Verdict{Kind: expr.VerdictJump, Chain: chain} }
