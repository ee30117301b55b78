package loadtester

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
)

// The bounds of a call to a test server.
const (
	callTimeout = time.Minute
	callLimit   = 1 << 20
	keyLimit    = 64 << 10
)

// call asks a test server and reads its JSON into answer.
func (e *executor) call(ctx context.Context, r outbound.Request, answer any) error {
	r.Limit, r.Timeout = callLimit, callTimeout
	response, err := e.client.Do(ctx, r)
	switch {
	case err != nil:
		return err
	case !response.IsSuccess():
		return fmt.Errorf("the server answered %s", response.Status())
	}
	if err := json.Unmarshal(response.Body, answer); err != nil {
		return fmt.Errorf("the server answered no JSON that can be read")
	}
	return nil
}

// pause waits, or returns the cause of the context's end.
func (e *executor) pause(ctx context.Context, d time.Duration) error {
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// under is an address below that of a server.
func under(server *url.URL, path string) string {
	u := *server
	u.RawQuery, u.Fragment = "", ""
	return u.JoinPath(path).String()
}

// runConcord starts a process and waits for its end.
func (e *executor) runConcord(ctx context.Context, c *concord) error {
	key, err := readKey(c.keyPath)
	if err != nil {
		return err
	}
	body, contentType, err := c.form()
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	header := http.Header{"Authorization": {key.Reveal()}, "Content-Type": {contentType}}
	var process struct {
		ID string `json:"instanceId"`
	}
	err = e.call(ctx, outbound.Request{Method: http.MethodPost, URL: under(c.server, "/api/v1/process"), Header: header, Body: body}, &process)
	if err != nil {
		return fmt.Errorf("start concord process: %w", err)
	}
	if process.ID == "" {
		return fmt.Errorf("start concord process: the server named none")
	}
	address := under(c.server, "/api/v1/process/"+url.PathEscape(process.ID))
	return e.poll(ctx, c.interval, c.patience, func() (over bool, err error) {
		var state struct {
			Status string `json:"status"`
		}
		err = e.call(ctx, outbound.Request{URL: address, Header: http.Header{"Authorization": {key.Reveal()}}}, &state)
		switch {
		case err != nil:
			return false, err
		case state.Status == "FAILED":
			return true, fmt.Errorf("concord process %.64s failed", process.ID)
		default:
			return state.Status == "FINISHED", nil
		}
	})
}

// poll asks at each interval until it is over. An answer that does not come is asked for again, for as long as patience
// allows since the last one that did.
func (e *executor) poll(ctx context.Context, interval, patience time.Duration, ask func() (over bool, err error)) error {
	last := e.clock.Now()
	for {
		if err := e.pause(ctx, interval); err != nil {
			return err
		}
		over, err := ask()
		switch {
		case over:
			return err
		case err == nil:
			last = e.clock.Now()
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case e.clock.Since(last) > patience+interval:
			return fmt.Errorf("no state for %s: %w", patience, err)
		}
	}
}

// readKey reads the key of a server from a file of the load tester.
func readKey(path string) (outbound.Secret, error) {
	file, err := os.Open(path) //nolint:gosec // the Canary names the file; see docs/loadtester.md
	if err != nil {
		return "", fmt.Errorf("`apiKeyPath` cannot be read: %w", err)
	}
	defer file.Close()
	key := make([]byte, keyLimit)
	n, err := file.Read(key)
	if err != nil {
		return "", fmt.Errorf("`apiKeyPath` cannot be read: %w", err)
	}
	return outbound.Secret(strings.TrimSpace(string(key[:n]))), nil
}

// form is the process as Concord reads it.
func (c *concord) form() (body []byte, contentType string, err error) {
	var buffer bytes.Buffer
	form := multipart.NewWriter(&buffer)
	fields := map[string]string{
		"org": c.org, "project": c.project, "repo": c.repo, "entryPoint": c.entrypoint, "arguments.endpoint": c.endpoint,
	}
	for name, value := range c.arguments {
		fields["arguments."+name] = value
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := form.WriteField(name, fields[name]); err != nil {
			return nil, "", err
		}
	}
	if err := form.Close(); err != nil {
		return nil, "", err
	}
	return buffer.Bytes(), form.FormDataContentType(), nil
}

// stopTimeout bounds the last call to a server, after the task's own time is over.
const stopTimeout = 10 * time.Second

// runNGrinder starts a copy of a test and waits for its end. A test that takes too long is stopped.
func (e *executor) runNGrinder(ctx context.Context, n *ngrinder) error {
	request := func(method, path string) outbound.Request {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(n.username, n.password.Reveal())
		return outbound.Request{Method: method, URL: under(n.server, path), Header: r.Header}
	}
	var test struct {
		ID int64 `json:"id"`
	}
	if err := e.call(ctx, request(http.MethodPost, fmt.Sprintf("perftest/api/%d/clone_and_start", n.clone)), &test); err != nil {
		return fmt.Errorf("start ngrinder test: %w", err)
	}
	if test.ID == 0 {
		return fmt.Errorf("start ngrinder test: the server named none")
	}
	err := e.poll(ctx, n.interval, e.timeout, func() (over bool, err error) {
		var answer struct {
			Status []struct {
				ID string `json:"status_id"`
			} `json:"status"`
		}
		if err := e.call(ctx, request(http.MethodGet, fmt.Sprintf("perftest/api/%d/status", test.ID)), &answer); err != nil || len(answer.Status) == 0 {
			return false, err
		}
		switch state := answer.Status[0].ID; state {
		case "FINISHED":
			return true, nil
		case "STOP_BY_ERROR", "CANCELED", "UNKNOWN":
			return true, fmt.Errorf("ngrinder test %d ended with %s", test.ID, state)
		default: // it runs
			return false, nil
		}
	})
	if ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	stop := request(http.MethodPut, fmt.Sprintf("perftest/api/%d", test.ID))
	stop.URL += "?action=stop"
	if stopped := e.call(stopping, stop, &struct{}{}); stopped != nil {
		return fmt.Errorf("%w; and stop ngrinder test %d: %w", err, test.ID, stopped)
	}
	return err
}
