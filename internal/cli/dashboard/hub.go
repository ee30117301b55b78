package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/serin-dev/serin/internal/cli/cluster"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/release"
)

// The delays of a hub.
const (
	// idleDelay is the time for which a hub without viewers continues to follow the releases, for viewers that reload the page.
	idleDelay = time.Minute
	// minRefresh is the minimum time between renewals of descriptions that change although the cluster does not.
	minRefresh = time.Second
	// maxReconnect is the maximum delay before a hub connects again.
	maxReconnect = 15 * time.Second
)

// maxRenewed is the number of descriptions that are renewed at once, so that a change of the cluster does not wait for the renewal of
// all.
const maxRenewed = 200

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
	// published is what viewers see.
	published *snapshot
	isReady   bool

	// describing is held while the next snapshot is made, and is locked before mu: viewers continue to read the published one.
	describing sync.Mutex
	describer  explain.Describer
	state      cluster.State
	// failure is why the releases cannot be followed; empty: they are followed.
	failure string
	// restriction is a note if the user has no permission to list all releases that were selected; else empty.
	restriction string
	entries     map[explain.Key]*entry
	// recordings are those of the releases that were followed until the hub stopped. They continue when it has read the releases again.
	recordings map[explain.Key]*memory
}

func newHub(base context.Context, session *cluster.Session, selections []cluster.Selection) *hub {
	return &hub{base: base, epoch: rand.Text(), session: session, selections: selections, changed: make(chan struct{}), published: &snapshot{}, entries: map[explain.Key]*entry{}, recordings: map[explain.Key]*memory{}}
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
		go h.follow(ctx)
		go h.refresh(ctx)
	}
	return sync.OnceFunc(h.leave)
}

// isFollowing reports whether there are viewers, or were a short time ago.
func (h *hub) isFollowing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stop != nil
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

// stopIdle stops the goroutines that follow, unless a viewer has entered, and forgets all but the recordings: the hub of a user who
// does not return needs little memory.
func (h *hub) stopIdle(entered chan struct{}) {
	h.describing.Lock()
	defer h.describing.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entered != entered || h.stop == nil {
		return
	}
	h.stop()
	h.stop, h.entered, h.isReady = nil, nil, false // the next viewer must not see an old state
	h.published.interruptRecordings()
	for key, e := range h.entries {
		e.memory.mu.Lock()
		h.recordings[key] = &memory{recorder: e.memory.recorder}
		e.memory.mu.Unlock()
	}
	h.describer, h.state, h.failure, h.entries = explain.Describer{}, cluster.State{}, "", map[explain.Key]*entry{}
	version := h.published.version + 1 // streams that reconnect receive all releases
	h.published = &snapshot{version: version, statusVersion: version, removedUntil: version}
}

// follow follows the releases until the context is done, and connects again after failures.
func (h *hub) follow(ctx context.Context) {
	delay, next := time.Second, 0
	h.restrict("")
	for ctx.Err() == nil {
		sel := h.selections[next]
		err := h.session.Follow(ctx, sel, func(state cluster.State) bool {
			delay = time.Second
			h.update(ctx, state)
			return true
		})
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, cluster.ErrUnreachable) && isForbidden(err) && next < len(h.selections)-1 {
			next++ // the user may have permission for less
			h.restrict(h.selections[next].Namespace)
			continue
		}
		h.fail(ctx, err)
		select {
		case <-ctx.Done():
		case <-h.session.Clock.After(delay):
		}
		delay = min(2*delay, maxReconnect)
	}
}

// restrict notes that only the releases of one namespace are shown; empty: those of all.
func (h *hub) restrict(namespace string) {
	h.describing.Lock()
	defer h.describing.Unlock()
	h.restriction = ""
	if namespace != "" {
		h.restriction = fmt.Sprintf("No permission to list the releases of all namespaces: only those of namespace %s are shown.", namespace)
	}
}

