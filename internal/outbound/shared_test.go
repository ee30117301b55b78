package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// blockingTransport counts requests and answers them once it is released.
type blockingTransport struct {
	received []string
	ended    int // requests whose context has ended
	release  chan struct{}
}

func (b *blockingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b.received = append(b.received, r.URL.RawQuery+" "+r.Header.Get("Authorization"))
	select {
	case <-b.release:
	case <-r.Context().Done():
		b.ended++
		return nil, r.Context().Err()
	}
	if r.URL.RawQuery == "panic" {
		panic("data of a user")
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("answer")), Request: r}, nil
}

func TestEqualRequestsInFlightAreSentOnce(t *testing.T) {
	request := func(query, credentials string) Request {
		return Request{
			URL: "https://prometheus.test/api/v1/query?" + query, Header: http.Header{"Authorization": {credentials}}, Limit: 1 << 10, Timeout: time.Minute,
		}
	}
	synctest.Test(t, func(t *testing.T) {
		transport := &blockingTransport{release: make(chan struct{})}
		client := New(Policy{})
		client.verifyingClient = &http.Client{Transport: transport}
		answers := make(chan error, 8)
		send := func(ctx context.Context, r Request) {
			go func() {
				answer, err := client.DoShared(ctx, r)
				if err == nil && string(answer.Body) != "answer" {
					err = errors.New("got body " + string(answer.Body))
				}
				answers <- err
			}()
			synctest.Wait()
		}
		first, giveUp := context.WithCancel(t.Context())
		send(first, request("up", "a"))
		for range 3 {
			send(t.Context(), request("up", "a"))
		}
		if len(transport.received) != 1 {
			t.Errorf("equal requests: the server received %q", transport.received)
		}
		send(t.Context(), request("down", "a"))
		send(t.Context(), request("up", "b"))
		if len(transport.received) != 3 {
			t.Errorf("another query and other credentials: the server received %q", transport.received)
		}
		time.Sleep(joinPeriod + 1) // the clock of the test is virtual
		send(t.Context(), request("down", "a"))
		if len(transport.received) != 4 {
			t.Errorf("an equal request later: the server received %q", transport.received)
		}
		giveUp()
		if _, unreachable := errors.AsType[*UnreachableError](<-answers); !unreachable {
			t.Error("a caller that gave up did not return")
		}
		close(transport.release)
		for range 6 {
			if err := <-answers; err != nil {
				t.Errorf("the others got error %v", err)
			}
		}
		send(t.Context(), request("up", "a"))
		if err := <-answers; err != nil || len(transport.received) != 5 {
			t.Errorf("after the answer: error %v, the server received %q", err, transport.received)
		}
		send(t.Context(), request("panic", "a"))
		if err := <-answers; !errors.Is(err, errDefect) || strings.Contains(err.Error(), "user") {
			t.Errorf("a panic became error %v", err)
		}
	})
}

// TestARequestEndsWithItsLastCaller: requests to a hanging server would accumulate, because callers give up before their timeout.
func TestARequestEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &blockingTransport{release: make(chan struct{})}
		client := New(Policy{})
		client.verifyingClient = &http.Client{Transport: transport}
		request := Request{URL: "https://prometheus.test/api/v1/query", Limit: 1 << 10, Timeout: time.Hour}
		answers := make(chan error, 3)
		send := func(ctx context.Context) {
			go func() {
				_, err := client.DoShared(ctx, request)
				answers <- err
			}()
			synctest.Wait()
		}
		first, giveUpFirst := context.WithCancel(t.Context())
		second, giveUpSecond := context.WithCancel(t.Context())
		send(first)
		send(second)
		giveUpFirst()
		synctest.Wait()
		if len(transport.received) != 1 || transport.ended != 0 {
			t.Errorf("one of two callers gave up: %d requests, %d of them ended", len(transport.received), transport.ended)
		}
		giveUpSecond()
		synctest.Wait()
		if transport.ended != 1 {
			t.Errorf("both callers gave up: %d requests ended", transport.ended)
		}
		send(t.Context()) // within joinPeriod
		close(transport.release)
		for _, want := range []bool{false, false, true} {
			if err := <-answers; (err == nil) != want {
				t.Errorf("got error %v, want a response: %v", err, want)
			}
		}
		if len(transport.received) != 2 || len(client.inFlight) != 0 {
			t.Errorf("%d requests, %d remain", len(transport.received), len(client.inFlight))
		}
	})
}

func TestAClientWithItsOwnTransportSharesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &blockingTransport{release: make(chan struct{})}
		client, err := NewForServer("https://kubernetes.test", transport)
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan error, 2)
		for range cap(answers) {
			go func() {
				_, err := client.DoShared(t.Context(), Request{URL: "https://kubernetes.test/apis", Limit: 1 << 10, Timeout: time.Minute})
				answers <- err
			}()
			synctest.Wait()
		}
		if len(transport.received) != 2 {
			t.Errorf("the server received %q", transport.received)
		}
		close(transport.release)
		for range cap(answers) {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
	})
}
