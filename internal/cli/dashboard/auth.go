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
	"slices"
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
	// unusedTime is the time for which a token of a proxy is remembered after its last request. A renewed token replaces it, so it may
	// never be used again.
	unusedTime = 10 * time.Minute
	maxToken   = 16 << 10
	// maxCookies is the maximum number of cookies of a token. A script that signs in again and again ends its own oldest session.
	maxCookies = 20
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
	// used is the time of the last request.
	used time.Time
	// cookies are the last cookies of this viewer, of which a browser may have returned some.
	cookies []string
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (a *tokenAuthenticator) viewer(r *http.Request) (*viewer, error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return a.viewerOf(r.Context(), token, "")
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, errNotSignedIn
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.find(a.cookies[cookie.Value], ""); known != nil {
		return known, nil
	}
	return nil, errNotSignedIn
}

// viewerOf returns the viewer with a token, after the API server has accepted it. cookie is the cookie that the viewer receives;
// empty: none.
func (a *tokenAuthenticator) viewerOf(ctx context.Context, token, cookie string) (*viewer, error) {
	hash := hashOf(token)
	a.mu.Lock()
	known := a.find(hash, cookie)
	a.mu.Unlock()
	if known != nil {
		return known, nil
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
	if known := a.find(hash, cookie); known != nil { // another request of this viewer was faster
		return known, nil
	}
	a.forget()
	if len(a.viewers) >= maxViewers {
		return nil, fmt.Errorf("%w: too many viewers are signed in: try again later", errNotSignedIn)
	}
	a.viewers[hash] = &tokenViewer{viewer: newViewer(a.newHub(session), session), until: a.clock.Now().Add(sessionTime)}
	return a.find(hash, cookie), nil
}

// find returns the viewer with the hash of a token, who uses it now and receives the cookie, if any; nil: there is none. a.mu must be
// locked.
func (a *tokenAuthenticator) find(hash, cookie string) *viewer {
	known, now := a.viewers[hash], a.clock.Now()
	if known == nil || !now.Before(known.until) {
		return nil
	}
	known.used = now
	if cookie != "" {
		a.cookies[cookie] = hash
		if known.cookies = append(known.cookies, cookie); len(known.cookies) > maxCookies {
			delete(a.cookies, known.cookies[0])
			known.cookies = slices.Delete(known.cookies, 0, 1)
		}
	}
	return &known.viewer
}

// forget forgets the viewers whose time is over, and those without a cookie who do not use their token any longer; at the limit also
// the one of the latter whose last request is the oldest, which may return with the same token. a.mu must be locked.
func (a *tokenAuthenticator) forget() {
	now := a.clock.Now()
	for hash, known := range a.viewers {
		if !now.Before(known.until) {
			delete(a.viewers, hash)
		}
	}
	signedIn := map[string]bool{}
	for cookie, hash := range a.cookies {
		if a.viewers[hash] == nil {
			delete(a.cookies, cookie)
		}
		signedIn[hash] = true
	}
	oldest := ""
	for hash, known := range a.viewers {
		switch {
		case signedIn[hash] || known.hub.isFollowing():
		case now.Sub(known.used) >= unusedTime:
			delete(a.viewers, hash)
		case oldest == "" || known.used.Before(a.viewers[oldest].used):
			oldest = hash
		}
	}
	if len(a.viewers) >= maxViewers {
		delete(a.viewers, oldest)
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
	cookie := newSecret()
	if _, err := a.viewerOf(r.Context(), token, cookie); err != nil {
		writeProblem(w, http.StatusUnauthorized, err)
		return true
	}
	if before, err := r.Cookie(cookieName(r)); err == nil { // the new cookie replaces it in the browser
		a.mu.Lock()
		delete(a.cookies, before.Value)
		a.mu.Unlock()
	}
	setCookie(w, r, cookie)
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (a *tokenAuthenticator) usesToken() bool { return true }
