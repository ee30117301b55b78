package service_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification/service"
)

// mailServer accepts one mail by SMTP. differs contains its replies by command, if they are not those of success.
func mailServer(t *testing.T, replies map[string]string) (port string, got <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	mails := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		mails <- serveMail(conn, replies)
	}()
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return port, mails
}

func serveMail(conn net.Conn, replies map[string]string) string {
	lines := bufio.NewScanner(conn)
	var received strings.Builder
	data := false
	answer := func(text string) { _, _ = fmt.Fprint(conn, text, "\r\n") }
	answer("220 mail.example ESMTP")
	for lines.Scan() {
		line := lines.Text()
		received.WriteString(line + "\n")
		verb, _, _ := strings.Cut(line, " ")
		switch {
		case data && line == ".":
			data = false
			answer(cmp.Or(replies[line], "250 ok"))
		case data:
		case replies[verb] != "":
			answer(replies[verb])
		case verb == "EHLO":
			answer("250 mail.example")
		case verb == "DATA":
			data = true
			answer("354 go on")
		case verb == "QUIT":
			answer("221 bye")
			return received.String()
		default:
			answer("250 ok")
		}
	}
	return received.String()
}

func TestMailIsSent(t *testing.T) {
	port, got := mailServer(t, nil)
	sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org, html: true}")
	if err != nil {
		t.Fatal(err)
	}
	m := service.Message{Content: content(t, "{message: no, email: {subject: \"done\\r\\nBcc: x@y.z\", body: '<b>well</b>'}}"), Recipient: "a@example.org, b@example.org"}
	if err := sender.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	mail := <-got
	for _, want := range []string{
		"MAIL FROM:<serin@example.org>", "RCPT TO:<a@example.org>", "RCPT TO:<b@example.org>", "Subject: done Bcc: x@y.z", "Content-Type: text/html", "<b>well</b>",
	} {
		if !strings.Contains(mail, want) {
			t.Errorf("no %q in:\n%s", want, mail)
		}
	}
}

func TestMailIsSentWithImplicitTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(certified.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", certified.TLS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	got := make(chan string, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if mail := serveMail(conn, nil); mail != "" {
				got <- mail
			}
			conn.Close()
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	service.SetPortTLS(t, port)
	options := fmt.Sprintf("{host: 127.0.0.1, port: %d, from: serin@example.org, insecure_skip_verify: %%t}", port)
	sender, err := newSender(t, "email", fmt.Sprintf(options, true))
	if err != nil {
		t.Fatal(err)
	}
	m := service.Message{Content: content(t, "{message: done}"), Recipient: "a@example.org"}
	if err := sender.Send(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if mail := <-got; !strings.Contains(mail, "RCPT TO:<a@example.org>") {
		t.Errorf("the server received:\n%s", mail)
	}
	if sender, err = newSender(t, "email", fmt.Sprintf(options, false)); err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), m); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with a certificate that no authority signed: %v", err)
	}
}

func TestFailuresOfMailServers(t *testing.T) {
	for name, tt := range map[string]struct {
		differs map[string]string
		again   bool
		want    string
	}{
		"for now":  {map[string]string{"RCPT": "451 secret words"}, true, "answered 451"},
		"for good": {map[string]string{"RCPT": "550 secret words"}, false, "answered 550"},
		"no mail":  {map[string]string{"EHLO": "554 secret words", "HELO": "554 secret words"}, false, "answered 554"},
	} {
		t.Run(name, func(t *testing.T) {
			port, _ := mailServer(t, tt.differs)
			sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org}")
			if err != nil {
				t.Fatal(err)
			}
			err = sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: "a@example.org"})
			if _, again := chat.RetryAfter(err, now); err == nil || again != tt.again || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, again %v", err, again)
			}
		})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	listener.Close()
	sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org, username: u, password: Pa55word}")
	if err != nil {
		t.Fatal(err)
	}
	for recipient, wantAgain := range map[string]bool{"a@example.org": true, "nobody": false} {
		err = sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: recipient})
		if _, again := chat.RetryAfter(err, now); err == nil || again != wantAgain || strings.Contains(err.Error(), "Pa55word") {
			t.Errorf("%s: %v, again %v", recipient, err, again)
		}
	}
}

// TestAMailIsSentOnceIfItsConnectionFailsAtItsEnd: the server has accepted the mail.
func TestAMailIsSentOnceIfItsConnectionFailsAtItsEnd(t *testing.T) {
	port, _ := mailServer(t, map[string]string{"QUIT": "421 shutting down"})
	sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org}")
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: "a@example.org"}); err != nil {
		t.Errorf("a mail that was accepted is sent again: %v", err)
	}
}

// TestLongRepliesOfMailServers checks that replies are limited: a line without an end would occupy all memory.
func TestLongRepliesOfMailServers(t *testing.T) {
	for _, verb := range []string{"EHLO", "MAIL", "RCPT", "."} {
		t.Run(verb, func(t *testing.T) {
			port, _ := mailServer(t, map[string]string{verb: "250 secret " + strings.Repeat("x", 1<<20)})
			sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org}")
			if err != nil {
				t.Fatal(err)
			}
			err = sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: "a@example.org"})
			const want = "the mail server answered with more than 256 KiB: check host and port, and the number of recipients"
			if _, again := chat.RetryAfter(err, now); err == nil || again || err.Error() != want {
				t.Errorf("%v, again %v; want %q", err, again, want)
			}
		})
	}
}

// TestMailToManyRecipients checks that the limit of replies suits mails to many recipients.
func TestMailToManyRecipients(t *testing.T) {
	port, _ := mailServer(t, map[string]string{"RCPT": "250 2.1.5 " + strings.Repeat("accepted ", 20)})
	sender, err := newSender(t, "email", "{host: 127.0.0.1, port: "+port+", from: serin@example.org}")
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Repeat([]string{"a@example.org"}, 1000)
	if err := sender.Send(t.Context(), service.Message{Content: content(t, "message: x"), Recipient: strings.Join(all, ",")}); err != nil {
		t.Error(err)
	}
}
