package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// The delays of a hub.
const (
	// idleDelay is the time for which a hub without viewers continues to follow the releases, for viewers that reload the page.
	idleDelay = time.Minute
	// minRefresh is the minimum time between descriptions that change although the cluster does not.
	minRefresh = time.Second
	// maxReconnect is the maximum delay before a hub connects again.
	maxReconnect = 15 * time.Second
)

// maxRemoved is the number of deleted releases that a hub remembers for streams that reconnect, maxRecordings the number of releases
// whose measurements it retains.
const (
	maxRemoved    = 1000
	maxRecordings = 500
)

// hub follows the releases with the permissions of one user, for all viewers that are this user. It sends requests only while
// there are viewers.
type hub struct {
	// base is the context of the program: a hub serves many requests.
	base    context.Context //nolint:containedctx // it outlives every request
	session *cluster.Session
	// selections are the releases that are followed: the first selection that the user has permission to list.
	selections []cluster.Selection

	// epoch is the part of the IDs of events that another hub does not have.
	epoch string

	mu      sync.Mutex
	viewers int
	// stop ends the goroutines that follow; nil: there are none.
	stop context.CancelFunc
	// entered is closed when a viewer enters while they will stop soon; nil: they will not.
	entered chan struct{}
	// changed is closed at the next change.
	changed chan struct{}

	// version counts the changes. entries are all releases, with the version in which each changed last; removed are those that
	// were deleted since, and statusVersion is the version in which the status changed. removedUntil is the newest version whose
	// removals are forgotten.
	version, statusVersion, removedUntil uint64
	entries                              map[explain.Key]*entry
	removed                              map[explain.Key]uint64
	state                                cluster.State
	// failure is why the releases cannot be followed; empty: they are followed.
	failure   string
	status    Status
	describer explain.Describer
	isReady   bool
}

// entry is one release.
type entry struct {
	version  uint64
	observed explain.Observation
	release  explain.Release
	fleet    explain.FleetRelease
	labels   labels.Set
	recorder *explain.Recorder

	// detail is the last detail that was read, with what it was read for.
	detailMu      sync.Mutex
	detail        *readDetail
	detailVersion explain.Version
}

// readDetail is the part of a detail that is read from the API server.
type readDetail struct {
	tree    *explain.Tree
	history []explain.PastRelease
	err     error
}

func newHub(base context.Context, session *cluster.Session, selections []cluster.Selection) *hub {
	return &hub{base: base, epoch: rand.Text(), session: session, selections: selections, changed: make(chan struct{}), entries: map[explain.Key]*entry{}, removed: map[explain.Key]uint64{}}
}

// enter registers a viewer, for whom the hub follows the releases until leave is called.
func (h *hub) enter() (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers++
	if h.entered != nil {
		close(h.entered)
		h.entered = nil
	}
	if h.stop == nil {
		ctx, cancel := context.WithCancel(h.base)
		h.stop = cancel
		h.interruptRecordings()
		go h.follow(ctx)
		go h.refresh(ctx)
	}
	return sync.OnceFunc(h.leave)
}

// leave stops to follow the releases after a while if there are no viewers then.
func (h *hub) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.viewers--
	if h.viewers > 0 || h.stop == nil {
		return
	}
	entered := make(chan struct{})
	h.entered = entered
	go func() {
		select {
		case <-entered:
		case <-h.base.Done():
		case <-h.session.Clock.After(idleDelay):
			h.stopIdle(entered)
		}
	}()
}

// stopIdle stops the goroutines that follow, unless a viewer has entered.
func (h *hub) stopIdle(entered chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entered != entered || h.stop == nil {
		return
	}
	h.stop()
	h.stop, h.entered, h.isReady = nil, nil, false // the next viewer must not see an old state
}

