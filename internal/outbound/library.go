package outbound

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrTooLong is returned to a library for a response that exceeds the limit, because a part of a document is not usable.
var ErrTooLong = errors.New("the response is longer than the limit")

// HTTP returns a client for libraries of services. Its requests have the policy, the limit, the timeout and the rules for
// redirects of all others. A redirect that is not followed is a response, which libraries treat as an error.
func (c *Client) HTTP(limit int64, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     libraryTransport{client: c, limit: limit, timeout: timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// libraryTransport sends the requests of a library of a service.
type libraryTransport struct {
	client  *Client
	limit   int64
	timeout time.Duration
}

// RoundTrip implements http.RoundTripper.
func (l libraryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	answer, err := l.client.Do(r.Context(), Request{
		Method: r.Method, URL: r.URL.String(), Header: r.Header, Body: body, Limit: l.limit, Timeout: l.timeout,
	})
	if err != nil {
		return nil, err
	}
	if answer.Truncated {
		return nil, ErrTooLong
	}
	return &http.Response{
		StatusCode: answer.Code, Status: answer.Status(), Header: answer.Header, Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(answer.Body)), Body: io.NopCloser(bytes.NewReader(answer.Body)),
	}, nil
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}

// NewForServer returns a client for one server, with which the process is configured, through a transport that may add the
// credentials of the process. Other hosts are refused and redirects are not followed, so that these credentials are sent to
// that server only.
func NewForServer(server string, transport http.RoundTripper) (*Client, error) {
	address, err := ParseURL(server)
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Client{onlyHost: address, policy: Policy{AllowLoopback: true}, verifyingClient: client, skipVerifyClient: client}, nil
}

// NewThrough returns a client that sends all requests through a transport, which decides which addresses it serves. Redirects are
// not followed.
func NewThrough(transport http.RoundTripper) *Client {
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Client{policy: Policy{AllowLoopback: true}, verifyingClient: client, skipVerifyClient: client}
}

// checkOnlyHost refuses other servers if the client is for one server.
func (c *Client) checkOnlyHost(target *url.URL) error {
	if c.onlyHost == nil || c.onlyHost.Scheme == target.Scheme && c.onlyHost.Host == target.Host {
		return nil
	}
	return fmt.Errorf("%s://%s is not the server that these credentials are for", target.Scheme, target.Host)
}
