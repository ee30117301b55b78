package hook_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// FuzzAnswer sends arbitrary responses. The text is always short, printable, on one line and without the query of a URL; the
// number of attempts is bounded; and only 2xx is Yes.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte("OK"), "", 0)
	f.Add(403, []byte("closed until Monday\n\x00\x1b[31m\xff"), "x", 3)
	f.Add(429, []byte(strings.Repeat("http://user:pass@host/path?query=secret ", 100)), "99999999999999999999", 2)
	f.Add(503, []byte{0x1f, 0x8b, 8}, "Thu, 01 Jan 1970 00:00:00 GMT", 9)
	f.Add(301, []byte(nil), "-1", 1)
	type response struct {
		code  int
		body  []byte
		after string
	}
	var answer response
	var calls int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls++
		if answer.after != "" {
			w.Header().Set("Retry-After", answer.after)
		}
		w.WriteHeader(answer.code)
		if answer.code != http.StatusNoContent && answer.code != http.StatusNotModified {
			_, _ = w.Write(answer.body)
		}
	}))
	f.Cleanup(server.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true})
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, code int, body []byte, after string, retries int) {
		for _, c := range after {
			if c < ' ' || c > '~' {
				after = "" // not valid in a header
			}
		}
		code, retries = 200+max(code, -(code+1))%400, max(retries, -(retries+1))%5
		answer, calls = response{code, body, after}, 0
		clk := &impatientClock{Clock: clocktesting.NewFakeClock(time.Time{})}
		got, text := hook.New(client, clk).Send(t.Context(), hook.Request{URL: server.URL + "/?token=hunter2", Timeout: time.Minute, Retries: retries})
		if yes := code < 300; (got == release.Yes) != yes || yes && text != "" {
			t.Errorf("%d: got %s %q", code, got, text)
		}
		if calls < 1 || calls > 1+retries {
			t.Errorf("%d calls with %d retries", calls, retries)
		}
		for _, wait := range clk.waits {
			if wait < 0 || wait > 30*time.Second {
				t.Errorf("waited %s", wait)
			}
		}
		if utf8.RuneCountInString(text) > 400 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(text, "hunter2") {
			t.Errorf("%d: the text is %q", code, text)
		}
	})
}

// FuzzPayload creates payloads of arbitrary Canaries: they are JSON, and the user's metadata does not override Serin's.
func FuzzPayload(f *testing.F) {
	f.Add("cart", "shop", "key", "value", "Canary failed!")
	f.Add("\xff", "<>&\u2028", "eventMessage", "mine", "\x00\"\\")
	f.Fuzz(func(t *testing.T, name, namespace, key, value, message string) {
		body, err := hook.EventPayload(hook.Payload{Name: name, Namespace: namespace, Metadata: map[string]string{key: value}}, message, "Warning", "7")
		if err != nil {
			t.Fatal(err)
		}
		var read hook.Payload
		if err := json.Unmarshal(body, &read); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		clean := func(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
		if strings.ReplaceAll(read.Metadata["eventMessage"], "\ufffd", "") != strings.ReplaceAll(clean(message), "\ufffd", "") ||
			read.Metadata["eventType"] != "Warning" || read.Metadata["timestamp"] != "7" {
			t.Errorf("got %s", body)
		}
	})
}
