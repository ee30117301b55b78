// Package outbound sends all requests to addresses of users: webhooks, metrics servers, chats.
//
// It restricts the addresses, the duration and the response size of requests, and removes secrets from errors. It must not
// know what a request is for: no kind of resource, no webhook, no provider, no payload.
package outbound

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxRedirects   = 3
	maxHeaderBytes = 64 << 10
	dialTimeout    = 10 * time.Second
)

// Request is one call.
type Request struct {
	// Method defaults to GET.
	Method string
	// URL is http or https.
	URL string
	// Header is sent unchanged; it is not modified.
	Header http.Header
	// Body is sent with its length. A request with a body is never redirected.
	Body []byte
	// Limit is the maximum number of bytes of the response that are read, after decompression. It must be positive.
	Limit int64
	// Timeout bounds everything from name resolution to the last byte. It must be positive.
	Timeout time.Duration
	// SkipVerify calls https without verifying the certificate.
	SkipVerify bool
	// Proxy is the URL of a proxy (http, https, socks5). If it is empty, the proxy of the process's environment is used.
	Proxy string
}

// Response is the response to a call.
type Response struct {
	// Code is the HTTP status. A redirect that is not followed is a response like any other.
	Code   int
	Header http.Header
	// Body contains at most the number of bytes that the request allows; Truncated reports whether there were more.
	Body      []byte
	Truncated bool
}

// IsSuccess reports whether the status is 2xx.
func (r Response) IsSuccess() bool { return r.Code >= 200 && r.Code <= 299 }

// Status returns the code and name, such as "404 Not Found". The reason phrase of the server is omitted.
func (r Response) Status() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.Code, http.StatusText(r.Code)))
}

// IsTransient reports whether the status is about the state of the server and not about the request: 429 and 5xx except 501.
func (r Response) IsTransient() bool {
	return r.Code == http.StatusTooManyRequests || r.Code >= 500 && r.Code != http.StatusNotImplemented
}

// UnreachableError reports that there was no response: no address, no connection, no valid certificate, or a timeout.
type UnreachableError struct{ cause error }

func (e *UnreachableError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.cause }

// NewUnreachableError returns the error for a service that cannot be reached. The text of cause is shown to users.
func NewUnreachableError(cause error) *UnreachableError { return &UnreachableError{cause: cause} }

// Client sends requests under one policy. It is safe for concurrent use, and there is one for the whole process, so that
// connections are shared.
type Client struct {
	policy                            Policy
	verifyingClient, skipVerifyClient *http.Client
	// onlyHost is the server of a client that NewForServer returned; otherwise nil.
	onlyHost *url.URL

	mu sync.Mutex
	// inFlight are the requests of DoShared that further callers may join, by their hash.
	inFlight map[string]*sharedRequest
}

// New returns a client under the policy.
func New(policy Policy) *Client {
	return newClient(newPath(policy))
}

func newClient(p *connectionPath) *Client {
	return &Client{policy: p.policy, verifyingClient: newHTTPClient(p, false), skipVerifyClient: newHTTPClient(p, true)}
}

// Close closes idle connections.
func (c *Client) Close() {
	c.verifyingClient.CloseIdleConnections()
	c.skipVerifyClient.CloseIdleConnections()
}

// newHTTPClient returns a client for all requests: its transport separates connections by proxy.
func newHTTPClient(p *connectionPath, skipVerify bool) *http.Client {
	return &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			DialContext: p.dial,
			Proxy:       p.chooseProxy,
			TLSClientConfig: &tls.Config{
				MinVersion:         tls.VersionTLS12,
				InsecureSkipVerify: skipVerify, //nolint:gosec // the user sets a field of the resource
			},
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           100,
			MaxIdleConnsPerHost:    8,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    dialTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
	}
}

// checkRedirect follows a redirect of a GET to the same host, also from http to https. Any other redirect could send
// credentials or a body to another server, so the redirect itself becomes the response.
func checkRedirect(next *http.Request, via []*http.Request) error {
	last := via[len(via)-1]
	sameHost := strings.EqualFold(next.URL.Hostname(), last.URL.Hostname())
	samePlace := next.URL.Scheme == last.URL.Scheme && effectivePort(next.URL) == effectivePort(last.URL)
	upgrade := last.URL.Scheme == "http" && next.URL.Scheme == "https"
	reads := via[0].Method == http.MethodGet || via[0].Method == http.MethodHead
	if len(via) > maxRedirects || !reads || !sameHost || !samePlace && !upgrade {
		return http.ErrUseLastResponse
	}
	return nil
}

func effectivePort(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// Do sends one request. A response of any status is not an error. Errors are *UnreachableError, *RefusedError, or describe an
// invalid request. Their texts contain only the scheme, host and path of a URL.
func (c *Client) Do(ctx context.Context, r Request) (Response, error) {
	var body bytes.Buffer
	out, err := c.send(ctx, r, func(Response) io.Writer { return &body })
	out.Body = body.Bytes()
	if err != nil {
		return Response{}, err
	}
	return out, nil
}

// Download is like Do for a long response: the body of a response with a status of 2xx is written to w as it arrives, also if an
// error follows. Other bodies are discarded.
func (c *Client) Download(ctx context.Context, r Request, w io.Writer) (Response, error) {
	return c.send(ctx, r, func(response Response) io.Writer {
		if response.IsSuccess() {
			return w
		}
		return io.Discard
	})
}

// send sends one request, and writes at most r.Limit bytes of the body to the writer that choose returns.
func (c *Client) send(ctx context.Context, r Request, choose func(Response) io.Writer) (Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Timeout, fmt.Errorf("no answer within %s", r.Timeout))
	defer cancel()

	request, err := c.prepare(ctx, r)
	if err != nil {
		return Response{}, err
	}
	client := c.verifyingClient
	if r.SkipVerify {
		client = c.skipVerifyClient
	}
	response, err := client.Do(request)
	if err != nil {
		return Response{}, newRequestError(ctx, err)
	}
	defer response.Body.Close()

	out := Response{Code: response.StatusCode, Header: response.Header}
	n, err := io.Copy(choose(out), io.LimitReader(response.Body, r.Limit))
	if n == r.Limit {
		more, _ := io.ReadFull(response.Body, make([]byte, 1))
		out.Truncated = more > 0
	}
	if err != nil {
		return Response{}, newRequestError(ctx, err)
	}
	return out, nil
}

