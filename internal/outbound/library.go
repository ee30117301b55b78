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

// ErrTooLong is what a library gets for an answer longer than the limit: half a document is none.
var ErrTooLong = errors.New("the answer is longer than may be read")

// HTTP is the client as libraries of services take one. Their calls have the policy, the limit, the timeout and the
// rules for redirects of all others; a redirect that may not be followed is an answer, which libraries take for an error.
func (c *Client) HTTP(limit int64, timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     libraryTransport{client: c, limit: limit, timeout: timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// libraryTransport makes the calls of a library of a service.
type libraryTransport struct {
	client  *Client
	limit   int64
	timeout time.Duration
}

// RoundTrip is http.RoundTripper.
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

// NewForServer is a client of one server, which the process itself was configured with, through a transport that may have
// the credentials of the process. Other hosts are refused and no redirect is followed, so that these credentials go
// nowhere else.
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

// checkOnly holds a client of one server to it.
func (c *Client) checkOnly(target *url.URL) error {
	if c.onlyHost == nil || c.onlyHost.Scheme == target.Scheme && c.onlyHost.Host == target.Host {
		return nil
	}
	return fmt.Errorf("%s://%s is not the server that these credentials are for", target.Scheme, target.Host)
}
