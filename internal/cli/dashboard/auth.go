package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

// viewer is a user who views the dashboard.
type viewer struct {
	hub     *hub
	session *cluster.Session
	reviews *reviews
}

func newViewer(h *hub, session *cluster.Session) viewer {
	return viewer{hub: h, session: session, reviews: &reviews{isPermitted: session.IsPermitted, clock: session.Clock, known: map[cluster.Permission]review{}}}
}

// authenticator identifies viewers.
type authenticator interface {
	// viewer returns the viewer who sent a request. Errors are messages for the viewer.
	viewer(r *http.Request) (*viewer, error)
	// signIn handles the request of a viewer who is not signed in yet, and reports whether it did.
	signIn(w http.ResponseWriter, r *http.Request) (handled bool)
	// usesToken reports whether viewers sign in with a token.
	usesToken() bool
}

// errNotSignedIn: the viewer has not signed in, or the session has ended.
var errNotSignedIn = errors.New("you are not signed in")

// cookieName returns the name of the cookie of a viewer. Browsers send the cookies of one host to all of its ports.
func cookieName(r *http.Request) string {
	name := "serin-dashboard"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	return name
}

func setCookie(w http.ResponseWriter, r *http.Request, value string) {
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: value, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode}) //nolint:gosec // without TLS the dashboard listens on loopback addresses only
}

// newSecret returns 256 random bits as text.
func newSecret() string { return rand.Text() + rand.Text() }

// linkAuthenticator lets one user in: the one who started the program, by the link that it printed. The link works once.
type linkAuthenticator struct {
	user *viewer

	mu sync.Mutex
	// link is the token of the link; empty: it was used. cookie is the value of the cookie.
	link, cookie string
}

func (a *linkAuthenticator) viewer(r *http.Request) (*viewer, error) {
	cookie, err := r.Cookie(cookieName(r))
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil || a.cookie == "" || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(a.cookie)) != 1 {
		return nil, fmt.Errorf("%w: open the link that serin dashboard printed; it works once, so start the command again if it was used", errNotSignedIn)
	}
	return a.user, nil
}

func (a *linkAuthenticator) signIn(w http.ResponseWriter, r *http.Request) bool {
	token := r.URL.Query().Get("token")
	if token == "" || r.Method != http.MethodGet {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link == "" || subtle.ConstantTimeCompare([]byte(token), []byte(a.link)) != 1 {
		return false
	}
	a.link, a.cookie = "", newSecret()
	setCookie(w, r, a.cookie)
	http.Redirect(w, r, "/", http.StatusSeeOther) // the token disappears from the address
	return true
}

func (a *linkAuthenticator) usesToken() bool { return false }

// The limits of viewers with tokens.
const (
	maxViewers  = 1000
	sessionTime = 12 * time.Hour
	maxToken    = 16 << 10
)

// tokenAuthenticator lets users in with a bearer token for the API server, which they paste once, or which a proxy adds to each
// request. It passes the token to the API server unchanged, and stores it in memory only.
type tokenAuthenticator struct {
	// connect creates the session of a token.
	connect func(token string) (*cluster.Session, error)
	newHub  func(*cluster.Session) *hub
	clock   clock.PassiveClock

	mu sync.Mutex
	// viewers are the viewers by the hashes of their tokens, cookies the hashes by the values of cookies.
	viewers map[string]*tokenViewer
	cookies map[string]string
}

type tokenViewer struct {
	viewer

	until time.Time
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (a *tokenAuthenticator) viewer(r *http.Request) (*viewer, error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.viewerOf(r.Context(), token)
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, errNotSignedIn
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.viewers[a.cookies[cookie.Value]]
	if known == nil || a.clock.Now().After(known.until) {
		return nil, errNotSignedIn
	}
	return &known.viewer, nil
}

// viewerOf returns the viewer with a token, after the API server has accepted it.
func (a *tokenAuthenticator) viewerOf(ctx context.Context, token string) (*viewer, error) {
	hash := hashOf(token)
	a.mu.Lock()
	known := a.viewers[hash]
	a.mu.Unlock()
	if known != nil && a.clock.Now().Before(known.until) {
		return &known.viewer, nil
	}
	session, err := a.connect(token)
	if err != nil {
		return nil, err
	}
	if _, err := session.UserName(ctx); err != nil {
		return nil, fmt.Errorf("%w: the API server does not accept the token: %w", errNotSignedIn, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forgetExpired()
	if len(a.viewers) >= maxViewers {
		return nil, fmt.Errorf("%w: too many viewers are signed in: try again later", errNotSignedIn)
	}
	known = &tokenViewer{viewer: newViewer(a.newHub(session), session), until: a.clock.Now().Add(sessionTime)}
	a.viewers[hash] = known
	return &known.viewer, nil
}

func (a *tokenAuthenticator) forgetExpired() {
	for hash, known := range a.viewers {
		if a.clock.Now().After(known.until) {
			delete(a.viewers, hash)
		}
	}
	for cookie, hash := range a.cookies {
		if a.viewers[hash] == nil {
			delete(a.cookies, cookie)
		}
	}
}

func (a *tokenAuthenticator) signIn(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost || r.URL.Path != "/api/v1/session" {
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxToken)
	token := strings.TrimSpace(r.PostFormValue("token"))
	if token == "" {
		writeProblem(w, http.StatusBadRequest, errors.New("the token is missing: paste a bearer token for the API server, such as that of: kubectl create token NAME"))
		return true
	}
	if _, err := a.viewerOf(r.Context(), token); err != nil {
		writeProblem(w, http.StatusUnauthorized, err)
		return true
	}
	cookie := newSecret()
	a.mu.Lock()
	a.cookies[cookie] = hashOf(token)
	a.mu.Unlock()
	setCookie(w, r, cookie)
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (a *tokenAuthenticator) usesToken() bool { return true }
