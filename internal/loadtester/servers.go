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

// The limits of a call to a test server.
const (
	callTimeout = time.Minute
	callLimit   = 1 << 20
	keyLimit    = 64 << 10
)

// call sends a request to a test server and decodes the JSON of its response into answer.
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
		return fmt.Errorf("the response of the server is not the expected JSON")
	}
	return nil
}

// sleep waits for d, or returns the cause if the context ends first.
func (e *executor) sleep(ctx context.Context, d time.Duration) error {
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// urlBelow returns the URL of a path below the address of a server.
func urlBelow(server *url.URL, path string) string {
	u := *server
	u.RawQuery, u.Fragment = "", ""
	return u.JoinPath(path).String()
}

// runConcord starts a Concord process and waits until it ends.
func (e *executor) runConcord(ctx context.Context, c *concord) error {
	key, err := readKey(c.keyPath)
	if err != nil {
		return err
	}
	body, contentType, err := c.multipartForm()
	if err != nil {
		return fmt.Errorf("encode process: %w", err)
	}
	header := http.Header{"Authorization": {key.Reveal()}, "Content-Type": {contentType}}
	var process struct {
		ID string `json:"instanceId"`
	}
	err = e.call(ctx, outbound.Request{Method: http.MethodPost, URL: urlBelow(c.server, "/api/v1/process"), Header: header, Body: body}, &process)
	if err != nil {
		return fmt.Errorf("start concord process: %w", err)
	}
	if process.ID == "" {
		return fmt.Errorf("start concord process: the response of the server has no instanceId")
	}
	address := urlBelow(c.server, "/api/v1/process/"+url.PathEscape(process.ID))
	return e.poll(ctx, c.pollInterval, c.pollTimeout, func() (over bool, err error) {
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

// poll calls ask at each interval until it reports the end. Errors of ask are retried until timeout has passed since
// the last successful answer.
func (e *executor) poll(ctx context.Context, interval, timeout time.Duration, ask func() (over bool, err error)) error {
	lastAnswer := e.clock.Now()
	for {
		if err := e.sleep(ctx, interval); err != nil {
			return err
		}
		over, err := ask()
		switch {
		case over:
			return err
		case err == nil:
			lastAnswer = e.clock.Now()
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case e.clock.Since(lastAnswer) > timeout+interval:
			return fmt.Errorf("no state for %s: %w", timeout, err)
		}
	}
}

// readKey reads the API key of a server from a file in the load tester's container.
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

// multipartForm returns the multipart form with which Concord starts a process.
func (c *concord) multipartForm() (body []byte, contentType string, err error) {
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

// stopTimeout bounds the call that stops a test, which is made after the task's own timeout.
const stopTimeout = 10 * time.Second

// runNGrinder starts a copy of a test and waits until it ends. A test that exceeds the timeout is stopped.
func (e *executor) runNGrinder(ctx context.Context, n *ngrinder) error {
	request := func(method, path string) outbound.Request {
		r := &http.Request{Header: http.Header{}}
		r.SetBasicAuth(n.username, n.password.Reveal())
		return outbound.Request{Method: method, URL: urlBelow(n.server, path), Header: r.Header}
	}
	var test struct {
		ID int64 `json:"id"`
	}
	if err := e.call(ctx, request(http.MethodPost, fmt.Sprintf("perftest/api/%d/clone_and_start", n.clone)), &test); err != nil {
		return fmt.Errorf("start ngrinder test: %w", err)
	}
	if test.ID == 0 {
		return fmt.Errorf("start ngrinder test: the response of the server has no id")
	}
	err := e.poll(ctx, n.pollInterval, e.timeout, func() (over bool, err error) {
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
		default: // the test is running
			return false, nil
		}
	})
	if ctx.Err() == nil {
		return err
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	stop := request(http.MethodPut, fmt.Sprintf("perftest/api/%d", test.ID))
	stop.URL += "?action=stop"
	if stopErr := e.call(stopCtx, stop, &struct{}{}); stopErr != nil {
		return fmt.Errorf("%w; and stop ngrinder test %d: %w", err, test.ID, stopErr)
	}
	return err
}
