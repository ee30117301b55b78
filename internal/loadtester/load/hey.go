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

// maxData is how many bytes of a file are sent as a body.
const maxData = 16 << 20

// headers are given by a flag that may come several times.
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

// readHey reads the command line; it is what hey 0.1 takes but for -o, whose output nobody could read here.
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
	if f.volume.duration == 0 && !given(set, "c") {
		f.volume.workers = min(f.volume.workers, max(f.volume.requests, 1))
	}
	f.volume.rate = f.perWorker * float64(f.volume.workers)
	if err := f.volume.validate(); err != nil {
		return nil, fmt.Errorf("hey: %w", err)
	}
	return &f, nil
}

func given(set *flag.FlagSet, name string) (found bool) {
	set.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// header are the headers of every request.
func (f *heyFlags) header() (http.Header, error) {
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

// content is the body of every request.
func (f *heyFlags) content() ([]byte, error) {
	if f.bodyFile == "" {
		return []byte(f.body), nil
	}
	return readData(f.bodyFile)
}

func readData(path string) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // whoever may give a command line may name a file of this image
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxData))
}

// template is the request that all requests are copies of.
func (f *heyFlags) template() (*http.Request, []byte, error) {
	header, err := f.header()
	if err != nil {
		return nil, nil, err
	}
	body, err := f.content()
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

// transport makes the connections, one for each worker.
func (f *heyFlags) transport(o Options) (*http.Transport, error) {
	t := &http.Transport{
		DialContext:         o.Policy.Dialer().DialContext,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // as hey: load is sent to what is being tried out
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

// hey sends HTTP requests. It prints what came and is content with any answer, as the tool is.
func hey(ctx context.Context, o Options, args []string) error {
	f, err := readHey(args)
	if err != nil {
		return err
	}
	template, body, err := f.template()
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
	send(ctx, o, f.volume, func(ctx context.Context) (string, error) {
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
	}).show(o.Out)
	return context.Cause(ctx)
}

// withoutURL takes the address out of an error: all requests have the same.
func withoutURL(err error) error {
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		return inURL.Err
	}
	return err
}
