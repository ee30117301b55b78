package alerting_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serin-dev/serin/internal/alerting"
	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// server records the last request.
type server struct {
	url    string
	code   int
	answer string
	seen   *http.Request
	body   []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	c := &server{code: 200, answer: "ok"}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.seen = r
		c.body, _ = io.ReadAll(r.Body)
		w.WriteHeader(c.code)
		_, _ = io.WriteString(w, c.answer)
	}))
	t.Cleanup(listener.Close)
	c.url = listener.URL
	return c
}

func client(t *testing.T) *outbound.Client {
	t.Helper()
	out := outbound.New(outbound.Policy{AllowLoopback: true, ProxyResolves: true})
	t.Cleanup(out.Close)
	return out
}

func newSender(t *testing.T, chatType string, o alerting.Options) alerting.Sender {
	t.Helper()
	n, err := alerting.New(client(t), chatType, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

var fields = []alerting.Field{
	{Name: "Target", Value: "Deployment/cart.shop"},
	{Name: "Failed checks threshold", Value: "2"},
	{Name: "Progress deadline", Value: "600s"},
	{Name: "Traffic routing", Value: "Weight step: 50 max: 50"},
}

// TestPayloads compares with payloads that were recorded from Flagger 1.44, in its order of fields. Only the colour of a
// warning differs.
func TestPayloads(t *testing.T) {
	slack := func(colour, text, fields string) string {
		return `{"channel":"releases","username":"flagger","icon_url":"","icon_emoji":":rocket:","attachments":[{"color":"` + colour +
			`","author_name":"cart.shop","text":"` + text + `","mrkdwn_in":["text"],"fields":[` + fields + `]}]}`
	}
	const four = `{"title":"Target","value":"Deployment/cart.shop","short":false},{"title":"Failed checks threshold","value":"2","short":false},` +
		`{"title":"Progress deadline","value":"600s","short":false},{"title":"Traffic routing","value":"Weight step: 50 max: 50","short":false}`
	teams := func(colour, text, facts string) string {
		return `{"@type":"MessageCard","@context":"http://schema.org/extensions","themeColor":"` + colour +
			`","summary":"cart.shop","sections":[{"activityTitle":"` + text + `","activitySubtitle":"cart.shop","facts":[` + facts + `]}]}`
	}
	google := func(texts ...string) string {
		out := `{"cards":[{"header":{"title":"Flagger","subtitle":"cart.shop","imageUrl":"https://flagger.app/favicon.png"},"sections":[`
		for i, text := range texts {
			if i > 0 {
				out += ","
			}
			out += `{"widgets":[{"textParagraph":{"text":"` + text + `"}}]}`
		}
		return out + `]}]}`
	}
	const initialized = "New Deployment detected, initialization completed."
	for _, c := range []struct {
		chat     string
		severity release.Severity
		text     string
		fields   []alerting.Field
		want     string
	}{
		{"slack", release.Info, initialized, fields, slack("good", initialized, four)},
		{"slack", release.Info, "Done.", nil, slack("good", "Done.", "")},
		{"slack", release.Warn, "Done.", nil, slack("warning", "Done.", "")},
		{"slack", release.Error, "Done.", nil, slack("danger", "Done.", "")},
		{"discord", release.Error, "Done.", nil, slack("danger", "Done.", "")},
		{"rocket", release.Info, "Done.", nil, slack("#0076D7", "Done.", "")},
		{"rocket", release.Warn, "Done.", nil, slack("#FFBF00", "Done.", "")},
		{"rocket", release.Error, "Done.", nil, slack("#FF0000", "Done.", "")},
		{"msteams", release.Info, "Done.", fields[:1], teams("0076D7", "Done.", `{"name":"Target","value":"Deployment/cart.shop"}`)},
		{"msteams", release.Warn, "Canary is waiting for approval.", nil, teams("FFBF00", "Canary is waiting for approval.", "")},
		{"msteams", release.Error, "Done.", nil, teams("FF0000", "Done.", "")},
		{"gchat", release.Error, "Done.", fields[:1], google(
			`\u003cfont color=#848484\u003e\u003cstrong\u003eDone.\u003c/strong\u003e\u003c/font\u003e`,
			`Target\u003cbr\u003e\u003cfont color=#848484\u003e\u003cstrong\u003eDeployment/cart.shop\u003c/strong\u003e\u003c/font\u003e`)},
		{"gchat", release.Warn, "Done.", nil, google(`\u003cfont color=#848484\u003e\u003cstrong\u003eDone.\u003c/strong\u003e\u003c/font\u003e`)},
	} {
		t.Run(c.chat+"/"+string(c.severity), func(t *testing.T) {
			server := newServer(t)
			err := newSender(t, c.chat, alerting.Options{URL: server.url, Channel: "releases"}).
				Send(t.Context(), alerting.Message{Canary: "cart.shop", Text: c.text, Severity: c.severity, Fields: c.fields})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(server.body)); diff != "" {
				t.Error(diff)
			}
			if server.seen.Method != "POST" || server.seen.Header.Get("Content-Type") != "application/json" || server.seen.Header.Get("Authorization") != "" {
				t.Errorf("sent %s %v", server.seen.Method, server.seen.Header)
			}
		})
	}
}

func TestDefaultsOfUserAndChannel(t *testing.T) {
	server := newServer(t)
	if err := newSender(t, "slack", alerting.Options{URL: server.url}).Send(t.Context(), alerting.Message{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(server.body, []byte(`{"channel":"general","username":"flagger",`)) {
		t.Errorf("sent %s", server.body)
	}
}

func TestTeamsWorkflowsReceiveAdaptiveCards(t *testing.T) {
	server := newServer(t) // used as a proxy, because the address determines the payload
	for host, adaptive := range map[string]bool{
		"prod-1.westeurope.logic.azure.com":            true,
		"DEFAULT.12.Environment.API.PowerPlatform.com": true,
		"shop.webhook.office.com":                      false,
		"logic.azure.com.example":                      false,
	} {
		n := newSender(t, "msteams", alerting.Options{URL: "http://" + host + "/hook", Proxy: server.url})
		if err := n.Send(t.Context(), alerting.Message{Canary: "cart.shop", Text: "Done.", Severity: release.Warn, Fields: fields[:1]}); err != nil {
			t.Fatal(err)
		}
		want := `{"type":"message","attachments":[{"contentType":"application/vnd.microsoft.card.adaptive","content":{` +
			`"$schema":"http://adaptivecards.io/schemas/adaptive-card.json","type":"AdaptiveCard","version":"1.4","body":[` +
			`{"type":"TextBlock","text":"Done.","weight":"Bolder","color":"Warning","wrap":true},` +
			`{"type":"TextBlock","text":"cart.shop","isSubtle":true,"wrap":true},` +
			`{"type":"FactSet","facts":[{"title":"Target","value":"Deployment/cart.shop"}]}]}}]}`
		if got := string(server.body); adaptive && got != want {
			t.Error(cmp.Diff(want, got))
		} else if !adaptive && !strings.Contains(got, "MessageCard") {
			t.Errorf("%s got %s", host, got)
		}
		if !json.Valid(server.body) {
			t.Error("the body is not valid JSON")
		}
	}
}

func TestDiscordReceivesSlacksFormat(t *testing.T) {
	for in, want := range map[string]string{
		"/api/webhooks/1/t":                   "/api/webhooks/1/t/slack",
		"/api/webhooks/1/t/slack":             "/api/webhooks/1/t/slack",
		"/api/webhooks/1/t?thread_id=7":       "/api/webhooks/1/t/slack?thread_id=7",
		"/api/webhooks/1/t/slack?thread_id=7": "/api/webhooks/1/t/slack?thread_id=7",
		"/api/webhooks/1/a%2Fb":               "/api/webhooks/1/a%2Fb/slack",
	} {
		server := newServer(t)
		server.code = http.StatusNoContent
		if err := newSender(t, "discord", alerting.Options{URL: server.url + in, Token: "ignored"}).Send(t.Context(), alerting.Message{}); err != nil {
			t.Fatal(err)
		}
		if server.seen.RequestURI != want || server.seen.Header.Get("Authorization") != "" {
			t.Errorf("%s: called %s", in, server.seen.RequestURI)
		}
	}
}

func TestSlackErrorsInSuccessfulResponses(t *testing.T) {
	server := newServer(t)
	n := newSender(t, "slack", alerting.Options{URL: server.url, Token: "xoxb-1"})
	for answer, want := range map[string]string{
		`ok`:            "",
		``:              "",
		`{"ok":true}`:   "",
		`{"other":"x"}`: "",
		`{"ok":false,"error":"channel_not_found"}`:  "the chat did not accept the message (channel_not_found): check channel and token",
		`{"ok":false,"error":"see https://x/?t=1"}`: "the chat did not accept the message: check channel and token",
		`{"ok":false}`: "the chat did not accept the message: check channel and token",
	} {
		server.answer = answer
		got := ""
		if err := n.Send(t.Context(), alerting.Message{}); err != nil {
			got = err.Error()
			if _, again := chat.RetryAfter(err, time.Now()); again {
				t.Errorf("%s would be retried", answer)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", answer, got, want)
		}
	}
	if server.seen.Header.Get("Authorization") != "Bearer xoxb-1" {
		t.Errorf("sent %v", server.seen.Header)
	}
}

func TestErrorsContainNoSecret(t *testing.T) {
	server := newServer(t)
	server.answer = "page of hunter2"
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		code      int
		url       string
		want      string
		transient bool
	}{
		{404, server.url, "the chat answered 404 Not Found", false},
		{302, server.url, "the chat answered 302 Found", false},
		{429, server.url, "the chat answered 429 Too Many Requests", true},
		{500, server.url, "the chat answered 500 Internal Server Error", true},
		{501, server.url, "the chat answered 501 Not Implemented", false},
		{200, gone.URL, "send message: ", true},
		{200, "http://169.254.169.254", "send message: ", false},
	} {
		server.code = c.code
		for _, chatType := range alerting.ChatTypes() {
			err := newSender(t, chatType, alerting.Options{URL: c.url + "/x?key=hunter2"}).Send(t.Context(), alerting.Message{})
			_, again := chat.RetryAfter(err, time.Now())
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") || again != c.transient {
				t.Errorf("%s, %d of %s: got %v, again %t", chatType, c.code, c.url, err, again)
			}
		}
	}
	for _, err := range []error{nil, errors.New("x")} {
		if _, again := chat.RetryAfter(err, time.Now()); again {
			t.Errorf("%v would be retried", err)
		}
	}
}

// TestRetryAfterOfChats checks all chats, because each of them has rate limits.
func TestRetryAfterOfChats(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		code  int
		asked string
		want  time.Duration
	}{
		{429, "7", 7 * time.Second},
		{503, "7", 7 * time.Second},
		{429, now.Add(9 * time.Second).Format(http.TimeFormat), 9 * time.Second},
		{429, now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{429, "86400", 30 * time.Second},
		{429, "-5", 0},
		{429, "soon", 0},
		{429, "", 0},
		{500, "7", 0},
	} {
		for _, chatType := range alerting.ChatTypes() {
			address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.asked != "" {
					w.Header().Set("Retry-After", c.asked)
				}
				w.WriteHeader(c.code)
			})
			err := newSender(t, chatType, alerting.Options{URL: address}).Send(t.Context(), alerting.Message{})
			if wait, again := chat.RetryAfter(err, now); wait != c.want || !again {
				t.Errorf("%s, %d with Retry-After %q: got %s, again %t", chatType, c.code, c.asked, wait, again)
			}
		}
	}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// TestRedirectsAreNotFollowed guards the address of a chat and the messages, which are secrets.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the other host was called") })
	for _, code := range []int{301, 302, 303, 307, 308} {
		for _, chatType := range alerting.ChatTypes() {
			address := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, code) })
			err := newSender(t, chatType, alerting.Options{URL: address, Token: "hunter2"}).Send(t.Context(), alerting.Message{Text: "Done."})
			if _, again := chat.RetryAfter(err, time.Now()); err == nil || again {
				t.Errorf("%s, %d: got %v, again %t", chatType, code, err, again)
			}
		}
	}
}

