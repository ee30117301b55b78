package loadtester

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/serin-dev/serin/internal/hook"
	"github.com/serin-dev/serin/internal/outbound"
)

// maxBody is how many bytes of a payload are read.
const maxBody = 256 << 10

// handler answers webhooks.
type handler struct {
	log      logr.Logger
	gates    *gates
	runs     *runs
	executor *executor
	// namespaces are those whose webhooks are taken; nil: all.
	namespaces *regexp.Regexp
	types      []string
	// token has to be shown by whoever asks for more than health and metrics; empty: by nobody.
	token   outbound.Secret
	metrics http.Handler
	counts  counter
}

// counter counts the tasks that ended.
type counter func(kind, outcome string)

// routes are the paths of the load tester. Whatever is no other path takes tasks.
func (h *handler) routes() http.Handler {
	guarded := http.NewServeMux()
	guarded.HandleFunc("/gate/approve", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "OK") })
	guarded.HandleFunc("/gate/halt", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusForbidden, "Forbidden") })
	for path, prefix := range map[string]string{"/gate/": "", "/rollback/": "rollback."} {
		guarded.HandleFunc(path+"check", h.payload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.check(w, prefix+gateOf(p)) }))
		guarded.HandleFunc(path+"open", h.payload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.set(w, prefix+gateOf(p), true) }))
		guarded.HandleFunc(path+"close", h.payload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.set(w, prefix+gateOf(p), false) }))
	}
	guarded.HandleFunc("/", h.payload(h.submit))

	all := http.NewServeMux()
	all.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "OK") })
	all.Handle("/metrics", h.metrics)
	all.Handle("/", h.authorised(guarded))
	return all
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // whoever asked is gone, when this fails
}

// authorised lets those pass who show the token, as bearer token or, because a webhook can only say it in its URL, as
// the password of a user.
func (h *handler) authorised(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.token == "" || shows(r, h.token) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="load tester"`)
		answer(w, http.StatusUnauthorized, "Unauthorized: this load tester wants its token, for example as http://token:TOKEN@HOST/ in the URL of the webhook")
	})
}

func shows(r *http.Request, token outbound.Secret) bool {
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, shown, ok = r.BasicAuth()
	}
	// Sums have one length, so that the time taken tells nothing about the token's.
	a, b := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token.Reveal()))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// payload reads the payload of a call and refuses those of other namespaces.
func (h *handler) payload(then func(http.ResponseWriter, *http.Request, hook.Payload)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := h.read(w, r)
		if err != nil {
			answer(w, http.StatusBadRequest, "")
			return
		}
		p, err := readPayload(body)
		if err != nil {
			answer(w, http.StatusBadRequest, "")
			return
		}
		if h.namespaces != nil && !h.namespaces.MatchString(p.Namespace) {
			answer(w, http.StatusForbidden, "Forbidden: the load tester takes no webhooks of this namespace: see its flag -namespace-regexp")
			return
		}
		then(w, r, p)
	}
}

// read reads a body in the time that there is for that. The server's own limit would also end the wait for a long test.
func (h *handler) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	connection := http.NewResponseController(w)
	if err := connection.SetReadDeadline(h.executor.clock.Now().Add(readTimeout)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	return body, connection.SetReadDeadline(time.Time{})
}

func gateOf(p hook.Payload) string { return p.Name + "." + p.Namespace }

func (h *handler) check(w http.ResponseWriter, gate string) {
	if h.gates.isOpen(gate) {
		answer(w, http.StatusOK, "Approved")
		return
	}
	answer(w, http.StatusForbidden, "Forbidden")
}

func (h *handler) set(w http.ResponseWriter, gate string, open bool) {
	if err := h.gates.set(gate, open); err != nil {
		answer(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	h.log.Info("Set gate", "gate", gate, "open", open)
	answer(w, http.StatusAccepted, "")
}

// submit takes a task: one for the background is answered at once, of any other the answer is what came of it.
func (h *handler) submit(w http.ResponseWriter, r *http.Request, p hook.Payload) {
	t, refused := newTask(p, h.types)
	if refused != nil {
		answer(w, refused.status, refused.text)
		return
	}
	of, fresh, err := h.runs.start(runName(t, r.Header.Get("Serin-Key")), !t.background, func(ctx context.Context) result {
		came := h.executor.do(ctx, t)
		h.counts(t.kind, outcome(came.err))
		return came
	})
	if err != nil {
		w.Header().Set("Retry-After", "5")
		answer(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if !fresh {
		h.log.V(1).Info("Left task running", "canary", t.canary, "task", t.id())
	}
	if t.background {
		answer(w, http.StatusAccepted, "")
		return
	}
	select {
	case <-of.done:
	case <-r.Context().Done():
		return // the caller went; the task goes on, for a caller who asks again
	}
	h.tell(w, t, of.result)
}

// tell answers with what came of a task.
func (h *handler) tell(w http.ResponseWriter, t task, came result) {
	switch {
	case errors.Is(came.err, errStopped):
		answer(w, http.StatusServiceUnavailable, came.err.Error())
	case came.err != nil:
		answer(w, http.StatusInternalServerError, came.err.Error())
	case t.returnOutput:
		answer(w, http.StatusOK, came.output)
	default:
		answer(w, http.StatusOK, "")
	}
}

// runName tells which calls are one run: in the background all of one task; else those of one question, which Serin
// names by a key when it asks again because the answer was lost.
func runName(t task, key string) string {
	switch {
	case t.background:
		return "task " + t.id()
	case key != "":
		return "question " + t.id() + " " + key
	default:
		return ""
	}
}

// The outcomes of a task, as its metric has them.
const (
	succeeded = "success"
	failed    = "failure"
)

func outcome(err error) string {
	if err != nil {
		return failed
	}
	return succeeded
}