// joinPeriod is the time after the start of a request in which equal ones join it. A query that is sent later must not receive an
// answer about an earlier time.
const joinPeriod = 100 * time.Millisecond

// sharedRequest is a request of DoShared.
type sharedRequest struct {
	// callers is the number of callers that wait for the response. The mutex of the client guards it.
	callers int
	// cancel ends the request.
	cancel context.CancelFunc
	// ended is closed when response and err are set.
	ended    chan struct{}
	response Response
	err      error
}

// DoShared is like Do, for requests that change nothing: of equal requests within joinPeriod, one is sent, unless it has ended.
// Requests with different credentials are different. The callers share the response and must not modify it. One that gives up
// does not end the request of the others; the last one does. A client of NewForServer shares nothing: its transport may depend on
// the caller.
func (c *Client) DoShared(ctx context.Context, r Request) (Response, error) {
	if c.onlyHost != nil {
		return c.Do(ctx, r)
	}
	key, err := json.Marshal(r)
	if err != nil {
		return Response{}, errors.New("the request cannot be encoded")
	}
	hash := sha256.Sum256(key) // the credentials of a request are not retained
	id := string(hash[:])
	shared := c.joinRequest(ctx, id, r)
	defer c.leaveRequest(id, shared)
	select {
	case <-ctx.Done():
		return Response{}, newRequestError(ctx, context.Cause(ctx))
	case <-shared.ended:
		return shared.response, shared.err
	}
}

// joinRequest returns the request in flight with this hash. If there is none, it sends the request.
func (c *Client) joinRequest(ctx context.Context, id string, r Request) *sharedRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	if shared := c.inFlight[id]; shared != nil {
		shared.callers++
		return shared
	}
	shared := &sharedRequest{callers: 1, ended: make(chan struct{})}
	ctx, shared.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if c.inFlight == nil {
		c.inFlight = map[string]*sharedRequest{}
	}
	c.inFlight[id] = shared
	closing := time.AfterFunc(joinPeriod, func() { c.closeRequest(id, shared) }) //nolint:forbidigo // real time, like the timeout of the request
	go func() {
		defer close(shared.ended)
		defer c.closeRequest(id, shared)
		defer closing.Stop()
		defer func() {
			if recover() != nil { // it would end the process
				shared.err = errDefect
			}
		}()
		shared.response, shared.err = c.Do(ctx, r)
	}()
	return shared
}

// closeRequest prevents further callers from joining a request.
func (c *Client) closeRequest(id string, shared *sharedRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inFlight[id] == shared {
		delete(c.inFlight, id)
	}
}

// leaveRequest ends a request that no other caller waits for: otherwise, requests to a hanging server would accumulate.
func (c *Client) leaveRequest(id string, shared *sharedRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if shared.callers--; shared.callers > 0 {
		return
	}
	if c.inFlight[id] == shared { // a request that is cancelled has no further callers
		delete(c.inFlight, id)
	}
	shared.cancel()
}

// errDefect is the error of a request during which Serin panicked. The value of a panic may contain data of the request.
var errDefect = errors.New("the request failed because of a defect in Serin")

func (c *Client) prepare(ctx context.Context, r Request) (*http.Request, error) {
	target, err := ParseURL(r.URL)
	if err != nil {
		return nil, err
	}
	if err := c.checkOnlyHost(target); err != nil {
		return nil, err
	}
	if err := c.policy.checkName(target.Hostname()); err != nil {
		return nil, err
	}
	var proxy *url.URL
	if r.Proxy != "" {
		if proxy, err = url.Parse(r.Proxy); err != nil || proxy.Host == "" {
			return nil, errors.New("the proxy's address is not a URL such as http://proxy:3128: correct it")
		}
	}
	ctx = withRequestRoute(ctx, proxy)
	request, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, RedactError(err)
	}
	if len(r.Body) == 0 {
		request.Body, request.GetBody = http.NoBody, nil
	}
	if r.Header != nil {
		request.Header = r.Header.Clone()
	}
	return request, nil
}

// ParseURL parses an address of a user: http or https, with a host. The error contains no secret.
func ParseURL(address string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	switch {
	case err != nil:
		return nil, errors.New("the address is not a URL such as https://host/path: correct it")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the address must begin with http:// or https://: correct it")
	case u.Hostname() == "":
		return nil, errors.New("the address has no host: write it as https://host/path")
	default:
		return u, nil
	}
}

// newRequestError classifies an error of the HTTP client and removes the URL from it, which the caller knows.
func newRequestError(ctx context.Context, err error) error {
	if r := findRefusedError(err); r != nil {
		return r
	}
	if ctx.Err() != nil {
		return &UnreachableError{cause: context.Cause(ctx)}
	}
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		err = inURL.Err
	}
	return &UnreachableError{cause: RedactError(err)}
}
