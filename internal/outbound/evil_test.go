package outbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nameServer answers queries for addresses (A) of any name with the addresses of a list in order, and has no other records.
type nameServer struct {
	mu      sync.Mutex
	answers []netip.Addr
	queries int
}

func (s *nameServer) nextAddress() netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.answers[min(s.queries, len(s.answers)-1)]
	s.queries++
	return answer
}

func (s *nameServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries
}

// answer returns the response to a query, in the format of RFC 1035.
func (s *nameServer) answer(question []byte) []byte {
	const header, typeA = 12, 1
	end := header
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5 // the root, type and class
	kind := binary.BigEndian.Uint16(question[end-4:])
	reply := append([]byte{}, question[:end]...)
	copy(reply[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}) // a response, one question, no records
	if kind != typeA {
		return reply
	}
	reply[7] = 1
	address := s.nextAddress().As4()
	reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the name of the question, with a TTL of zero
	return append(reply, address[:]...)
}

// resolver returns a resolver that sends its queries to the name server on the local host.
func (s *nameServer) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		question := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(question)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(s.answer(question[:n]), from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// newResolvingClient returns a client whose names are resolved by the name server.
func newResolvingClient(t *testing.T, policy Policy, s *nameServer) *Client {
	t.Helper()
	client := New(policy)
	t.Cleanup(client.Close)
	transport, ok := client.verifyingClient.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another type of transport")
	}
	dialer := &net.Dialer{Control: policy.checkDial, Resolver: s.resolver(t)}
	transport.DialContext = dialer.DialContext
	return client
}

// TestNameIsCheckedEachTimeItsAddressChanges uses a name whose first address is allowed and whose second one is
// refused. The dialled address is checked.
func TestNameIsCheckedEachTimeItsAddressChanges(t *testing.T) {
	called := false
	address := serve(t, func(http.ResponseWriter, *http.Request) { called = true })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for _, forbidden := range []string{"127.0.0.1", "169.254.169.254", "0.0.0.0"} {
		// 192.0.2.1 is reserved for documentation, so that the first call times out.
		names := &nameServer{answers: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr(forbidden)}}
		client := newResolvingClient(t, Policy{}, names)
		request := get("http://rebinding.example:" + port)
		request.Timeout = 50 * time.Millisecond
		if _, err := client.Do(t.Context(), request); findRefusedError(err) != nil || err == nil {
			t.Errorf("the allowed address: %v", err)
		}
		request.Timeout = time.Minute
		_, err := client.Do(t.Context(), request)
		if reason, ok := errors.AsType[*RefusedError](err); !ok || reason.Destination != forbidden {
			t.Errorf("after the name changed to %s: %v", forbidden, err)
		}
		if n := names.count(); n < 2 {
			t.Errorf("the name server received %d queries", n)
		}
	}
	if called {
		t.Error("the server was called")
	}
}

// TestRedirectIsCheckedByItsResolvedAddress follows a redirect to the same host, whose address has changed.
func TestRedirectIsCheckedByItsResolvedAddress(t *testing.T) {
	var steps atomic.Int32
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		steps.Add(1)
		w.Header().Set("Connection", "close") // a reused connection would not resolve the name again
		http.Redirect(w, r, "/next", http.StatusFound)
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	names := &nameServer{answers: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254")}}
	client := newResolvingClient(t, Policy{AllowLoopback: true}, names)
	_, err = client.Do(t.Context(), get("http://rebinding.example:"+port))
	if n := steps.Load(); findRefusedError(err) == nil || n != 1 {
		t.Errorf("%v after %d steps", err, n)
	}
}

// TestAddressesInUnusualSpelling covers notations that C libraries and proxies accept as addresses.
func TestAddressesInUnusualSpelling(t *testing.T) {
	for _, host := range []string{
		"2130706433", "017700000001", "0x7f000001", "0x7f.0.0.1", "127.1", "127.0.1", "0177.0.0.1", "[::ffff:7f00:1]", "[::ffff:127.0.0.1]",
		"[0:0:0:0:0:ffff:a9fe:a9fe]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254.", "LOCALHOST", "localhost.", "a.b.localhost", "[fe80::1%25eth0]", "[::]", "0",
	} {
		_, err := New(Policy{}).Do(t.Context(), get("http://"+host+"/"))
		if findRefusedError(err) == nil {
			t.Errorf("%s: %v, want a RefusedError", host, err)
		}
	}
}

// TestTimeoutAppliesToSlowHeaders checks that the timeout applies to a server that sends its headers slowly.
func TestTimeoutAppliesToSlowHeaders(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				if _, err := http.ReadRequest(bufio.NewReader(connection)); err != nil {
					return
				}
				_, _ = connection.Write([]byte("HTTP/1.1 200 OK\r\n"))
				for range time.Tick(time.Millisecond) {
					if _, err := connection.Write([]byte("X-A: drip\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	request := get("http://" + listener.Addr().String())
	request.Timeout = 50 * time.Millisecond
	_, err = newTestClient(t).Do(t.Context(), request)
	if _, ok := errors.AsType[*UnreachableError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 * maxHeaderBytes / 1000 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1000))
		}
	})
	_, err := newTestClient(t).Do(t.Context(), get(address))
	if _, ok := errors.AsType[*UnreachableError](err); !ok || len(err.Error()) > 1<<10 {
		t.Errorf("got %v", err)
	}
}

// TestHeadersAreNotSplit checks that line breaks in a header or URL cannot inject a second request.
func TestHeadersAreNotSplit(t *testing.T) {
	called := false
	address := serve(t, func(http.ResponseWriter, *http.Request) { called = true })
	for name, change := range map[string]func(*Request){
		"value":  func(r *Request) { r.Header = http.Header{"X-A": {"b\r\nX-Admin: yes"}} },
		"name":   func(r *Request) { r.Header = http.Header{"X-A\r\nX-Admin": {"yes"}} },
		"method": func(r *Request) { r.Method = "GET / HTTP/1.1\r\nX-Admin: yes\r\n\r\nGET" },
		"path":   func(r *Request) { r.URL += "/a\r\nX-Admin: yes" },
	} {
		request := get(address)
		change(&request)
		if _, err := newTestClient(t).Do(t.Context(), request); err == nil || called {
			t.Errorf("%s: %v, called %t", name, err, called)
		}
	}
}

func TestOldVersionsOfTLSAreRefused(t *testing.T) {
	for version, spoken := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs that the client closed the connection
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: version}
		server.StartTLS()
		t.Cleanup(server.Close)
		request := get(server.URL)
		request.SkipVerify = true
		_, err := newTestClient(t).Do(t.Context(), request)
		if _, unreachable := errors.AsType[*UnreachableError](err); unreachable == spoken {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
}