// follow follows the releases until the context is done, and connects again after failures.
func (h *hub) follow(ctx context.Context) {
	delay, next := time.Second, 0
	for ctx.Err() == nil {
		sel := h.selections[next]
		err := h.session.Follow(ctx, sel, func(state cluster.State) bool {
			delay = time.Second
			h.update(state)
			return true
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, cluster.ErrUnreachable) && isForbidden(err) && next < len(h.selections)-1 {
			next++ // the user may have permission for less
			continue
		}
		h.fail(err)
		select {
		case <-ctx.Done():
		case <-h.session.Clock.After(delay):
		}
		delay = min(2*delay, maxReconnect)
	}
}

// refresh describes the releases again when their descriptions change by time. Many releases are described less often, so that this
// takes a twentieth of one processor at most.
func (h *hub) refresh(ctx context.Context) {
	pause := minRefresh
	for {
		h.mu.Lock()
		due := h.describer.ValidUntil()
		changed := h.changed
		h.mu.Unlock()
		var wait <-chan time.Time
		if !due.IsZero() {
			wait = h.session.Clock.After(max(due.Sub(h.session.Clock.Now()), pause))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
			continue // due may be earlier now
		case <-wait:
		}
		h.mu.Lock()
		began := h.session.Clock.Now()
		h.describe()
		pause = max(minRefresh, 20*h.session.Clock.Since(began))
		h.mu.Unlock()
	}
}

// update replaces the observed state.
func (h *hub) update(state cluster.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	version := h.version
	h.state, h.failure = state, ""
	h.describe()
	if state.Lost {
		h.interruptRecordings()
	}
	if !h.isReady && h.version == version {
		h.notify(version + 1) // viewers wait for the first state, even if nothing has changed
	}
	h.isReady = true
}

// describe describes the state, and notifies the viewers if anything changed.
func (h *hub) describe() {
	now := h.session.Clock.Now()
	version := h.version + 1
	isChanged := false
	releases := h.describer.Describe(h.state.Releases, now)
	current := make(map[explain.Key]bool, len(releases))
	for i, observed := range h.state.Releases {
		key, r := observed.Key(), &releases[i]
		current[key] = true
		e := h.entries[key]
		if e == nil {
			e = &entry{recorder: &explain.Recorder{}}
			h.entries[key] = e
			delete(h.removed, key)
		}
		fleet := explain.NewFleetRelease(observed, r)
		if e.observed == nil || e.observed.Version() != observed.Version() || !e.fleet.Equal(fleet) || !slices.Equal(e.release.Events, r.Events) {
			e.version, isChanged = version, true
			e.labels = labelsOf(observed)
			e.recorder.Record(observed, r, now)
		}
		e.observed, e.release, e.fleet = observed, *r, fleet
	}
	for key := range h.entries {
		if !current[key] {
			delete(h.entries, key)
			h.removed[key], isChanged = version, true
		}
	}
	h.forgetRemoved()
	h.forgetRecordings()
	status := Status{Controller: h.state.Controller, Notes: notesOf(h.state), Lost: h.state.Lost || h.failure != "", Summary: explain.Summarize(releases)}
	if h.failure != "" { // the state is from before
		status.Notes = []string{h.failure}
	}
	if !sameStatus(status, h.status) {
		h.statusVersion, isChanged = version, true
	}
	if status.Observed = h.status.Observed; !status.Lost {
		status.Observed = now.UTC()
	}
	h.status = status
	if isChanged {
		h.notify(version)
	}
}

// fail records that the releases cannot be followed.
func (h *hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = "the connection ended"
	if err != nil {
		h.failure = err.Error()
	}
	h.status.Lost, h.status.Notes, h.isReady = true, []string{h.failure}, true
	h.statusVersion = h.version + 1
	h.interruptRecordings()
	h.notify(h.version + 1)
}

// interruptRecordings marks the time in which the releases are not followed.
func (h *hub) interruptRecordings() {
	for _, e := range h.entries {
		e.recorder.Interrupt()
	}
}

func (h *hub) notify(version uint64) {
	h.version = version
	close(h.changed)
	h.changed = make(chan struct{})
}

// forgetRemoved bounds the number of removed releases.
func (h *hub) forgetRemoved() {
	for len(h.removed) > maxRemoved {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(h.removed)), func(a, b explain.Key) int { return cmp.Compare(h.removed[a], h.removed[b]) })
		h.removedUntil = max(h.removedUntil, h.removed[oldest])
		delete(h.removed, oldest)
	}
}

// forgetRecordings bounds the number of recordings: those of the releases that have not changed for longest are deleted.
func (h *hub) forgetRecordings() {
	var recorded []*entry
	for _, e := range h.entries {
		if len(e.recorder.Series) > 0 {
			recorded = append(recorded, e)
		}
	}
	if len(recorded) <= maxRecordings {
		return
	}
	slices.SortFunc(recorded, func(a, b *entry) int { return cmp.Compare(a.version, b.version) })
	for _, e := range recorded[:len(recorded)-maxRecordings] {
		e.recorder.Series = nil
	}
}

func notesOf(state cluster.State) []string {
	var out []string
	if note := state.Controller.Note(); note != "" && len(state.Releases) > 0 {
		out = append(out, note)
	}
	return append(out, state.Interruptions...)
}

func sameStatus(a, b Status) bool {
	return a.Controller == b.Controller && slices.Equal(a.Notes, b.Notes) && a.Lost == b.Lost && a.Summary == b.Summary
}

func labelsOf(observed explain.Observation) labels.Set {
	switch observed := observed.(type) {
	case *explain.Canary:
		return observed.Object.Labels
	case *explain.Rollout:
		return observed.Object.Labels
	default:
		return nil
	}
}

// filter selects the releases of one stream.
type filter struct {
	namespace string
	selector  labels.Selector
}