// TestResponsesAreBounded uses a server that sends data until the client closes the connection.
func TestResponsesAreBounded(t *testing.T) {
	for _, code := range []int{200, 500} {
		for _, chatType := range alerting.ChatTypes() {
			hungUp := make(chan struct{})
			address := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				defer close(hungUp)
				w.WriteHeader(code)
				for line := make([]byte, 1<<20); ; {
					if _, err := w.Write(line); err != nil {
						return
					}
				}
			})
			if err := newSender(t, chatType, alerting.Options{URL: address}).Send(t.Context(), alerting.Message{}); (err == nil) != (code == 200) {
				t.Errorf("%s, %d: got %v", chatType, code, err)
			}
			<-hungUp
		}
	}
}

func TestSlowChatEndsWithItsContext(t *testing.T) {
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices a closed connection only after the body
		<-r.Context().Done()
	})
	for _, chatType := range alerting.ChatTypes() {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("too slow"))
		err := newSender(t, chatType, alerting.Options{URL: address}).Send(ctx, alerting.Message{})
		cancel()
		if _, again := chat.RetryAfter(err, time.Now()); err == nil || err.Error() != "send message: too slow" || !again {
			t.Errorf("%s: got %v, again %t", chatType, err, again)
		}
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, c := range []struct{ chat, url, want string }{
		{"slack", "", "invalid Slack webhook URL: "},
		{"gchat", "ftp://chat", "invalid Google Chat webhook URL: "},
		{"msteams", "http://u:hunter2", "invalid MS Teams webhook URL: "},
		{"rocket", "/path", "invalid Rocket webhook URL: "},
		{"discord", "http://", "invalid Discord webhook URL: "},
		{"irc", "http://chat", `alert provider type "irc" is not supported`},
	} {
		_, err := alerting.New(client(t), c.chat, alerting.Options{URL: c.url})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s %s: got %v", c.chat, c.url, err)
		}
	}
}

