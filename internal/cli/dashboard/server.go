// Package dashboard serves the dashboard: pages that show releases live, and send the commands of their viewer.
//
// It knows HTTP, viewers and what they have seen. It shows the documents of package explain and sends commands through package
// cluster, with the permissions of the viewer. It must not know how a release decides or how it is described.
package dashboard

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/cli/cluster"
)

//go:embed assets
var assets embed.FS

// Options configure a server.
type Options struct {
	// Session is that of the user who started the program.
	Session *cluster.Session
	// Connect creates the session of a viewer who signs in with a bearer token; nil: viewers sign in with the link, as the user of
	// Session.
	Connect func(token string) (*cluster.Session, error)
	// Selections are the releases that are shown: the first selection that the viewer has permission to list.
	Selections []cluster.Selection
	// Hosts are the values of the Host header that are accepted, which protects against DNS rebinding; none: all.
	Hosts []string
	// Clock limits the time for which viewers are signed in.
	Clock clock.PassiveClock
	// Cluster is the name of the cluster, for the title.
	Cluster string
	// Version of Serin.
	Version string
}

// Server serves the dashboard.
type Server struct {
	options Options
	auth    authenticator
	link    *linkAuthenticator
	handler http.Handler
	// ctx is done when the server is closed, which ends all streams and hubs.
	ctx   context.Context //nolint:containedctx // it outlives every request
	close context.CancelFunc
	index []byte
}

// New creates a server, which sends no requests before the first viewer. The caller must call Close.
func New(base context.Context, o Options) (*Server, error) {
	ctx, cancel := context.WithCancel(base)
	s := &Server{options: o, ctx: ctx, close: cancel}
	if o.Connect == nil {
		s.link = &linkAuthenticator{user: new(newViewer(newHub(ctx, o.Session, o.Selections), o.Session)), link: newSecret()}
		s.auth = s.link
	} else {
		s.auth = &tokenAuthenticator{
			connect: o.Connect, newHub: func(session *cluster.Session) *hub { return newHub(ctx, session, o.Selections) }, clock: o.Clock,
			viewers: map[string]*tokenViewer{}, cookies: map[string]string{},
		}
	}
	var err error
	if s.index, err = renderIndex(o, s.auth.usesToken()); err != nil {
		return nil, err
	}
	s.handler = s.routes()
	return s, nil
}

// Close ends all streams.
func (s *Server) Close() { s.close() }

// Link returns the path with which the user signs in; empty if viewers sign in with tokens.
func (s *Server) Link() string {
	if s.link == nil {
		return ""
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	return "/?token=" + s.link.link
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// policy allows the files of the dashboard only: no script in a page, and no other server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// healthPath is the path of probes. Its response contains no data.
const healthPath = "/healthz"

func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v1/releases", s.withViewer(s.getFleet))
	api.HandleFunc("GET /api/v1/stream", s.withViewer(s.getStream))
	api.HandleFunc("GET /api/v1/session", s.withViewer(func(w http.ResponseWriter, _ *http.Request, _ *viewer) { w.WriteHeader(http.StatusNoContent) }))
	api.HandleFunc("GET /api/v1/check", s.withViewer(s.getCheck))
	api.HandleFunc("GET /api/v1/controllers", s.withViewer(s.getControllers))
	const release = "/api/v1/releases/{kind}/{namespace}/{name}"
	api.HandleFunc("GET "+release, s.withViewer(s.getRelease))
	api.HandleFunc("GET "+release+"/can", s.withViewer(s.getPermission))
	api.HandleFunc("GET "+release+"/check", s.withViewer(s.getCheck))
	api.HandleFunc("GET "+release+"/report.md", s.withViewer(s.getReport))
	api.HandleFunc("POST "+release+"/orders", s.withViewer(s.postOrder))
	api.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, http.StatusNotFound, errors.New("the API has no "+r.Method+" "+r.URL.Path+": see docs/dashboard.md"))
	})
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // the folder is embedded
	}
	api.Handle("GET /assets/", cacheable(http.StripPrefix("/assets/", http.FileServerFS(files))))
	api.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	api.HandleFunc("/", s.getIndex)
	sameOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if r.URL.Path != healthPath && !s.isOwnHost(r) { // the kubelet sends its probes to the address of the pod
			writeProblem(w, http.StatusMisdirectedRequest, errors.New("this address is not that of the dashboard: open "+strings.Join(s.options.Hosts, " or ")))
			return
		}
		if err := sameOrigin.Check(r); err != nil {
			writeProblem(w, http.StatusForbidden, err)
			return
		}
		if s.auth.signIn(w, r) {
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the end of the program ends the request
		api.ServeHTTP(w, r.WithContext(ctx))
	})
}

// isOwnHost reports whether a request was sent to an accepted host, and by a page of it.
func (s *Server) isOwnHost(r *http.Request) bool {
	if len(s.options.Hosts) == 0 {
		return true
	}
	if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(s.options.Hosts, strings.TrimPrefix(strings.TrimPrefix(origin, "http://"), "https://")) {
		return false
	}
	return slices.Contains(s.options.Hosts, r.Host)
}

// assetVersion is the hash of the files, which their addresses contain, so that browsers may cache them.
func assetVersion() string {
	sum := sha256.New()
	_ = fs.WalkDir(assets, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := assets.ReadFile(path)
		_, _ = sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

func cacheable(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("v") != "" {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		files.ServeHTTP(w, r)
	})
}

// renderIndex renders the page, which is the same for all viewers and contains no data.
func renderIndex(o Options, usesToken bool) ([]byte, error) {
	page, err := template.ParseFS(assets, "assets/index.html")
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	err = page.Execute(&b, map[string]any{"Cluster": o.Cluster, "Version": o.Version, "Assets": assetVersion(), "Token": usesToken})
	return []byte(b.String()), err
}

// getIndex serves the page for all paths: the script shows what the path names.
func (s *Server) getIndex(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		writeProblem(w, http.StatusMethodNotAllowed, errors.New("pages are read with GET"))
		return
	}
	if strings.Contains(r.URL.Path, ".") && !strings.HasPrefix(r.URL.Path, "/release/") {
		writeProblem(w, http.StatusNotFound, errors.New("there is no "+r.URL.Path))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(s.index)
}

// withViewer calls a handler for a viewer who is signed in.
func (s *Server) withViewer(handle func(http.ResponseWriter, *http.Request, *viewer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := s.auth.viewer(r)
		if err != nil {
			code := http.StatusUnauthorized
			if !errors.Is(err, errNotSignedIn) {
				code = http.StatusBadGateway
			}
			writeProblem(w, code, err)
			return
		}
		handle(w, r, v)
	}
}

func writeJSON(w http.ResponseWriter, code int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(document)
}

func writeProblem(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, Problem{Error: err.Error()})
}

// statusOf returns the HTTP status for an error of package cluster.
func statusOf(err error) int {
	switch {
	case isForbidden(err):
		return http.StatusForbidden
	case errors.Is(err, cluster.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, cluster.ErrNoEffect), errors.Is(err, cluster.ErrRefused), errors.Is(err, errOutdated):
		return http.StatusConflict
	case errors.Is(err, errInvalidOrder):
		return http.StatusBadRequest
	default:
		return http.StatusBadGateway
	}
}

func isForbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
