package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/waittest"
)

// natsFolder contains the NATS server that natsProgram built.
var natsFolder string

// natsProgram builds a NATS server from the module natsserver, which Serin does not link, and returns its path.
var natsProgram = sync.OnceValues(func() (program string, err error) {
	if natsFolder, err = os.MkdirTemp("", "nats-server"); err != nil {
		return "", err
	}
	program = filepath.Join(natsFolder, "nats-server")
	build := exec.Command("go", "build", "-o", program, "github.com/nats-io/nats-server/v2")
	build.Dir = "natsserver"
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a NATS server: %w\n%s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if natsFolder != "" {
		_ = os.RemoveAll(natsFolder)
	}
	os.Exit(code)
}

// natsServer starts a server on a free port of loopback, with a configuration, and returns its address.
func natsServer(t *testing.T, configuration string) string {
	t.Helper()
	program, err := natsProgram()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "nats.conf")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(t.Context(), program, "-a", "127.0.0.1", "-p", "-1", "-c", file, "--ports_file_dir", folder)
	server.Stdout, server.Stderr = output, output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait(); output.Close() })
	var ports struct{ NATS []string }
	waittest.Until(t, "the NATS server has a port", func() error {
		files, _ := filepath.Glob(filepath.Join(folder, "*.ports"))
		if len(files) == 0 {
			log, _ := os.ReadFile(output.Name())
			return errors.New(string(log))
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		return json.Unmarshal(content, &ports)
	})
	return ports.NATS[0]
}

// subscribe receives the messages of all subjects that a user may read.
func subscribe(t *testing.T, address string, options ...nats.Option) *nats.Subscription {
	t.Helper()
	connection, err := nats.Connect(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connection.Close)
	subscription, err := connection.SubscribeSync("releases.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := connection.Flush(); err != nil {
		t.Fatal(err)
	}
	return subscription
}

func sendNATS(t *testing.T, ctx context.Context, options, subject string) error {
	t.Helper()
	sender, err := newSender(t, "nats", options)
	if err != nil {
		t.Fatal(err)
	}
	return sender.Send(ctx, service.Message{Content: content(t, "message: hi"), Service: "own", Recipient: subject, Now: now}) //nolint:contextcheck // content renders in the context of the test
}

func TestMessageIsPublishedToNATS(t *testing.T) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := pair.PublicKey()
	seed, _ := pair.Seed()
	address := natsServer(t, `authorization { users = [{user: serin, password: Pa55word}, {nkey: `+public+`}] }`)
	subscription := subscribe(t, address, nats.UserInfo("serin", "Pa55word"))
	withUser := strings.Replace(address, "nats://", "nats://serin:Pa55word@", 1)
	for name, options := range map[string]string{
		"username":             "{url: '" + address + "', username: serin, password: Pa55word, headers: {X-Team: shop}}",
		"user":                 "{url: '" + address + "', user: serin, password: Pa55word, headers: {X-Team: shop}}",
		"nkey":                 "{url: '" + address + "', nkey: " + string(seed) + ", headers: {X-Team: shop}}",
		"user of the address":  "{url: '" + withUser + "', headers: {X-Team: shop}}",
		"without scheme":       "{url: '" + strings.TrimPrefix(address, "nats://") + "', username: serin, password: Pa55word, headers: {X-Team: shop}}",
		"second of two":        "{url: 'nats://127.0.0.1:1," + address + "', username: serin, password: Pa55word, headers: {X-Team: shop}}",
		"header of two lines":  `{url: '` + address + `', username: serin, password: Pa55word, headers: {X-Team: shop, X-Odd: "a\r\nb"}}`,
		"header without value": "{url: '" + address + "', username: serin, password: Pa55word, headers: {X-Team: shop, X-None: ''}}",
	} {
		t.Run(name, func(t *testing.T) {
			if err := sendNATS(t, t.Context(), options, "releases.shop"); err != nil {
				t.Fatal(err)
			}
			got, err := subscription.NextMsg(waittest.Timeout)
			if err != nil {
				t.Fatal(err)
			}
			if got.Subject != "releases.shop" || string(got.Data) != "hi" || got.Header.Get("X-Team") != "shop" {
				t.Errorf("got %s %q %v", got.Subject, got.Data, got.Header)
			}
		})
	}
}

func TestNATSRefusesAMessage(t *testing.T) {
	address := natsServer(t, `
max_payload: 1
authorization { users = [{user: serin, password: Pa55word, permissions: {publish: "releases.>"}}] }`)
	for name, tt := range map[string]struct{ user, password, subject, want string }{
		"credentials": {"serin", "Wr0ngword", "releases.shop", "correct username and password, or nkey"},
		"nobody":      {"''", "''", "releases.shop", "correct username and password, or nkey"},
		"length":      {"serin", "Pa55word", "releases.shop", "longer than the NATS server accepts"},
		"wildcard":    {"serin", "Pa55word", "releases.>", `"releases.>" is not a subject`},
		"own API":     {"serin", "Pa55word", "$JS.API.STREAM.DELETE.orders", "is not a subject"},
		"a command":   {"serin", "Pa55word", "a 0\r\n\r\nPUB other 0", "is not a subject"},
		"no subject":  {"serin", "Pa55word", "", "is not a subject"},
	} {
		t.Run(name, func(t *testing.T) {
			err := sendNATS(t, t.Context(), "{url: '"+address+"', username: "+tt.user+", password: "+tt.password+"}", tt.subject)
			if _, again := chat.RetryAfter(err, now); err == nil || again || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "word}") || strings.Contains(err.Error(), "55word") {
				t.Errorf("%v, again %v, want %q", err, again, tt.want)
			}
		})
	}
	permitted := natsServer(t, `authorization { users = [{user: serin, password: Pa55word, permissions: {publish: "releases.>"}}] }`)
	err := sendNATS(t, t.Context(), "{url: '"+permitted+"', username: serin, password: Pa55word}", "orders")
	if _, again := chat.RetryAfter(err, now); err == nil || again || !strings.Contains(err.Error(), `refused messages to "orders"`) {
		t.Errorf("%v, again %v", err, again)
	}
}