// refresh renews descriptions that change by time. Those of many releases are renewed less often, so that this takes a twentieth of
// one processor at most.
func (h *hub) refresh(ctx context.Context) {
	notBefore := h.session.Clock.Now().Add(minRefresh)
	for {
		current, _, changed := h.current()
		var wait <-chan time.Time
		if !current.due.IsZero() {
			wait = h.session.Clock.After(release.LaterOf(current.due, notBefore).Sub(h.session.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed: // due may be earlier now
		case <-wait:
			took := h.renew(ctx)
			notBefore = h.session.Clock.Now().Add(max(minRefresh, 20*took))
		}
	}
}

// renew renews some of the descriptions that time has changed, and returns how long that took.
func (h *hub) renew(ctx context.Context) time.Duration {
	h.describing.Lock()
	defer h.describing.Unlock()
	if ctx.Err() != nil { // the hub has stopped meanwhile, as in update and fail
		return 0
	}
	began := h.session.Clock.Now()
	next, isChanged := h.describe(maxRenewed)
	h.publish(next, isChanged, false)
	return h.session.Clock.Since(began)
}

// update replaces the observed state.
func (h *hub) update(ctx context.Context, state cluster.State) {
	h.describing.Lock()
	defer h.describing.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.state, h.failure = state, ""
	next, isChanged := h.describe(0)
	clear(h.recordings) // those of releases that exist continue
	h.publish(next, isChanged, true)
	if state.Lost {
		next.interruptRecordings()
	}
}

// describe returns the next snapshot, and whether it differs from the published one for viewers. It describes the releases whose
// observation is another one, and at most maxOutdated others that time has changed; h.describing must be locked.
func (h *hub) describe(maxOutdated int) (next *snapshot, isChanged bool) {
	now, before := h.session.Clock.Now(), h.published
	version := before.version + 1
	next = &snapshot{
		version: before.version, statusVersion: before.statusVersion, removed: maps.Clone(before.removed), removedUntil: before.removedUntil,
		entries: make([]*entry, len(h.state.Releases)),
	}
	var summary explain.Summary
	for i, r := range h.describer.Describe(h.state.Releases, now, maxOutdated) {
		e := h.entries[h.state.Releases[i].Key()]
		if e == nil || e.release != r {
			e = newEntry(h.state.Releases[i], r, e, h.recordings[h.state.Releases[i].Key()], version, now)
			h.entries[e.key] = e
			delete(next.removed, e.key)
			isChanged = isChanged || e.version == version
		}
		next.entries[i] = e
		summary.Count(e.fleet.Group)
	}
	isChanged = h.removeDeleted(next, version) || isChanged
	if isChanged {
		next.forgetRecordings()
	}
	next.due = h.describer.ValidUntil()
	next.status = Status{Controller: h.state.Controller, Notes: h.notes(), Lost: h.state.Lost || h.failure != "", Summary: summary}
	if h.failure != "" { // the state is from before
		next.status.Notes = []string{h.failure}
	}
	if !sameStatus(next.status, before.status) {
		next.statusVersion, isChanged = version, true
	}
	if next.status.Observed = before.status.Observed; !next.status.Lost {
		next.status.Observed = now.UTC()
	}
	if isChanged {
		next.version = version
	}
	return next, isChanged
}

// removeDeleted records the releases that the next snapshot does not contain, and reports whether there are any.
func (h *hub) removeDeleted(next *snapshot, version uint64) bool {
	if len(h.entries) == len(next.entries) { // it contains all of them
		return false
	}
	current := make(map[explain.Key]*entry, len(next.entries))
	for _, e := range next.entries {
		current[e.key] = e
	}
	if next.removed == nil {
		next.removed = map[explain.Key]uint64{}
	}
	for key := range h.entries {
		if current[key] == nil {
			next.removed[key] = version
		}
	}
	h.entries = current
	next.forgetRemoved()
	return true
}

// publish shows a snapshot to the viewers; h.describing must be locked.
func (h *hub) publish(next *snapshot, isChanged, isReady bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.published = next
	if isReady && !h.isReady {
		h.isReady, isChanged = true, true // viewers wait for the first state, even if nothing has changed
	}
	if isChanged {
		close(h.changed)
		h.changed = make(chan struct{})
	}
}

// fail records that the releases cannot be followed.
func (h *hub) fail(ctx context.Context, err error) {
	h.describing.Lock()
	defer h.describing.Unlock()
	if ctx.Err() != nil {
		return
	}
	h.failure = "the connection ended"
	if err != nil {
		h.failure = err.Error()
	}
	next := *h.published
	next.version++
	next.statusVersion = next.version
	next.status.Lost, next.status.Notes = true, []string{h.failure}
	h.publish(&next, true, true)
	next.interruptRecordings()
}

// notes returns what is missing in the state, or may be outdated; h.describing must be locked.
func (h *hub) notes() []string {
	var out []string
	if h.restriction != "" {
		out = append(out, h.restriction)
	}
	if note := h.state.Controller.Note(); note != "" && len(h.state.Releases) > 0 {
		out = append(out, note)
	}
	return append(out, h.state.Interruptions...)
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

// current returns the published snapshot and the channel that is closed at the next change. isReady is false before the releases were
// read for the first time.
func (h *hub) current() (current *snapshot, isReady bool, changed <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.published, h.isReady, h.changed
}

// fleet returns the changes since a version, with the version that they lead to and the channel that is closed at the next change.
// It returns all releases if the version is 0, or too old. hasNews is false if there is no change.
func (h *hub) fleet(since uint64, f filter) (fleet Fleet, version uint64, changed <-chan struct{}, hasNews bool) {
	current, isReady, changed := h.current()
	if !isReady || since == current.version && since > 0 {
		return Fleet{}, since, changed, false
	}
	fleet = Fleet{Status: h.statusOf(current), Complete: since == 0 || since > current.version || since < current.removedUntil, Releases: []explain.FleetRelease{}}
	for _, e := range current.entries {
		if (fleet.Complete || e.version > since) && f.matches(e.key, e.labels) {
			fleet.Releases = append(fleet.Releases, e.fleet)
		}
	}
	if !fleet.Complete {
		for key, removedAt := range current.removed {
			if removedAt > since {
				fleet.Removed = append(fleet.Removed, ReleaseKey(key))
			}
		}
	}
	return fleet, current.version, changed, fleet.Complete || len(fleet.Releases) > 0 || len(fleet.Removed) > 0 || current.statusVersion > since
}

// statusOf returns the status in a snapshot, with the time of the server.
func (h *hub) statusOf(current *snapshot) Status {
	status := current.status
	status.Now = h.session.Clock.Now().UTC()
	return status
}

// heartbeat returns the status without any change.
func (h *hub) heartbeat() Status {
	current, _, _ := h.current()
	return h.statusOf(current)
}

// find returns a release and the channel that is closed at the next change; nil: it does not exist. isReady is false while that is not
// known: before the releases were read for the first time, or because the cluster is lost.
func (h *hub) find(key explain.Key) (e *entry, version uint64, isReady bool, changed <-chan struct{}) {
	current, isReady, changed := h.current()
	if i, found := slices.BinarySearchFunc(current.entries, key, func(e *entry, key explain.Key) int { return e.key.Compare(key) }); found {
		e = current.entries[i]
		version = e.version
	}
	return e, max(version, current.statusVersion), isReady && (e != nil || !current.status.Lost), changed
}

// queue returns the queue of releases and the channel that is closed at the next change. isReady is false before the releases were
// read for the first time.
func (h *hub) queue() (update QueueUpdate, isReady bool, changed <-chan struct{}) {
	current, isReady, changed := h.current()
	observed := make([]explain.Observation, len(current.entries))
	for i, e := range current.entries {
		observed[i] = e.observed
	}
	return QueueUpdate{Status: h.statusOf(current), Queue: explain.NewQueue(observed)}, isReady, changed
}

// describeRelease returns the detail of a release. What is read for it from the API server is read once for all viewers.
func (h *hub) describeRelease(ctx context.Context, e *entry) Detail {
	r, status := *e.release, h.heartbeat()
	d := Detail{
		Explanation: explain.Explanation{Controller: status.Controller, Sentences: explain.Why(r, status.Now)}, Status: status, Fleet: e.fleet,
		Actions: actionsFor(e.observed, &r), History: []explain.PastRelease{},
	}
	d.Weights, d.Measurements = e.memory.recorded()
	read := h.readDetail(ctx, e)
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

// recorded returns copies of the recorded weights and values.
func (m *memory) recorded() ([]explain.WeightPoint, []explain.Series) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.recorder.Weight), cloneSeries(m.recorder.Series)
}

func cloneSeries(all []explain.Series) []explain.Series {
	out := slices.Clone(all)
	for i := range out {
		out[i].Points = slices.Clone(out[i].Points)
	}
	return out
}

// readDetail reads the tree and the history of a release, unless they were read for this version of it.
func (h *hub) readDetail(ctx context.Context, e *entry) *readDetail {
	m := e.memory
	m.detailMu.Lock()
	defer m.detailMu.Unlock()
	if m.detail != nil && m.detail.err == nil && m.detailVersion == e.observed.Version() {
		return m.detail
	}
	read := &readDetail{}
	tree, err := h.session.Tree(ctx, e.observed, h.session.Clock.Now())
	if err != nil {
		read.err = err
	} else {
		read.tree = &tree
	}
	history, err := h.session.HistoryOf(ctx, e.observed)
	if err != nil {
		read.err = errors.Join(read.err, err)
	}
	read.history = history.Releases
	m.detail, m.detailVersion = read, e.observed.Version()
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
