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

// maxBody is the maximum size of a payload in bytes.
const maxBody = 256 << 10

// handler answers webhooks.
type handler struct {
	log      logr.Logger
	gates    *gates
	runs     *runs
	executor *executor
	// namespacePattern matches the namespaces whose webhooks are accepted; nil accepts all.
	namespacePattern *regexp.Regexp
	types            []string
	// token must be presented for all paths except health and metrics; if it is empty, none is required.
	token     outbound.Secret
	metrics   http.Handler
	countTask counter
}

// counter counts completed tasks.
type counter func(kind, outcome string)

// routes returns the HTTP handler of the load tester. Every path without a handler of its own accepts tasks.
func (h *handler) routes() http.Handler {
	protected := http.NewServeMux()
	protected.HandleFunc("/gate/approve", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "OK") })
	protected.HandleFunc("/gate/halt", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusForbidden, "Forbidden") })
	for path, prefix := range map[string]string{"/gate/": "", "/rollback/": "rollback."} {
		protected.HandleFunc(path+"check", h.withPayload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.checkGate(w, prefix+gateName(p)) }))
		protected.HandleFunc(path+"open", h.withPayload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.setGate(w, prefix+gateName(p), true) }))
		protected.HandleFunc(path+"close", h.withPayload(func(w http.ResponseWriter, _ *http.Request, p hook.Payload) { h.setGate(w, prefix+gateName(p), false) }))
	}
	protected.HandleFunc("/", h.withPayload(h.submitTask))

	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { respond(w, http.StatusOK, "OK") })
	mux.Handle("/metrics", h.metrics)
	mux.Handle("/", h.requireToken(protected))
	return mux
}

func respond(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // fails only when the client has disconnected
}

// requireToken accepts only requests with the token: as bearer token or, because a webhook can only set it in its URL, as
// the password of basic authentication.
func (h *handler) requireToken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.token == "" || presentsToken(r, h.token) {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="load tester"`)
		respond(w, http.StatusUnauthorized, "Unauthorized: this load tester requires its token, for example as http://token:TOKEN@HOST/ in the URL of the webhook")
	})
}

func presentsToken(r *http.Request, token outbound.Secret) bool {
	presented, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, presented, ok = r.BasicAuth()
	}
	// Hashes have equal lengths, so that the duration of the comparison does not reveal the length of the token.
	a, b := sha256.Sum256([]byte(presented)), sha256.Sum256([]byte(token.Reveal()))
	return ok && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// withPayload decodes the payload of a request for next, and refuses payloads of namespaces that are not accepted.
func (h *handler) withPayload(next func(http.ResponseWriter, *http.Request, hook.Payload)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := h.readBody(w, r)
		if err != nil {
			respond(w, http.StatusBadRequest, "")
			return
		}
		p, err := readPayload(body)
		if err != nil {
			respond(w, http.StatusBadRequest, "")
			return
		}
		if h.namespacePattern != nil && !h.namespacePattern.MatchString(p.Namespace) {
			respond(w, http.StatusForbidden, "Forbidden: the load tester does not accept webhooks from this namespace: see its flag -namespace-regexp")
			return
		}
		next(w, r, p)
	}
}

// readBody reads the body of a request within readTimeout. The server's own ReadTimeout would also end requests that wait
// for a long test.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
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

func gateName(p hook.Payload) string { return p.Name + "." + p.Namespace }

func (h *handler) checkGate(w http.ResponseWriter, gate string) {
	if h.gates.isOpen(gate) {
		respond(w, http.StatusOK, "Approved")
		return
	}
	respond(w, http.StatusForbidden, "Forbidden")
}

func (h *handler) setGate(w http.ResponseWriter, gate string, open bool) {
	if err := h.gates.set(gate, open); err != nil {
		respond(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	h.log.Info("Set gate", "gate", gate, "open", open)
	respond(w, http.StatusAccepted, "")
}

// submitTask starts a task. A background task is answered at once; any other task is answered with its result.
func (h *handler) submitTask(w http.ResponseWriter, r *http.Request, p hook.Payload) {
	t, refused := newTask(p, h.types)
	if refused != nil {
		respond(w, refused.status, refused.text)
		return
	}
	current, fresh, err := h.runs.start(runName(t, r.Header.Get("Serin-Key")), !t.background, func(ctx context.Context) result {
		taskResult := h.executor.runTask(ctx, t)
		h.countTask(t.kind, outcome(taskResult.err))
		return taskResult
	})
	if err != nil {
		w.Header().Set("Retry-After", "5")
		respond(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if !fresh {
		h.log.V(1).Info("Joined running task", "canary", t.canary, "task", t.id())
	}
	if t.background {
		respond(w, http.StatusAccepted, "")
		return
	}
	select {
	case <-current.done:
	case <-r.Context().Done():
		return // the client disconnected; the task continues, for a client that repeats the request
	}
	h.writeResult(w, t, current.result)
}

// writeResult answers with the result of a task.
func (h *handler) writeResult(w http.ResponseWriter, t task, taskResult result) {
	switch {
	case errors.Is(taskResult.err, errStopped):
		respond(w, http.StatusServiceUnavailable, taskResult.err.Error())
	case taskResult.err != nil:
		respond(w, http.StatusInternalServerError, taskResult.err.Error())
	case t.returnOutput:
		respond(w, http.StatusOK, taskResult.output)
	default:
		respond(w, http.StatusOK, "")
	}
}

// runName returns the name that requests for the same run share; empty: the run belongs to this request alone. All
// requests for one background task are one run. Other requests are one run if they have the same key: Serin sends it
// again when it repeats a request because the answer was lost.
func runName(t task, key string) string {
	switch {
	case t.background:
		return "task " + t.id()
	case key != "":
		return "request " + t.id() + " " + key
	default:
		return ""
	}
}

// The outcomes of a task, as values of the metric's label.
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
