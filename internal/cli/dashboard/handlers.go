package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// The intervals of a stream.
const (
	heartbeatInterval = 15 * time.Second
	// writeTimeout is the time after which a browser that does not read is disconnected.
	writeTimeout = 10 * time.Second
	// firstTimeout is the maximum time for which a request for a document waits for the first data.
	firstTimeout = 15 * time.Second
)

// maxOrder is the maximum size of an order in bytes, maxReason that of its reason.
const (
	maxOrder  = 16 << 10
	maxReason = 500
)

// errOutdated: the release is not in the state that the viewer saw.
var errOutdated = errors.New("the release that you saw has ended or has reached another step: look at it again")

// errInvalidOrder: the order is not one of the dashboard.
var errInvalidOrder = errors.New("invalid order")

func parseFilter(r *http.Request) (filter, error) {
	f := filter{namespace: r.URL.Query().Get("namespace")}
	if text := r.URL.Query().Get("selector"); text != "" {
		var err error
		if f.selector, err = labels.Parse(text); err != nil {
			return f, fmt.Errorf("read the selector: %w: use for example team=shop", err)
		}
	}
	return f, nil
}

// getFleet returns all releases once.
func (s *Server) getFleet(w http.ResponseWriter, r *http.Request, v *viewer) {
	f, err := parseFilter(r)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	ctx, cancel := context.WithTimeout(r.Context(), firstTimeout)
	defer cancel()
	for {
		fleet, _, changed, hasNews := v.hub.fleet(0, f)
		if hasNews {
			writeJSON(w, http.StatusOK, fleet)
			return
		}
		select {
		case <-ctx.Done():
			writeProblem(w, http.StatusGatewayTimeout, errors.New("the cluster does not respond: try again"))
			return
		case <-changed:
		}
	}
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEventWriter(w http.ResponseWriter) eventWriter {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not delay events
	return eventWriter{w, http.NewResponseController(w)}
}

// write sends one event; id is empty for an event that changes nothing.
func (e eventWriter) write(name, id string, document any) error {
	text, err := json.Marshal(document)
	if err != nil {
		return fmt.Errorf("write the event: %w", err)
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // a deadline of the connection
	if id != "" {
		name += "\nid: " + id
	}
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, text); err != nil { //nolint:gosec // JSON, of a type that browsers do not render
		return err
	}
	return e.control.Flush()
}

// getStream sends all releases and then their changes, or the details of one release, until the viewer leaves.
func (s *Server) getStream(w http.ResponseWriter, r *http.Request, v *viewer) {
	f, err := parseFilter(r)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	ctx := r.Context()    // it also ends with the server
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	if name := r.URL.Query().Get("release"); name != "" {
		parts := strings.Split(name, "/")
		if len(parts) != 3 {
			parts = make([]string, 3)
		}
		key, ok := parseKey(parts[0], parts[1], parts[2])
		if !ok {
			writeProblem(w, http.StatusBadRequest, fmt.Errorf("%q names no release: use canary/NAMESPACE/NAME or rollout/NAMESPACE/NAME", name))
			return
		}
		streamRelease(ctx, newEventWriter(w), v.hub, key)
		return
	}
	streamFleet(ctx, newEventWriter(w), v.hub, f, r.Header.Get("Last-Event-ID"))
}

// streamFleet sends the releases. lastID is the ID of the last event that a browser received before it reconnected.
func streamFleet(ctx context.Context, out eventWriter, h *hub, f filter, lastID string) {
	since := uint64(0)
	if epoch, version, ok := strings.Cut(lastID, "-"); ok && epoch == h.epoch {
		since, _ = strconv.ParseUint(version, 10, 64)
	}
	heartbeat := h.session.Clock.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	for {
		fleet, version, changed, hasNews := h.fleet(since, f)
		if hasNews {
			if out.write("fleet", h.epoch+"-"+strconv.FormatUint(version, 10), fleet) != nil {
				return
			}
		}
		since = version
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-heartbeat.C():
			if out.write("heartbeat", "", h.heartbeat()) != nil {
				return
			}
		}
	}
}

// streamRelease sends the details of one release when they change.
func streamRelease(ctx context.Context, out eventWriter, h *hub, key explain.Key) {
	heartbeat := h.session.Clock.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	var sent uint64
	isFirst, wasGone := true, false
	for {
		e, version, isReady, changed := h.find(key)
		switch {
		case !isReady:
		case e == nil && !wasGone:
			wasGone = true
			if out.write("release", "", Detail{Status: h.heartbeat(), Gone: true, Actions: []Action{}, History: []explain.PastRelease{}}) != nil {
				return
			}
		case e != nil && (isFirst || version != sent || wasGone):
			detail := h.describeRelease(ctx, e)
			if out.write("release", "", detail) != nil {
				return
			}
			sent, isFirst, wasGone = version, false, false
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-heartbeat.C():
			if out.write("heartbeat", "", h.heartbeat()) != nil {
				return
			}
		}
	}
}

// keyOf parses the path of a request for one release; false: it has written the response.
func keyOf(w http.ResponseWriter, r *http.Request) (explain.Key, bool) {
	key, ok := parseKey(r.PathValue("kind"), r.PathValue("namespace"), r.PathValue("name"))
	if !ok {
		writeProblem(w, http.StatusNotFound, fmt.Errorf("%q is not a kind of release: use canary or rollout", r.PathValue("kind")))
	}
	return key, ok
}