func (f filter) matches(key explain.Key, set labels.Set) bool {
	return (f.namespace == "" || key.Namespace == f.namespace) && (f.selector == nil || f.selector.Matches(set))
}

// fleet returns the changes since a version, with the version that they lead to and the channel that is closed at the next change.
// It returns all releases if the version is 0, or too old. hasNews is false if there is no change.
func (h *hub) fleet(since uint64, f filter) (fleet Fleet, version uint64, changed <-chan struct{}, hasNews bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isReady || since == h.version && since > 0 {
		return Fleet{}, since, h.changed, false
	}
	fleet = Fleet{Status: h.currentStatus(), Complete: since == 0 || since > h.version || since < h.removedUntil, Releases: []explain.FleetRelease{}}
	for key, e := range h.entries {
		if (fleet.Complete || e.version > since) && f.matches(key, e.labels) {
			fleet.Releases = append(fleet.Releases, e.fleet)
		}
	}
	slices.SortFunc(fleet.Releases, func(a, b explain.FleetRelease) int {
		return explain.Key{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}.Compare(explain.Key{Kind: b.Kind, Namespace: b.Namespace, Name: b.Name})
	})
	if !fleet.Complete {
		for key, removedAt := range h.removed {
			if removedAt > since {
				fleet.Removed = append(fleet.Removed, ReleaseKey(key))
			}
		}
	}
	return fleet, h.version, h.changed, fleet.Complete || len(fleet.Releases) > 0 || len(fleet.Removed) > 0 || h.statusVersion > since
}

func (h *hub) currentStatus() Status {
	status := h.status
	status.Now = h.session.Clock.Now().UTC()
	return status
}

// heartbeat returns the status without any change.
func (h *hub) heartbeat() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.currentStatus()
}

// find returns a release and the channel that is closed at the next change; nil: it does not exist. isReady is false before the
// releases were read for the first time.
func (h *hub) find(key explain.Key) (e *entry, version uint64, isReady bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e = h.entries[key]
	if e != nil {
		version = e.version
	}
	return e, max(version, h.statusVersion), h.isReady, h.changed
}

// observationOf returns the last observation of a release.
func (h *hub) observationOf(e *entry) explain.Observation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return e.observed
}

// queue returns the queue of releases and the channel that is closed at the next change. isReady is false before the releases were
// read for the first time.
func (h *hub) queue() (update QueueUpdate, isReady bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return QueueUpdate{Status: h.currentStatus(), Queue: explain.NewQueue(h.state.Releases)}, h.isReady, h.changed
}

// describeRelease returns the detail of a release. What is read for it from the API server is read once for all viewers.
func (h *hub) describeRelease(ctx context.Context, e *entry) Detail {
	h.mu.Lock()
	observed, r, status, now := e.observed, e.release, h.currentStatus(), h.session.Clock.Now()
	d := Detail{
		Explanation: explain.Explanation{Controller: status.Controller, Sentences: explain.Why(r, now)}, Status: status, Fleet: e.fleet,
		Weights: slices.Clone(e.recorder.Weight), Measurements: cloneSeries(e.recorder.Series), Actions: actionsFor(observed, &r), History: []explain.PastRelease{},
	}
	h.mu.Unlock()
	read := h.readDetail(ctx, e, observed)
	r.Tree = read.tree
	if read.history != nil {
		d.History = read.history
	}
	if read.err != nil {
		d.Status.Notes = append(slices.Clone(d.Status.Notes), read.err.Error())
	}
	d.Release = r
	return d
}

func cloneSeries(all []explain.Series) []explain.Series {
	out := slices.Clone(all)
	for i := range out {
		out[i].Points = slices.Clone(out[i].Points)
	}
	return out
}

// readDetail reads the tree and the history of a release, unless they were read for this version of it.
func (h *hub) readDetail(ctx context.Context, e *entry, observed explain.Observation) *readDetail {
	e.detailMu.Lock()
	defer e.detailMu.Unlock()
	if e.detail != nil && e.detail.err == nil && e.detailVersion == observed.Version() {
		return e.detail
	}
	read := &readDetail{}
	tree, err := h.session.Tree(ctx, observed, h.session.Clock.Now())
	if err != nil {
		read.err = err
	} else {
		read.tree = &tree
	}
	history, err := h.session.HistoryOf(ctx, observed)
	if err != nil {
		read.err = errors.Join(read.err, err)
	}
	read.history = history.Releases
	e.detail, e.detailVersion = read, observed.Version()
	return read
}

// parseKey parses the kind, the namespace and the name of a release in a path.
func parseKey(kind, namespace, name string) (explain.Key, bool) {
	for _, known := range []explain.Kind{explain.KindCanary, explain.KindRollout} {
		if strings.EqualFold(string(known), kind) && namespace != "" && name != "" {
			return explain.Key{Kind: known, Namespace: namespace, Name: name}, true
		}
	}
	return explain.Key{}, false
}
