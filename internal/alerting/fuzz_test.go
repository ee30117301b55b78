package alerting_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// FuzzAlertProvider posts to the chats of arbitrary AlertProviders and Secrets, through a proxy that answers all requests. A
// request is JSON with the whole text in it, and an error contains neither the token nor the query.
func FuzzAlertProvider(f *testing.F) {
	f.Add([]byte(`{"type":"slack","address":"http://chat.example/x","channel":"on-call","username":"serin"}`), "T0ken-of-chat", "Canary failed", "error", 200, []byte(`{"ok":false,"error":"x"}`))
	f.Add([]byte(`{"type":"discord","address":"http://chat.example/a%2Fb/slack?thread_id=7"}`), "", "<&>\u2028\x00\xff", "warn", 429, []byte(`[`))
	f.Add([]byte(`{"type":"msteams","address":"http://a.logic.azure.com/x?sig=s"}`), "", "*bold* _x_ `y`", "", 302, []byte("\x1f\x8b"))
	f.Add([]byte(`{"type":"gchat","address":"http://chat.example/?key=1&token=2"}`), "a\r\nb", "", "info", 500, []byte(nil))
	f.Add([]byte(`{"type":"rocket","address":"HTTP://[::1]:99999/"}`), "", "x", "fatal", 204, []byte("null"))

	var mu sync.Mutex
	var sent []byte
	code, answer := 200, []byte(nil)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		sent = body
		w.WriteHeader(code)
		if code != http.StatusNoContent && code != http.StatusNotModified {
			_, _ = w.Write(answer)
		}
	}))
	f.Cleanup(proxy.Close)
	client := outbound.New(outbound.Policy{AllowLoopback: true, ProxyResolves: true})
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, object []byte, token, text, severity string, status int, body []byte) {
		var spec flaggerv1.AlertProviderSpec
		if json.Unmarshal(object, &spec) != nil || strings.HasPrefix(strings.ToLower(strings.TrimSpace(spec.Address)), "https:") {
			return // the API server does not store invalid objects; a proxy cannot read a request with TLS
		}
		n, err := alerting.New(client, string(spec.Type), alerting.Options{
			URL: spec.Address, Username: spec.Username, Channel: spec.Channel, Token: token, Proxy: proxy.URL,
		})
		if err != nil {
			checkError(t, err, token)
			return
		}
		mu.Lock()
		sent, code, answer = nil, 200+abs(status)%400, body
		mu.Unlock()
		err = n.Send(t.Context(), alerting.Message{Canary: "cart.shop", Text: text, Severity: release.Severity(severity), Fields: []alerting.Field{{Name: "Cause", Value: text}}})
		if err != nil {
			checkError(t, err, token)
		}
		if wait, _ := chat.RetryAfter(err, time.Now()); wait < 0 || wait > 30*time.Second {
			t.Errorf("the delay is %s", wait)
		}
		mu.Lock()
		defer mu.Unlock()
		if sent == nil {
			return // refused before it was sent
		}
		var message any
		if err := json.Unmarshal(sent, &message); err != nil {
			t.Fatalf("the request is not JSON: %v: %s", err, sent)
		}
		if utf8.ValidString(text) && !contains(message, text) {
			t.Errorf("sent without %q: %s", text, sent)
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

// checkError checks that an error does not contain the token, unless the token is short and may occur by chance.
func checkError(t *testing.T, err error, token string) {
	t.Helper()
	if len(token) > 12 && strings.Contains(err.Error(), token) {
		t.Errorf("the error contains the token: %v", err)
	}
	if !utf8.ValidString(err.Error()) {
		t.Errorf("the error is not valid UTF-8: %q", err)
	}
}

// contains reports whether one of the strings in a message contains a text.
func contains(message any, text string) bool {
	switch m := message.(type) {
	case string:
		return strings.Contains(m, text)
	case []any:
		for _, each := range m {
			if contains(each, text) {
				return true
			}
		}
	case map[string]any:
		for _, each := range m {
			if contains(each, text) {
				return true
			}
		}
	}
	return text == ""
}
