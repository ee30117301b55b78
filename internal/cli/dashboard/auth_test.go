package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// tokenDashboard is an authenticator whose API server accepts all tokens.
type tokenDashboard struct {
	*tokenAuthenticator

	t     *testing.T
	clock *clocktesting.FakePassiveClock
	// connected counts the sessions of each token.
	connected map[string]int
}

func newTokenDashboard(t *testing.T) *tokenDashboard {
	t.Helper()
	w := clitest.NewFakeCluster(t, clitest.Cart)
	d := &tokenDashboard{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), connected: map[string]int{}}
	d.tokenAuthenticator = &tokenAuthenticator{
		connect: func(token string) (*cluster.Session, error) {
			d.connected[token]++
			return w.Session, nil
		},
		newHub: func(session *cluster.Session) *hub { return newHub(t.Context(), session, []cluster.Selection{{}}) },
		clock:  d.clock, viewers: map[string]*tokenViewer{}, cookies: map[string]string{},
	}
	return d
}

// request sends a request whose token a proxy has added.
func (d *tokenDashboard) request(token string) (*viewer, error) {
	r := httptest.NewRequestWithContext(d.t.Context(), http.MethodGet, "https://dashboard/api/v1/session", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return d.viewer(r)
}

// proxied is request, which must succeed.
func (d *tokenDashboard) proxied(token string) *viewer {
	d.t.Helper()
	v, err := d.request(token)
	if err != nil {
		d.t.Fatalf("%s: %v", token, err)
	}
	return v
}

// paste signs a browser in, which may have a cookie, and returns its new one.
func (d *tokenDashboard) paste(token string, cookies ...*http.Cookie) *http.Cookie {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.t.Context(), http.MethodPost, "https://dashboard/api/v1/session", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, cookie := range cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	if !d.signIn(w, r) || w.Code != http.StatusNoContent {
		d.t.Fatalf("%s: got %d %s", token, w.Code, w.Body)
	}
	return w.Result().Cookies()[0]
}

func (d *tokenDashboard) isSignedIn(cookie *http.Cookie) bool {
	r := httptest.NewRequestWithContext(d.t.Context(), http.MethodGet, "https://dashboard/api/v1/session", nil)
	r.AddCookie(cookie)
	_, err := d.viewer(r)
	return err == nil
}

// A proxy that renews its token every few minutes uses more tokens in twelve hours than there may be viewers.
func TestRenewedTokensLockNoViewerOut(t *testing.T) {
	d := newTokenDashboard(t)
	pasted := d.paste("pasted")
	streaming := d.proxied("streaming")
	defer streaming.hub.enter()()
	for i := range maxViewers + 1 {
		d.clock.SetTime(d.clock.Now().Add(time.Millisecond))
		d.proxied(fmt.Sprint("renewed ", i))
	}
	if len(d.viewers) != maxViewers {
		t.Errorf("%d viewers are remembered, want %d", len(d.viewers), maxViewers)
	}
	if !d.isSignedIn(pasted) {
		t.Error("tokens of others have signed a browser out")
	}
	if d.proxied("streaming") != streaming {
		t.Error("tokens of others have replaced a viewer with an open stream")
	}
	if last := fmt.Sprint("renewed ", maxViewers); d.proxied(last) == nil || d.connected[last] != 1 {
		t.Error("the token that was used last was forgotten")
	}
}

func TestUnusedTokensAreForgotten(t *testing.T) {
	d := newTokenDashboard(t)
	pasted := d.paste("pasted")
	streaming := d.proxied("streaming")
	defer streaming.hub.enter()()
	d.proxied("unused")
	d.proxied("used")
	d.clock.SetTime(d.clock.Now().Add(unusedTime - time.Second))
	d.proxied("used")
	d.clock.SetTime(d.clock.Now().Add(time.Second))
	d.proxied("new")
	if d.viewers[hashOf("unused")] != nil {
		t.Error("the token that is not used any longer is remembered")
	}
	for _, token := range []string{"pasted", "streaming", "used"} {
		if d.viewers[hashOf(token)] == nil {
			t.Errorf("the token %q was forgotten", token)
		}
	}
	d.clock.SetTime(d.clock.Now().Add(sessionTime - unusedTime))
	if d.isSignedIn(pasted) {
		t.Error("the session has no end")
	}
}

// A browser whose token has expired signs in with another one.
func TestABrowserHasOneSession(t *testing.T) {
	d := newTokenDashboard(t)
	first := d.paste("first")
	second := d.paste("second", first)
	if d.isSignedIn(first) || !d.isSignedIn(second) {
		t.Error("want the new cookie alone")
	}
	d.clock.SetTime(d.clock.Now().Add(unusedTime))
	d.proxied("new")
	if d.viewers[hashOf("first")] != nil || d.viewers[hashOf("second")] == nil {
		t.Error("want the token of the new cookie alone")
	}
}

func TestCookiesOfATokenAreLimited(t *testing.T) {
	d := newTokenDashboard(t)
	first, second := d.paste("script"), d.paste("script")
	for range maxCookies - 1 {
		d.paste("script")
	}
	if d.isSignedIn(first) || !d.isSignedIn(second) || len(d.cookies) != maxCookies {
		t.Errorf("%d cookies are valid, want the last %d", len(d.cookies), maxCookies)
	}
}

func TestSignedInViewersAreLimited(t *testing.T) {
	d := newTokenDashboard(t)
	for i := range maxViewers {
		d.paste(fmt.Sprint("pasted ", i))
	}
	if _, err := d.request("another"); err == nil || !strings.Contains(err.Error(), "too many viewers") {
		t.Errorf("got %v, want a refusal", err)
	}
}
