package service

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/serin-dev/serin/internal/outbound"
)

type emailOptions struct {
	Host, Username, Password, From string
	Port                           int
	InsecureSkipVerify             bool `json:"insecure_skip_verify"`
	HTML                           bool
}

// portMail is the default port, of servers with STARTTLS. portTLS is that of servers with implicit TLS, a variable for tests.
const portMail = 25

var portTLS = 465

// maxMailReplies bounds the bytes that a server may send during one attempt: it answers each recipient. The library itself reads
// lines without a limit.
const maxMailReplies = 256 << 10

// newEmail sends mails; the recipient is a list of addresses, separated by commas. TLS is used if the server offers it; a
// password is sent only with TLS.
func newEmail(c caller, o emailOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("host", o.Host), requireOption("from", o.From)); err != nil {
		return nil, err
	}
	o.Port = cmp.Or(o.Port, portMail)
	return func(ctx context.Context, m Message) error {
		message, err := o.message(m)
		if err != nil {
			return err
		}
		connection := &limitedConn{remaining: maxMailReplies}
		secure := &tls.Config{ServerName: o.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.InsecureSkipVerify} //nolint:gosec // the user sets insecure_skip_verify
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			var err error
			if connection.Conn, err = c.policy.Dialer().DialContext(ctx, network, address); err != nil || o.Port != portTLS {
				return connection, err
			}
			encrypted := tls.Client(connection, secure) // the library leaves implicit TLS to the dialer
			if err = encrypted.HandshakeContext(ctx); err != nil {
				encrypted.Close() // the library does not close a connection with an error
			}
			return encrypted, err
		}
		options := []mail.Option{
			mail.WithPort(o.Port), mail.WithTimeout(timeout), mail.WithTLSPolicy(mail.TLSOpportunistic), mail.WithDialContextFunc(dial),
			mail.WithTLSConfig(secure),
		}
		if o.Port == portTLS {
			options = append(options, mail.WithSSL())
		}
		if o.Username != "" {
			options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.Username), mail.WithPassword(o.Password))
		}
		client, err := mail.NewClient(o.Host, options...)
		if err != nil {
			return errors.New("its options host and port are not valid: correct them")
		}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer cancel()
		err = client.DialAndSendWithContext(ctx, message)
		if err != nil && connection.isExhausted() { // not retried: the mail may have been accepted
			return fmt.Errorf("the mail server answered with more than %d KiB: check host and port, and the number of recipients", maxMailReplies>>10)
		}
		if message.IsDelivered() { // the end of the connection failed: another attempt would send a second mail
			return nil
		}
		return mailError(err)
	}, nil
}

// message returns the mail.
func (o emailOptions) message(m Message) (*mail.Msg, error) {
	var part struct{ Subject, Body string }
	if err := m.Content.Part("email", &part); err != nil {
		return nil, err
	}
	out := mail.NewMsg()
	if out.From(o.From) != nil {
		return nil, fmt.Errorf("its option from, %q, is not an address: correct it", o.From)
	}
	var to []string
	for address := range strings.SplitSeq(m.Recipient, ",") {
		to = append(to, strings.TrimSpace(address))
	}
	if out.To(to...) != nil {
		return nil, fmt.Errorf("the recipient %q is not an address: correct the subscription", m.Recipient)
	}
	form := mail.TypeTextPlain
	if o.HTML {
		form = mail.TypeTextHTML
	}
	out.Subject(strings.Join(strings.Fields(part.Subject), " ")) // a line break would start another header
	out.SetBodyString(form, cmp.Or(part.Body, m.Content.Message))
	return out, nil
}

// mailError classifies an error of the library. The text of the server is omitted.
func mailError(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return refused
	}
	if isCertificateError(err) {
		return outbound.NewUnreachableError(errors.New("the certificate of the mail server cannot be verified: use one of a trusted authority for its host, or set insecure_skip_verify"))
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		status := fmt.Errorf("the mail server answered %d", answer.Code)
		if answer.Code >= 400 && answer.Code < 500 {
			return outbound.NewUnreachableError(status)
		}
		return status
	}
	if sent, ok := errors.AsType[*mail.SendError](err); ok && sent.ErrorCode() != 0 {
		status := fmt.Errorf("the mail server answered %d", sent.ErrorCode())
		if sent.IsTemp() {
			return outbound.NewUnreachableError(status)
		}
		return status
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		return outbound.NewUnreachableError(fmt.Errorf("reach the mail server: %w", network))
	}
	return outbound.NewUnreachableError(errors.New("the connection to the mail server failed: check host, port and credentials"))
}
