package service

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/serin-dev/serin/internal/outbound"
)

// natsOptions are the options of Argo's library. Its documentation calls username user, so both are accepted.
type natsOptions struct {
	URL                            string
	Headers                        map[string]string
	Username, User, Password, NKey string
}

// newNATS publishes to a subject, which is the recipient. Each message has its own connection, which is closed after it: it
// never reconnects, and does not contact the servers that a server announces.
func newNATS(c caller, o natsOptions) (sendFunc, error) {
	if err := errors.Join(requireOption("url", o.URL), checkNATSServers(o.URL)); err != nil {
		return nil, err
	}
	credentials, err := o.credentials()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, m Message) error {
		if err := checkSubject(m.Recipient); err != nil {
			return err
		}
		message := nats.NewMsg(m.Recipient)
		message.Data = []byte(m.Content.Message)
		for name, value := range o.Headers {
			message.Header.Set(name, value)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
		defer cancel()
		dialer := &natsDialer{ctx: ctx, policy: c.policy}
		if err := publish(ctx, o.URL, message, append(dialer.options(), credentials...)); err != nil {
			return dialer.explain(err, m.Recipient)
		}
		return nil
	}, nil
}

// publish returns once the server has read the message, and so has had the opportunity to refuse it.
func publish(ctx context.Context, servers string, message *nats.Msg, options []nats.Option) error {
	connection, err := nats.Connect(servers, options...)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.PublishMsg(message); err != nil {
		return err
	}
	if err := connection.FlushWithContext(ctx); err != nil {
		return cmp.Or(connection.LastError(), err)
	}
	return connection.LastError()
}

// checkNATSServers returns an error if servers is not a list of addresses of NATS servers, separated by commas.
func checkNATSServers(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server) // its error may quote a password
		if err != nil || u.Hostname() == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return errors.New("its option url is not the address of a NATS server such as nats://nats.messaging:4222: correct it")
		}
	}
	return nil
}

func (o natsOptions) credentials() ([]nats.Option, error) {
	var options []nats.Option
	if user := cmp.Or(o.Username, o.User); user != "" {
		options = append(options, nats.UserInfo(user, o.Password))
	}
	if o.NKey == "" {
		return options, nil
	}
	pair, err := nkeys.FromSeed([]byte(o.NKey))
	if err != nil {
		return nil, errors.New("its option nkey is not the seed of an NKey: correct it")
	}
	public, err := pair.PublicKey()
	if err != nil {
		return nil, errors.New("its option nkey is not the seed of an NKey: correct it")
	}
	return append(options, nats.Nkey(public, pair.Sign)), nil
}

// checkSubject returns an error if a message must not be sent to a subject. Every user who may annotate a Rollout can set
// it, so text that the protocol would read as another command, and the subjects of the server's own API ($JS, $SYS), are
// refused.
func checkSubject(subject string) error {
	breaks := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if strings.ContainsFunc(subject, breaks) || strings.HasPrefix(subject, "$") ||
		slices.ContainsFunc(strings.Split(subject, "."), func(token string) bool { return token == "" || token == "*" || token == ">" }) {
		return fmt.Errorf("the recipient %q is not a subject for messages: use one without spaces, wildcards and a leading $", subject)
	}
	return nil
}

// natsDialer opens the connection for one message: under the policy, until the context ends, and with a limit on the data
// of the server. The library itself reads a server's first line without such a limit.
type natsDialer struct {
	ctx    context.Context //nolint:containedctx // the library's interface has no context, and the dialer serves one call
	policy outbound.Policy
	// dialErr is the error of the last dial.
	dialErr error
}

func (d *natsDialer) options() []nats.Option {
	return []nats.Option{
		nats.Name("serin"), nats.SetCustomDialer(d), nats.SkipHostLookup(), nats.Timeout(timeout),
		nats.NoReconnect(), nats.IgnoreDiscoveredServers(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the library's own prints to standard error
	}
}

// Dial implements nats.CustomDialer.
func (d *natsDialer) Dial(network, address string) (net.Conn, error) {
	connection, err := d.dial(network, address)
	d.dialErr = err
	return connection, err
}

func (d *natsDialer) dial(network, address string) (net.Conn, error) {
	if err := d.policy.Check(&url.URL{Host: address}); err != nil {
		return nil, err
	}
	connection, err := d.policy.Dialer().DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(d.ctx, func() { _ = connection.Close() })
	return &limitedConn{Conn: connection, remaining: maxReply}, nil
}

// maxReply bounds the bytes that a server may send during one attempt.
const maxReply = 64 << 10

// explain converts an error of the library: it removes the text of the server, and marks errors that may be retried.
func (d *natsDialer) explain(err error, subject string) error {
	is := func(candidates ...error) bool {
		return slices.ContainsFunc(candidates, func(candidate error) bool { return errors.Is(err, candidate) })
	}
	refused, closed := errors.AsType[*outbound.RefusedError](d.dialErr)
	switch {
	case is(nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrNkeysNotSupported):
		return errors.New("the NATS server refused the credentials: correct username and password, or nkey")
	case is(nats.ErrPermissionViolation):
		return fmt.Errorf("the NATS server refused messages to %q: permit this user to publish there, or correct the subscription", subject)
	case is(nats.ErrMaxPayload):
		return errors.New("the message is longer than the NATS server accepts: shorten the template")
	case is(nats.ErrHeadersNotSupported):
		return errors.New("the NATS server does not support headers: remove the option headers")
	case is(nats.ErrSecureConnWanted, nats.ErrSecureConnRequired):
		return errors.New("the NATS server and the option url disagree about TLS: correct the url")
	case isCertificateError(err):
		return outbound.NewUnreachableError(errors.New("the certificate of the NATS server cannot be verified: use a certificate of a trusted authority"))
	case closed:
		return refused
	case d.ctx.Err() != nil:
		return outbound.NewUnreachableError(context.Cause(d.ctx))
	case d.dialErr != nil:
		return outbound.NewUnreachableError(fmt.Errorf("reach the NATS server: %w", d.dialErr))
	default:
		return outbound.NewUnreachableError(errors.New("the response of the NATS server is not valid: check the option url"))
	}
}

func isCertificateError(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
