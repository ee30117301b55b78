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

// The ports of servers that speak TLS from the first byte, and of those that are asked for it.
const (
	portTLS  = 465
	portMail = 25
)

// newEmail sends mails; the recipient is addresses with commas between. A server that offers TLS is spoken to with TLS;
// a password is sent to no other.
func newEmail(c caller, o emailOptions) (send, error) {
	if err := errors.Join(required("host", o.Host), required("from", o.From)); err != nil {
		return nil, err
	}
	o.Port = cmp.Or(o.Port, portMail)
	return func(ctx context.Context, m Message) error {
		message, err := o.message(m)
		if err != nil {
			return err
		}
		options := []mail.Option{
			mail.WithPort(o.Port), mail.WithTimeout(timeout), mail.WithTLSPolicy(mail.TLSOpportunistic), mail.WithDialContextFunc(c.policy.Dialer().DialContext),
			mail.WithTLSConfig(&tls.Config{ServerName: o.Host, MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.InsecureSkipVerify}), //nolint:gosec // the API has a field for it
		}
		if o.Port == portTLS {
			options = append(options, mail.WithSSL())
		}
		if o.Username != "" {
			options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.Username), mail.WithPassword(o.Password))
		}
		client, err := mail.NewClient(o.Host, options...)
		if err != nil {
			return errors.New("its options make no connection: correct host and port")
		}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer cancel()
		return mailError(client.DialAndSendWithContext(ctx, message))
	}, nil
}

// message is the mail.
func (o emailOptions) message(m Message) (*mail.Msg, error) {
	var part struct{ Subject, Body string }
	if err := m.Content.Part("email", &part); err != nil {
		return nil, err
	}
	out := mail.NewMsg()
	if out.From(o.From) != nil {
		return nil, fmt.Errorf("its option from, %q, is no address: correct it", o.From)
	}
	var to []string
	for address := range strings.SplitSeq(m.Recipient, ",") {
		to = append(to, strings.TrimSpace(address))
	}
	if out.To(to...) != nil {
		return nil, fmt.Errorf("the recipient %q is no address: correct the subscription", m.Recipient)
	}
	form := mail.TypeTextPlain
	if o.HTML {
		form = mail.TypeTextHTML
	}
	out.Subject(strings.Join(strings.Fields(part.Subject), " ")) // no line of it may become a header
	out.SetBodyString(form, cmp.Or(part.Body, m.Content.Message))
	return out, nil
}

// mailError sorts what the library returned; what the server said is not repeated.
func mailError(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return refused
	}
	if answer, ok := errors.AsType[*textproto.Error](err); ok {
		said := fmt.Errorf("the mail server answered %d", answer.Code)
		if answer.Code >= 400 && answer.Code < 500 {
			return outbound.NewUnreachableError(said)
		}
		return said
	}
	if sent, ok := errors.AsType[*mail.SendError](err); ok && sent.ErrorCode() != 0 {
		said := fmt.Errorf("the mail server answered %d", sent.ErrorCode())
		if sent.IsTemp() {
			return outbound.NewUnreachableError(said)
		}
		return said
	}
	if network, ok := errors.AsType[net.Error](err); ok {
		return outbound.NewUnreachableError(fmt.Errorf("reach the mail server: %w", network))
	}
	return outbound.NewUnreachableError(errors.New("the mail server could not be spoken to: check host, port and credentials"))
}
