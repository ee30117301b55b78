package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
)

// maxData is the maximum number of bytes of a file that are sent as body.
const maxData = 16 << 20

// headers is the value of a flag that may be repeated.
type headers []string

func (h *headers) String() string { return strings.Join(*h, ", ") }

func (h *headers) Set(value string) error {
	*h = append(*h, value)
	return nil
}

// heyFlags is the command line of hey.
type heyFlags struct {
	volume                                               volume
	perWorker                                            float64
	seconds, cpus                                        int
	method, accept, body, bodyFile, contentType          string
	userAgent, basicAuth, proxy, host, output            string
	headers                                              headers
	http2, noCompression, noKeepAlive, noRedirects, more bool
	url                                                  *url.URL
}

// readHey parses the command line. It accepts the flags of hey 0.1 except -o, because a webhook could not read the file.
func readHey(args []string) (*heyFlags, error) {
	var f heyFlags
	set := flag.NewFlagSet("hey", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.IntVar(&f.volume.requests, "n", 200, "")
	set.IntVar(&f.volume.workers, "c", 50, "")
	set.Float64Var(&f.perWorker, "q", 0, "")
	set.DurationVar(&f.volume.duration, "z", 0, "")
	set.IntVar(&f.seconds, "t", 20, "")
	set.IntVar(&f.cpus, "cpus", runtime.NumCPU(), "")
	set.StringVar(&f.method, "m", http.MethodGet, "")
	set.StringVar(&f.accept, "A", "", "")
	set.StringVar(&f.body, "d", "", "")
	set.StringVar(&f.bodyFile, "D", "", "")
	set.StringVar(&f.contentType, "T", "text/html", "")
	set.StringVar(&f.userAgent, "U", "", "")
	set.StringVar(&f.basicAuth, "a", "", "")
	set.StringVar(&f.proxy, "x", "", "")
	set.StringVar(&f.host, "host", "", "")
	set.StringVar(&f.output, "o", "", "")
	set.Var(&f.headers, "H", "")
	set.BoolVar(&f.http2, "h2", false, "")
	set.BoolVar(&f.noCompression, "disable-compression", false, "")
	set.BoolVar(&f.noKeepAlive, "disable-keepalive", false, "")
	set.BoolVar(&f.noRedirects, "disable-redirects", false, "")
	set.BoolVar(&f.more, "more", false, "")
	if err := set.Parse(args); err != nil {
		return nil, fmt.Errorf("hey: %w", err)
	}
	if f.output != "" {
		return nil, errors.New("hey: -o is not built in: use an image with hey itself")
	}
	if set.NArg() != 1 {
		return nil, errors.New("hey: give one URL, after all flags")
	}
	var err error
	if f.url, err = outbound.ParseURL(set.Arg(0)); err != nil {
		return nil, fmt.Errorf("hey: %w", err)
	}
	if f.volume.duration == 0 && !isSet(set, "c") {
		f.volume.workers = min(f.volume.workers, max(f.volume.requests, 1))
	}
	f.volume.rate = f.perWorker * float64(f.volume.workers)
	if err := f.volume.validate(); err != nil {
		return nil, fmt.Errorf("hey: %w", err)
	}
	return &f, nil
}

func isSet(set *flag.FlagSet, name string) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// requestHeader returns the header of every request.
func (f *heyFlags) requestHeader() (http.Header, error) {
	h := http.Header{"Content-Type": {f.contentType}, "User-Agent": {"hey/serin"}}
	for _, line := range f.headers {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, errors.New("hey: a header (-H) is written as 'Name: value'")
		}
		h.Set(name, strings.TrimSpace(value))
	}
	if f.accept != "" {
		h.Set("Accept", f.accept)
	}
	if f.userAgent != "" {
		h.Set("User-Agent", f.userAgent+" hey/serin")
	}
	return h, nil
}

// requestBody returns the body of every request.
func (f *heyFlags) requestBody() ([]byte, error) {
	if f.bodyFile == "" {
		return []byte(f.body), nil
	}
	return readData(f.bodyFile)
}

func readData(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the user who may set the command line may also read the files of this image
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxData))
}

// requestTemplate returns the request of which copies are sent, and its body.
func (f *heyFlags) requestTemplate() (*http.Request, []byte, error) {
	header, err := f.requestHeader()
	if err != nil {
		return nil, nil, err
	}
	body, err := f.requestBody()
	if err != nil {
		return nil, nil, fmt.Errorf("hey: %w", err)
	}
	r := &http.Request{Method: strings.ToUpper(f.method), URL: f.url, Header: header, Host: f.host}
	if host := header.Get("Host"); host != "" && f.host == "" {
		r.Host = host
	}
	if f.basicAuth != "" {
		user, password, ok := strings.Cut(f.basicAuth, ":")
		if !ok {
			return nil, nil, errors.New("hey: credentials (-a) are written as user:password")
		}
		r.SetBasicAuth(user, password)
	}
	return r, body, nil
}

// transport returns a transport that reuses one connection per worker.
func (f *heyFlags) transport(o Options) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:         o.Policy.Dialer().DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // like hey: the server under test may have a self-signed certificate
		MaxIdleConnsPerHost: f.volume.workers,
		DisableKeepAlives:   f.noKeepAlive,
		DisableCompression:  f.noCompression,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	if f.http2 {
		t.Protocols.SetHTTP2(true)
	}
	if f.proxy != "" {
		proxy, err := url.Parse(f.proxy)
		if err != nil || proxy.Host == "" {
			return nil, errors.New("hey: the proxy (-x) is written as host:port or http://host:port")
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	return t, nil
}

// hey sends HTTP requests and prints a report. Like the tool, it succeeds whatever the server answers.
func hey(ctx context.Context, o Options, args []string) error {
	f, err := readHey(args)
	if err != nil {
		return err
	}
	template, body, err := f.requestTemplate()
	if err != nil {
		return err
	}
	transport, err := f.transport(o)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Duration(f.seconds) * time.Second}
	if f.noRedirects {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	generateLoad(ctx, o, f.volume, func(ctx context.Context) (string, error) {
		r := template.Clone(ctx)
		if len(body) > 0 {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
		response, err := client.Do(r)
		if err != nil {
			return "", withoutURL(err)
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return "", withoutURL(err)
		}
		return strconv.Itoa(response.StatusCode), nil
	}).write(o.Out)
	return context.Cause(ctx)
}

// withoutURL removes the address from an error, because it is the same for all requests.
func withoutURL(err error) error {
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		return inURL.Err
	}
	return err
}
