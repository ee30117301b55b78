//go:build linux

package services

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/serin-dev/serin/playground/network"
)

// Table maps names to addresses. Keys are "SERVICE.NAMESPACE", in lower case. A name without addresses exists: its answer is
// empty.
type Table map[string][]netip.Addr

// Names is a DNS server for the names of Services. All other names do not exist, because the playground has no external network.
type Names struct {
	table atomic.Pointer[Table]
}

// Set replaces all names.
func (n *Names) Set(t Table) { n.table.Store(&t) }

// Lookup returns the addresses of a name in the form SERVICE.NAMESPACE, SERVICE.NAMESPACE.svc or
// SERVICE.NAMESPACE.svc.cluster.local. Names of pods (POD.SERVICE.NAMESPACE.svc.cluster.local) are not supported. found is
// false when no Service has that name.
func (n *Names) Lookup(name string) (addresses []netip.Addr, found bool) {
	table := n.table.Load()
	if table == nil {
		return nil, false
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	name = strings.TrimSuffix(name, "."+network.ClusterDomain)
	name = strings.TrimSuffix(name, ".svc")
	addresses, found = (*table)[name]
	return addresses, found
}

// answerSeconds is the TTL of answers. It is short because the addresses of headless Services change with their pods.
const answerSeconds = 1

// Answer answers one DNS message.
func (n *Names) Answer(question []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil {
		return nil, fmt.Errorf("parse a DNS question: %w", err)
	}
	requested, err := parser.Question()
	if err != nil {
		return nil, fmt.Errorf("parse a DNS question: %w", err)
	}
	addresses, found := n.Lookup(requested.Name.String())
	reply := dnsmessage.Header{
		ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}
	if !found {
		reply.RCode = dnsmessage.RCodeNameError
	}
	builder := dnsmessage.NewBuilder(nil, reply)
	builder.EnableCompression()
	if err := errors.Join(builder.StartQuestions(), builder.Question(requested), builder.StartAnswers()); err != nil {
		return nil, fmt.Errorf("build the DNS answer for %s: %w", requested.Name, err)
	}
	if requested.Type == dnsmessage.TypeA && requested.Class == dnsmessage.ClassINET {
		for _, address := range addresses {
			resource := dnsmessage.ResourceHeader{Name: requested.Name, Class: dnsmessage.ClassINET, TTL: answerSeconds}
			if err := builder.AResource(resource, dnsmessage.AResource{A: address.As4()}); err != nil {
				return nil, fmt.Errorf("build the DNS answer for %s: %w", requested.Name, err)
			}
		}
	}
	return builder.Finish()
}

// ServeUDP answers on conn until it is closed.
func (n *Names) ServeUDP(conn net.PacketConn) error {
	buffer := make([]byte, 64<<10)
	for {
		length, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive DNS questions: %w", err)
		}
		answer, err := n.Answer(buffer[:length])
		if err != nil {
			continue // an invalid message is not answered
		}
		// Resolvers without EDNS accept 512 bytes (RFC 1035); with the flag TC they repeat the question over TCP.
		if len(answer) > 512 {
			answer = truncateMessage(answer)
		}
		if _, err := conn.WriteTo(answer, from); err != nil && errors.Is(err, net.ErrClosed) {
			return nil
		}
	}
}

func truncateMessage(answer []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(answer)
	if err != nil {
		return answer
	}
	header.Truncated = true
	questions, err := parser.AllQuestions()
	if err != nil {
		return answer
	}
	short, err := (&dnsmessage.Message{Header: header, Questions: questions}).Pack()
	if err != nil {
		return answer
	}
	return short
}

// ServeTCP answers on listener until it is closed.
func (n *Names) ServeTCP(ctx context.Context, listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept DNS connections: %w", err)
		}
		go func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			n.serveConnection(conn)
		}()
	}
}

// serveConnection answers the questions of one TCP connection. Each message is preceded by its length (RFC 1035, 4.2.2).
func (n *Names) serveConnection(conn io.ReadWriter) {
	for {
		var length uint16
		if binary.Read(conn, binary.BigEndian, &length) != nil {
			return
		}
		question := make([]byte, length)
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		answer, err := n.Answer(question)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