// misbehavingNATS is a server that sends something to each connection, and then nothing more. It counts the connections
// that began and ended.
type misbehavingNATS struct {
	address      string
	begun, ended atomic.Int32
}

func newMisbehavingNATS(t *testing.T, talk func(net.Conn)) *misbehavingNATS {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	odd := &misbehavingNATS{address: "nats://" + listener.Addr().String()}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			odd.begun.Add(1)
			go func() {
				defer odd.ended.Add(1)
				defer connection.Close()
				talk(connection)
				_, _ = io.Copy(io.Discard, connection)
			}()
		}
	}()
	return odd
}

const natsInfo = `INFO {"server_id":"odd","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576,"connect_urls":["127.0.0.1:1","169.254.169.254:80"]}` + "\r\n"

// answerNATS answers the CONNECT and PING of a client, and then sends another text.
func answerNATS(connection net.Conn, then string) {
	_, _ = io.WriteString(connection, natsInfo)
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "PING") {
			_, _ = io.WriteString(connection, "PONG\r\n"+then)
			return
		}
	}
}

func TestMisbehavingNATSServers(t *testing.T) {
	for name, talk := range map[string]func(connection net.Conn, endAttempt func()){
		"ends at once":    func(connection net.Conn, _ func()) { connection.Close() },
		"an endless line": func(connection net.Conn, _ func()) { _, _ = io.Copy(connection, endless{}) },
		"another protocol": func(connection net.Conn, _ func()) {
			_, _ = io.WriteString(connection, "HTTP/1.1 400 secret words\r\n\r\n")
		},
		"an error": func(connection net.Conn, _ func()) {
			_, _ = io.WriteString(connection, natsInfo+"-ERR 'secret words'\r\n")
		},
		"a later error": func(connection net.Conn, _ func()) { answerNATS(connection, "-ERR 'secret words'\r\n") },
		"endless pings": func(connection net.Conn, _ func()) { answerNATS(connection, ""); _, _ = io.Copy(connection, pings{}) },
		"silence when TLS begins": func(connection net.Conn, endAttempt func()) {
			_, _ = io.WriteString(connection, strings.Replace(natsInfo, "{", `{"tls_required":true,`, 1))
			_, _ = connection.Read(make([]byte, 1))
			endAttempt()
		},
		"silence after the message": func(connection net.Conn, endAttempt func()) { answerNATS(connection, ""); endAttempt() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, endAttempt := context.WithCancel(t.Context())
			defer endAttempt()
			odd := newMisbehavingNATS(t, func(connection net.Conn) { talk(connection, endAttempt) })
			err := sendNATS(t, ctx, "{url: '"+odd.address+"', username: serin, password: Pa55word}", "releases")
			if _, again := chat.RetryAfter(err, now); err == nil || !again || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "Pa55word") || strings.Contains(err.Error(), "no answer within") {
				t.Errorf("%v, again %v", err, again)
			}
			waittest.Until(t, "the connection ends", func() error {
				if begun, ended := odd.begun.Load(), odd.ended.Load(); begun != 1 || ended != 1 {
					return fmt.Errorf("%d connections began, %d ended", begun, ended)
				}
				return nil
			})
		})
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = 'x'
	}
	return len(into), nil
}

type pings struct{}

func (pings) Read(into []byte) (int, error) { return copy(into, "PING\r\n"), nil }

// TestNATSConnectionsAreNotLeaked checks that neither connections nor goroutines that reconnect are leaked.
func TestNATSConnectionsAreNotLeaked(t *testing.T) {
	address := natsServer(t, "")
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unreachable := nobody.Addr().String()
	nobody.Close()
	before := runtime.NumGoroutine()
	for range 20 {
		if err := sendNATS(t, t.Context(), "{url: '"+address+"'}", "releases"); err != nil {
			t.Fatal(err)
		}
		err := sendNATS(t, t.Context(), "{url: '"+unreachable+"'}", "releases")
		if _, again := chat.RetryAfter(err, now); err == nil || !again {
			t.Fatalf("%v, again %v", err, again)
		}
	}
	waittest.Until(t, "the goroutines end", func() error {
		if after := runtime.NumGoroutine(); after > before {
			stacks := make([]byte, 1<<20)
			return fmt.Errorf("%d, were %d:\n%s", after, before, stacks[:runtime.Stack(stacks, true)])
		}
		return nil
	})
}

func TestInvalidNATSOptionsAreRefused(t *testing.T) {
	for _, tt := range []struct{ options, want string }{
		{"{}", "option url is empty"},
		{"{url: 'http://Pa55word@nats'}", "option url is not the address of a NATS server"},
		{"{url: 'nats://serin:Pa55word@'}", "option url is not the address of a NATS server"},
		{"{url: 'nats://serin:Pa55%word@x'}", "option url is not the address of a NATS server"},
		{"{url: 'nats://x', nkey: Pa55word}", "option nkey is not the seed of an NKey"},
	} {
		if _, err := newSender(t, "nats", tt.options); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "55") {
			t.Errorf("%s: %v, want %q", tt.options, err, tt.want)
		}
	}
}