func TestProxyIsUsed(t *testing.T) {
	server := newServer(t)
	n := newSender(t, "rocket", alerting.Options{URL: "http://chat.example/hook", Proxy: server.url})
	if err := n.Send(t.Context(), alerting.Message{}); err != nil || server.seen.RequestURI != "http://chat.example/hook" {
		t.Errorf("got %v after %s", err, server.seen.RequestURI)
	}
}

func TestWantsSeverity(t *testing.T) {
	for _, c := range []struct {
		entry             string
		info, warn, error bool
	}{
		{"", true, true, true},
		{"info", true, true, true},
		{"warn", false, true, true},
		{"error", false, false, true},
	} {
		for s, want := range map[release.Severity]bool{release.Info: c.info, release.Warn: c.warn, release.Error: c.error} {
			if got := alerting.Wants(c.entry, s); got != want {
				t.Errorf("an entry %q includes %s: %t, want %t", c.entry, s, got, want)
			}
		}
	}
}

// TestGoogleChatFallsBackToTheNewerFormat checks that the same card is sent in the newer format if the recorded one is refused.
func TestGoogleChatFallsBackToTheNewerFormat(t *testing.T) {
	var bodies []string
	refusing := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		if strings.HasPrefix(string(body), refusing) {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(server.Close)
	n := newSender(t, "gchat", alerting.Options{URL: server.URL})
	message := alerting.Message{Canary: "cart.shop", Text: "Done."}
	refusing = `{"cards":`
	if err := n.Send(t.Context(), message); err != nil || len(bodies) != 2 {
		t.Fatalf("%v after %q", err, bodies)
	}
	card := strings.TrimSuffix(strings.TrimPrefix(bodies[0], `{"cards":[`), "]}")
	if want := `{"cardsV2":[{"cardId":"alert","card":` + card + "}]}"; bodies[1] != want {
		t.Errorf("second request %s, want %s", bodies[1], want)
	}
	refusing = "{"
	if err := n.Send(t.Context(), message); err == nil || len(bodies) != 4 {
		t.Errorf("both formats refused: %v after %d calls", err, len(bodies))
	}
}
