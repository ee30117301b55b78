package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

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

// watch calls read at once and at each change, until read returns false or the context is done. read returns the channel that is
// closed at the next change. In between, watch calls beat at each heartbeat, which ends it in the same way.
func (h *hub) watch(ctx context.Context, read func() (changed <-chan struct{}, more bool), beat func() (more bool)) {
	heartbeat := h.session.Clock.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	for {
		changed, more := read()
		if !more {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-heartbeat.C():
			if !beat() {
				return
			}
		}
	}
}

// await calls read until it reports that the first data has arrived; false: it has not arrived in time.
func (h *hub) await(ctx context.Context, read func() (changed <-chan struct{}, isReady bool)) bool {
	ctx, cancel := context.WithTimeout(ctx, firstTimeout)
	defer cancel()
	isReady := false
	h.watch(ctx, func() (changed <-chan struct{}, more bool) {
		changed, isReady = read()
		return changed, !isReady
	}, func() bool { return true })
	return isReady
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

// write sends one event, and reports whether the viewer has received it; id is empty for an event that changes nothing.
func (e eventWriter) write(name, id string, document any) bool {
	text, err := json.Marshal(document)
	if err != nil {
		return false
	}
	_ = e.control.SetWriteDeadline(time.Now().Add(writeTimeout)) //nolint:forbidigo // a deadline of the connection
	if id != "" {
		name += "\nid: " + id
	}
	_, err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, text) //nolint:gosec // JSON, of a type that browsers do not render
	return err == nil && e.control.Flush() == nil
}

// beat sends the heartbeats of a hub.
func (e eventWriter) beat(h *hub) func() bool {
	return func() bool { return e.write("heartbeat", "", h.heartbeat()) }
}

// getStream sends all releases and then their changes, the details of one release, or the queue, until the viewer leaves.
func (s *Server) getStream(w http.ResponseWriter, r *http.Request, v *viewer) {
	f, err := parseFilter(r)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err)
		return
	}
	ctx, query := r.Context(), r.URL.Query() // the context also ends with the server
	defer v.hub.enter()()                    //nolint:contextcheck // the hub outlives the request
	switch name := query.Get("release"); {
	case name != "":
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
	case query.Has("queue"):
		streamQueue(ctx, newEventWriter(w), v.hub)
	default:
		streamFleet(ctx, newEventWriter(w), v.hub, f, r.Header.Get("Last-Event-ID"))
	}
}

// streamFleet sends the releases. lastID is the ID of the last event that a browser received before it reconnected.
func streamFleet(ctx context.Context, out eventWriter, h *hub, f filter, lastID string) {
	since := uint64(0)
	if epoch, version, ok := strings.Cut(lastID, "-"); ok && epoch == h.epoch {
		since, _ = strconv.ParseUint(version, 10, 64)
	}
	h.watch(ctx, func() (<-chan struct{}, bool) {
		fleet, version, changed, hasNews := h.fleet(since, f)
		since = version
		return changed, !hasNews || out.write("fleet", h.epoch+"-"+strconv.FormatUint(version, 10), fleet)
	}, out.beat(h))
}

// streamRelease sends the details of one release when they change.
func streamRelease(ctx context.Context, out eventWriter, h *hub, key explain.Key) {
	var sent uint64
	isFirst, wasGone, wasLost := true, false, false
	h.watch(ctx, func() (<-chan struct{}, bool) {
		e, version, isReady, changed := h.find(key)
		status := h.heartbeat()
		isLost := status.Lost && !wasLost
		wasLost = status.Lost
		switch {
		case !isReady && isLost: // until the next heartbeat, the page would be empty without a reason
			return changed, out.write("heartbeat", "", status)
		case !isReady:
			return changed, true
		case e == nil && !wasGone:
			wasGone = true
			return changed, out.write("release", "", Detail{Status: status, Gone: true, Actions: []Action{}, History: []explain.PastRelease{}})
		case e != nil && (isFirst || version != sent || wasGone):
			sent, isFirst, wasGone = version, false, false
			return changed, out.write("release", "", h.describeRelease(ctx, e))
		default:
			return changed, true
		}
	}, out.beat(h))
}

// streamQueue sends the queue of releases when it changes.
func streamQueue(ctx context.Context, out eventWriter, h *hub) {
	var sent QueueUpdate
	isFirst := true
	h.watch(ctx, func() (<-chan struct{}, bool) {
		update, isReady, changed := h.queue()
		isNews := isFirst || !sameStatus(update.Status, sent.Status) || !reflect.DeepEqual(update.Queue, sent.Queue)
		if !isReady || !isNews {
			return changed, true
		}
		sent, isFirst = update, false
		return changed, out.write("queue", "", update)
	}, out.beat(h))
}
