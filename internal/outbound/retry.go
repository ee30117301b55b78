package outbound

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"
)

const maxRetryDelay = 30 * time.Second

// DoWithRetries sends a request, and up to retries further ones while the server is unreachable or its response is transient.
// Between them it waits 1s, 2s, 4s and so on, or as long as the server requests, at most 30s. It returns the last result and
// the number of attempts.
func (c *Client) DoWithRetries(ctx context.Context, clk clock.Clock, r Request, retries int) (Response, int, error) {
	for attempt := 1; ; attempt++ {
		response, err := c.Do(ctx, r)
		var gone *UnreachableError
		again := errors.As(err, &gone) || err == nil && response.IsTransient()
		if !again || attempt > retries || ctx.Err() != nil {
			return response, attempt, err
		}
		timer := clk.NewTimer(retryDelay(attempt, response, clk.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return response, attempt, err
		case <-timer.C():
		}
	}
}

// retryDelay returns how long to wait after an attempt, counted from 1.
func retryDelay(attempt int, last Response, now time.Time) time.Duration {
	wait := maxRetryDelay
	if attempt <= 5 { // 1s << 5 already exceeds the maximum
		wait = time.Second << (attempt - 1)
	}
	if asked, ok := last.retryAfter(now); ok {
		return asked
	}
	return wait
}

// RetryAfter returns the delay that the server requests, at most 30s; 0 if it requests none.
func (r Response) RetryAfter(now time.Time) time.Duration {
	wait, _ := r.retryAfter(now)
	return wait
}

func (r Response) retryAfter(now time.Time) (wait time.Duration, ok bool) {
	asked := r.Header.Get("Retry-After")
	if asked == "" || r.Code != http.StatusTooManyRequests && r.Code != http.StatusServiceUnavailable {
		return 0, false
	}
	if seconds, err := strconv.Atoi(asked); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, int(maxRetryDelay/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(asked)
	return min(max(at.Sub(now), 0), maxRetryDelay), err == nil
}
