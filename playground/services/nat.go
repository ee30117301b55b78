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

// Protocol is a transport protocol with its number in IP packets.
type Protocol uint8

// The protocols that services may have here.
const (
	TCP Protocol = unix.IPPROTO_TCP
	UDP Protocol = unix.IPPROTO_UDP
)

// Forward says where packets to one port of one service go: to each backend equally often, chosen per connection.
type Forward struct {
	Service  netip.AddrPort
	Protocol Protocol
	Backends []netip.AddrPort
}

// tableName is the one nftables table of the playground.
const tableName = "serin"

// Replace makes the forwards the only ones of this network namespace, in one step: there is no moment without rules.
// Connections that exist keep their backend. Packets to a service without backends are refused, as in any cluster.
func Replace(forwards []Forward) error {
	connection, err := nftables.New(nftables.WithSockOptions(bufferBytes))
	if err != nil {
		return fmt.Errorf("open the packet filter: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	connection.AddTable(table) // so that deleting it never fails
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
	// Answers must come back through the node to be rewritten; between two pods of one bridge they would not.
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
		return fmt.Errorf("replace the forwards of %d service ports: %w", len(forwards), err)
	}
	return nil
}

// bufferBytes is for all rules of one step, which leave as one message, and for their answers, which come at once: the usual
// buffers hold some hundreds.
func bufferBytes(c *netlink.Conn) error {
	return errors.Join(c.SetReadBuffer(bufferSize), c.SetWriteBuffer(bufferSize))
}

const bufferSize = 16 << 20

// Remove takes all forwards away.
func Remove() error {
	connection, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open the packet filter: %w", err)
	}
	table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyIPv4}
	connection.AddTable(table)
	connection.DelTable(table)
	if err := connection.Flush(); err != nil {
		return fmt.Errorf("remove the forwards of services: %w", err)
	}
	return nil
}

// portUnreachable is ICMP's code, which clients see as "connection refused" (RFC 792).
const portUnreachable = 3

// Offsets in the headers of IP (RFC 791), and of TCP and UDP, which begin alike.
const (
	ipDestination    = 16
	destinationPort  = 2
	addressRegister  = 1
	portRegister     = 2
	conntrackWasDNAT = 1 << 5 // IPS_DST_NAT of linux/netfilter/nf_conntrack_common.h
)

// rule sends a connection to backend with a chance of 1 in remaining. As those before it were not taken, a row of such
// rules with remaining going down to 1 chooses all of them equally often.
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