func nameOf(key explain.Key) cluster.Name { return cluster.Name{Kind: key.Kind, Name: key.Name} }

// await waits for the first data, and returns the entry of a release; nil: it has written the response.
func (s *Server) await(w http.ResponseWriter, r *http.Request, h *hub, key explain.Key) *entry {
	ctx, cancel := context.WithTimeout(r.Context(), firstTimeout)
	defer cancel()
	for {
		e, _, isReady, changed := h.find(key)
		if isReady && e == nil {
			writeProblem(w, http.StatusNotFound, fmt.Errorf("%s %s in namespace %s was not found", key.Kind, key.Name, key.Namespace))
		}
		if isReady {
			return e
		}
		select {
		case <-ctx.Done():
			writeProblem(w, http.StatusGatewayTimeout, errors.New("the cluster does not respond: try again"))
			return nil
		case <-changed:
		}
	}
}

func (s *Server) getRelease(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	if e := s.await(w, r, v.hub, key); e != nil {
		writeJSON(w, http.StatusOK, v.hub.describeRelease(r.Context(), e))
	}
}

func (s *Server) getReport(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	e := s.await(w, r, v.hub, key)
	if e == nil {
		return
	}
	detail := v.hub.describeRelease(r.Context(), e)
	w.Header().Set("Content-Type", "text/markdown; charset=utf-8")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", key.Namespace+"-"+key.Name+".md"))
	_, _ = w.Write([]byte(explain.Report(&detail.Release, explain.History{Releases: detail.History}, detail.Status.Now)))
}

func (s *Server) getPermission(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	missing, err := v.session.MissingPermissions(r.Context(), key.Kind, key.Namespace)
	if err != nil {
		writeProblem(w, statusOf(err), err)
		return
	}
	writeJSON(w, http.StatusOK, Permission{Allowed: len(missing) == 0, Missing: missing})
}

// getCheck checks the cluster, or a release in it, as serin check does.
func (s *Server) getCheck(w http.ResponseWriter, r *http.Request, v *viewer) {
	request := cluster.CheckRequest{Namespace: r.PathValue("namespace")}
	if request.Namespace == "" {
		request.Namespace = s.options.Selections[len(s.options.Selections)-1].Namespace
	}
	if r.PathValue("name") != "" {
		key, ok := keyOf(w, r)
		if !ok {
			return
		}
		name := nameOf(key)
		request.Release = &name
	}
	report, err := v.session.Check(r.Context(), request)
	if err != nil {
		writeProblem(w, statusOf(err), err)
		return
	}
	writeJSON(w, http.StatusOK, report)
}

// postOrder sends a command.
func (s *Server) postOrder(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		writeProblem(w, http.StatusUnsupportedMediaType, errors.New("an order is a document of the type application/json"))
		return
	}
	var order Order
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxOrder))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&order); err != nil {
		writeProblem(w, http.StatusBadRequest, fmt.Errorf("%w: %w", errInvalidOrder, err))
		return
	}
	result, err := carryOut(r.Context(), v.session, key, order)
	if err != nil {
		writeProblem(w, statusOf(err), err)
		return
	}
	writeJSON(w, http.StatusAccepted, result)
}

// carryOut sends the command of an order, if the release is in the state that the viewer saw.
func carryOut(ctx context.Context, session *cluster.Session, key explain.Key, order Order) (OrderResult, error) {
	if len(order.Reason) > maxReason {
		return OrderResult{}, fmt.Errorf("%w: the reason is longer than %d bytes", errInvalidOrder, maxReason)
	}
	planned, err := planOrder(ctx, session, key, order)
	switch {
	case err != nil:
		return OrderResult{}, err
	case order.Run != "" && order.Run != planned.Subject():
		return OrderResult{}, errOutdated
	}
	if err := session.SendCommand(ctx, planned); err != nil {
		return OrderResult{}, err
	}
	result := OrderResult{Effect: planned.Effect}
	if err := session.RecordCommand(ctx, planned, order.Reason); err != nil {
		result.Warnings = append(result.Warnings, err.Error())
	}
	if warning := session.ControllerWarning(ctx, planned); warning != "" {
		result.Warnings = append(result.Warnings, warning)
	}
	return result, nil
}

// planOrder plans the command of an order. A command that depends on what the viewer saw must name it.
func planOrder(ctx context.Context, session *cluster.Session, key explain.Key, order Order) (*cluster.PlannedCommand, error) {
	name := nameOf(key)
	switch order.Verb {
	case "undo":
		return session.PlanUndo(ctx, key.Namespace, name, 0)
	case "restart":
		return session.PlanRestart(ctx, key.Namespace, name)
	case "approve", "deny":
		if order.Gate == "" || order.Run == "" {
			return nil, fmt.Errorf("%w: %s requires gate and run", errInvalidOrder, order.Verb)
		}
		return session.PlanAnswer(ctx, cluster.Answer(order.Verb), key.Namespace, name, order.Gate)
	}
	for _, c := range commands {
		if c.verb != order.Verb || c.full != order.Full {
			continue
		}
		if order.Run == "" {
			return nil, fmt.Errorf("%w: %s requires run, which identifies what you saw", errInvalidOrder, order.Verb)
		}
		return session.PlanCommand(ctx, c.command, key.Namespace, name)
	}
	return nil, fmt.Errorf("%w: there is no verb %q", errInvalidOrder, order.Verb)
}
