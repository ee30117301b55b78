package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// maxOrder is the maximum size of an order in bytes, maxReason that of its reason.
const (
	maxOrder  = 16 << 10
	maxReason = 500
)

// errOutdated: the release is not in the state that the viewer saw.
var errOutdated = errors.New("the release that you saw has ended or has reached another step: look at it again")

// errNoResponse: the first data has not arrived in time.
var errNoResponse = errors.New("the cluster does not respond: try again")

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
	var fleet Fleet
	isReady := v.hub.await(r.Context(), func() (changed <-chan struct{}, isReady bool) {
		fleet, _, changed, isReady = v.hub.fleet(0, f)
		return changed, isReady
	})
	if !isReady {
		writeProblem(w, http.StatusGatewayTimeout, errNoResponse)
		return
	}
	writeJSON(w, http.StatusOK, fleet)
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

// findEntry returns the entry of a release, after the first data; nil: it has written the response.
func findEntry(w http.ResponseWriter, r *http.Request, h *hub, key explain.Key) *entry {
	var e *entry
	isReady := h.await(r.Context(), func() (changed <-chan struct{}, isReady bool) {
		e, _, isReady, changed = h.find(key)
		return changed, isReady
	})
	switch {
	case !isReady:
		err := errNoResponse
		if status := h.heartbeat(); status.Lost {
			err = errors.New(strings.Join(status.Notes, "; "))
		}
		writeProblem(w, http.StatusGatewayTimeout, err)
	case e == nil:
		writeProblem(w, http.StatusNotFound, fmt.Errorf("%s %s in namespace %s was not found", key.Kind, key.Name, key.Namespace))
	}
	return e
}

func (s *Server) getRelease(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	if e := findEntry(w, r, v.hub, key); e != nil {
		writeJSON(w, http.StatusOK, v.hub.describeRelease(r.Context(), e))
	}
}

func (s *Server) getReport(w http.ResponseWriter, r *http.Request, v *viewer) {
	key, ok := keyOf(w, r)
	if !ok {
		return
	}
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	e := findEntry(w, r, v.hub, key)
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
	defer v.hub.enter()() //nolint:contextcheck // the hub outlives the request
	e := findEntry(w, r, v.hub, key)
	if e == nil {
		return
	}
	missing, err := v.reviews.missing(r.Context(), permissionsFor(e.observed))
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

// getControllers returns the installations of Serin.
func (s *Server) getControllers(w http.ResponseWriter, r *http.Request, v *viewer) {
	found, unread := v.session.Installations(r.Context())
	document := Controllers{Controllers: []ControllerInstallation{}, Unread: unread}
	for _, one := range found {
		document.Controllers = append(document.Controllers, ControllerInstallation(one))
	}
	writeJSON(w, http.StatusOK, document)
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
	session.SignCommand(ctx, planned, order.Reason)
	if err := session.SendCommand(ctx, planned); err != nil {
		return OrderResult{}, err
	}
	result := OrderResult{Effect: planned.Effect}
	if err := session.RecordCommand(ctx, planned); err != nil {
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
	errNoRun := fmt.Errorf("%w: %s requires run, which identifies what you saw", errInvalidOrder, order.Verb)
	switch order.Verb {
	case "undo":
		if order.Run == "" {
			return nil, errNoRun
		}
		return session.PlanUndo(ctx, key.Namespace, name, 0)
	case "restart":
		return session.PlanRestart(ctx, key.Namespace, name, 0)
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
			return nil, errNoRun
		}
		return session.PlanCommand(ctx, c.command, key.Namespace, name)
	}
	return nil, fmt.Errorf("%w: there is no verb %q", errInvalidOrder, order.Verb)
}
