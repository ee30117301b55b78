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

// Table says which addresses each name has. Keys are "SERVICE.NAMESPACE", in lower case. A name with no address exists
// and answers with nothing.
type Table map[string][]netip.Addr

// Names answers questions about services. There is no way out of the playground, so all other names do not exist.
type Names struct {
	table atomic.Pointer[Table]
}

// Set replaces all names.
func (n *Names) Set(t Table) { n.table.Store(&t) }

// Lookup returns the addresses of a name in any of the forms that programs use: SERVICE.NAMESPACE, with .svc, or with
// .svc.cluster.local; and POD.SERVICE.NAMESPACE.svc.cluster.local is not among them. Found is false when no service has
// that name.
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

// answerSeconds is how long programs may remember an answer. Headless services change with their pods.
const answerSeconds = 1

// Answer answers one DNS message.
func (n *Names) Answer(question []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	asked, err := parser.Question()
	if err != nil {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	addresses, found := n.Lookup(asked.Name.String())
	reply := dnsmessage.Header{
		ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
	}
	if !found {
		reply.RCode = dnsmessage.RCodeNameError
	}
	builder := dnsmessage.NewBuilder(nil, reply)
	builder.EnableCompression()
	if err := errors.Join(builder.StartQuestions(), builder.Question(asked), builder.StartAnswers()); err != nil {
		return nil, fmt.Errorf("answer about %s: %w", asked.Name, err)
	}
	if asked.Type == dnsmessage.TypeA && asked.Class == dnsmessage.ClassINET {
		for _, address := range addresses {
			resource := dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, TTL: answerSeconds}
			if err := builder.AResource(resource, dnsmessage.AResource{A: address.As4()}); err != nil {
				return nil, fmt.Errorf("answer about %s: %w", asked.Name, err)
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
			return fmt.Errorf("receive questions about names: %w", err)
		}
		answer, err := n.Answer(buffer[:length])
		if err != nil {
			continue // whoever sent that waits in vain, as with any DNS server
		}
		// Old resolvers take 512 bytes (RFC 1035); a header with TC set makes them ask again over TCP.
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
			return fmt.Errorf("accept questions about names: %w", err)
		}
		go func() {
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			n.serveConnection(conn)
		}()
	}
}

// serveConnection answers the questions of one TCP connection; each has its length in front (RFC 1035, 4.2.2).
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
