package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/release"
)

const (
	// eventReason is the reason of every event without one of its own; dashboards and scripts select by it.
	eventReason = "Synced"
	// defaultComponent is the event source that dashboards expect.
	defaultComponent = "flagger"
	// textLimit bounds the message of an event, in bytes.
	textLimit = 1024
	// nameLimit bounds the name of an object, in bytes.
	nameLimit = 253
	// maxTexts bounds the texts that are remembered per object. The least recently used one is forgotten first and becomes
	// a new event when it is repeated.
	maxTexts = 128
	// floodText is the event that replaces those of a flood, once per flood.
	floodText = "So much happens here that further events are not written until it is calmer; the log of the controller and the event webhooks have all of them"
)

// The combination of events that repeat what the status of their object shows, such as the completed steps of a Rollout. A
// release with many steps would otherwise consist mostly of requests for them.
const (
	// seriesPeriod is the time without such an event after which they are written one by one again.
	seriesPeriod = 10 * time.Minute
	// combinationInterval is the minimum time between two writes of a combined event, and the maximum delay of its parts.
	combinationInterval = time.Minute
	// combinedPrefix marks the message of a combined event, as client-go does.
	combinedPrefix = "(combined from similar events): "
)

// EventWriter writes Kubernetes events; a client.Client is one.
type EventWriter interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Recorder writes the events of the releases of one kind as Kubernetes events. Unlike client-go's recorder it combines
// different texts only if the status of the object shows them, and drops none except in a flood: these events share few
// reasons, and that recorder would write ten texts of a release and combine or drop the others. Each event is one API
// request; a repeated text of an object increments the count of its event instead of creating one.
type Recorder struct {
	writer    EventWriter
	outbox    *Outbox
	clock     clock.PassiveClock
	component string

	mu       sync.Mutex
	lastName int64 // the Unix nanoseconds that name the newest event
	texts    map[types.NamespacedName]*objectTexts
}

// objectTexts remembers the event texts of one object. After a restart they are unknown, and a repeated text becomes a new event.
type objectTexts struct {
	uid     types.UID
	bucket  eventBucket
	records map[[16]byte]eventRecord // by the hash of type, reason and message; the texts would need ten times the memory
	series  *eventSeries             // of events that the status shows; nil: none is in progress
}

// eventSeries are the recent events of one object that its status shows too, usually of one release.
type eventSeries struct {
	lastTime time.Time
	counts   map[string]int // by reason
	// combined is the event that represents all after the first ones of each reason; its name is 0 until there is one.
	combined eventRecord
	// latest are the latest events that it represents, one of each reason, the newest last.
	latest []release.Event
	// isWritten is true once the combined event exists in the API server; isQueued while a write of it is queued.
	isWritten, isQueued bool
}

// add adds an event to the ones that the combined event represents.
func (s *eventSeries) add(event release.Event) {
	s.latest = append(slices.DeleteFunc(s.latest, func(e release.Event) bool { return e.Reason == event.Reason }), event)
	s.combined.count++
}

// message returns the message of the combined event. It contains the latest message of each reason, so that the combination hides
// neither the weight nor the step.
func (s *eventSeries) message() string {
	texts := make([]string, 0, len(s.latest))
	for _, event := range s.latest {
		texts = append(texts, event.Message)
	}
	return release.Truncate(combinedPrefix+strings.Join(texts, "; "), textLimit)
}

type eventRecord struct {
	name     int64 // the time of the first occurrence in Unix nanoseconds, which names the event
	lastTime int64 // the time of the last occurrence in Unix nanoseconds
	count    int32
}

// NewRecorder returns a recorder that sends its events through the outbox, those of one release in order.
// component is the source of the events; empty means flagger.
func NewRecorder(writer EventWriter, outbox *Outbox, clk clock.PassiveClock, component string) *Recorder {
	return &Recorder{
		writer:    writer,
		outbox:    outbox,
		clock:     clk,
		component: cmp.Or(component, defaultComponent),
		texts:     map[types.NamespacedName]*objectTexts{},
	}
}

// Event logs the unchanged message at the level of its type and queues the Kubernetes event. It returns at once. about is the
// complete reference to the object, with its UID and resourceVersion. AlertOnly events are neither logged nor written.
func (r *Recorder) Event(ctx context.Context, about corev1.ObjectReference, event release.Event) {
	if event.AlertOnly {
		return
	}
	logEvent(ctx, r.clock.Now(), log.FromContext(ctx), about, event)
	r.enqueueEvent(about, event, false)
}

// LateEvent is like Event, for an occurrence after the reconciliation that caused it: a notification that is given up, the
// analysis of an Experiment of a Rollout. Its object may be deleted by then, and Forget would not be called for it again, so
// LateEvent remembers nothing about an object that had no event before.
func (r *Recorder) LateEvent(ctx context.Context, about corev1.ObjectReference, event release.Event) {
	if event.AlertOnly {
		return
	}
	logEvent(ctx, r.clock.Now(), log.FromContext(ctx), about, event)
	r.enqueueEvent(about, event, true)
}

func (r *Recorder) enqueueEvent(about corev1.ObjectReference, event release.Event, late bool) {
	if !late && r.combineEvent(about, event) {
		return
	}
	// Dropped events are counted too: when the text is repeated after the flood, the event has the total count.
	object, repeated, allowed, floodStarts := r.buildEvent(about, event, late)
	switch {
	case floodStarts:
		object, repeated, _, _ = r.buildEvent(about, release.Event{Type: release.Warning, Message: floodText}, late)
	case !allowed:
		return
	}
	key := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
	r.outbox.enqueue(key, message{
		name:     fmt.Sprintf("Kubernetes event %q", object.Message),
		isRecord: true,
		send: func(ctx context.Context) error {
			return MarkTransient(r.writeEvent(ctx, object.DeepCopy(), repeated))
		},
	})
}

// combineEvent adds an event to the series of its object, and reports whether the combined event represents it. Otherwise, it must
// be written individually.
func (r *Recorder) combineEvent(about corev1.ObjectReference, event release.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
	known := r.texts[key]
	if event.StartsSeries && known != nil {
		known.series = nil // its combined event is still written
	}
	if !event.InStatus || event.Type == release.Warning {
		return false
	}
	if known == nil || known.uid != about.UID {
		known = r.newTexts(key, about.UID)
	}
	now, s := r.clock.Now(), known.series
	if s == nil || now.Sub(s.lastTime) > seriesPeriod {
		s = &eventSeries{counts: map[string]int{}}
		known.series = s
	}
	s.lastTime = now
	s.counts[event.Reason]++
	if s.counts[event.Reason] <= event.Individual {
		return false
	}
	r.lastName = max(now.UnixNano(), r.lastName+1)
	if s.combined.name == 0 {
		s.combined.name = r.lastName
	}
	s.combined.lastTime = r.lastName
	s.add(event)
	if s.isQueued {
		return true
	}
	s.isQueued = true
	r.outbox.enqueueLater(key, s.combined.name, message{
		name:     "combined Kubernetes event",
		isRecord: true,
		send:     func(ctx context.Context) error { return MarkTransient(r.writeCombined(ctx, about, s)) },
	}, now.Add(combinationInterval))
	return true
}

// writeCombined writes the combined event of a series with all that it represents now. Its reason is that of the latest event.
func (r *Recorder) writeCombined(ctx context.Context, about corev1.ObjectReference, s *eventSeries) error {
	r.mu.Lock()
	s.isQueued = false // what happens from now on needs another write
	object, exists := r.newEvent(about, s.latest[len(s.latest)-1], s.message(), s.combined), s.isWritten
	r.mu.Unlock()
	err := r.writeEvent(ctx, object, exists)
	r.mu.Lock()
	defer r.mu.Unlock()
	s.isWritten = s.isWritten || err == nil
	return err
}

// Forget drops the state of a deleted release. Queued events are still sent.
func (r *Recorder) Forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.texts, key)
}

// buildEvent returns the event to write. repeated reports whether it was written before with a lower count; allowed and
// floodStarts are the results of the rate limit.
func (r *Recorder) buildEvent(
	about corev1.ObjectReference, event release.Event, late bool,
) (object *corev1.Event, repeated, allowed, floodStarts bool) {
	text := release.Truncate(event.Message, textLimit)
	event.Reason = cmp.Or(event.Reason, eventReason)
	entry, allowed, floodStarts := r.countText(about, event, text, late)
	return r.newEvent(about, event, text, entry), entry.count > 1, allowed, floodStarts
}

// newEvent returns the object of an event.
func (r *Recorder) newEvent(about corev1.ObjectReference, event release.Event, text string, entry eventRecord) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.Namespace, Name: eventName(about.Name, entry.name)},
		InvolvedObject:      about,
		Reason:              event.Reason,
		Message:             text,
		Source:              corev1.EventSource{Component: r.component},
		FirstTimestamp:      metav1.NewTime(time.Unix(0, entry.name)),
		LastTimestamp:       metav1.NewTime(time.Unix(0, entry.lastTime)),
		Count:               entry.count,
		Type:                string(event.Type),
		ReportingController: r.component,
	}
}

// newTexts starts to remember the events of an object.
func (r *Recorder) newTexts(key types.NamespacedName, uid types.UID) *objectTexts {
	known := &objectTexts{uid: uid, records: map[[16]byte]eventRecord{}}
	r.texts[key] = known
	return known
}

// countText records one more occurrence of a text.
func (r *Recorder) countText(
	about corev1.ObjectReference, event release.Event, text string, late bool,
) (entry eventRecord, allowed, floodStarts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
	known := r.texts[key]
	switch {
	case known != nil && known.uid == about.UID:
	case late:
		known = &objectTexts{records: map[[16]byte]eventRecord{}}
	default:
		known = r.newTexts(key, about.UID)
	}

	sum := sha256.Sum256([]byte(string(event.Type) + "\x00" + event.Reason + "\x00" + text))
	hash := [16]byte(sum[:])
	// No two events of one recorder have the same time, which is part of the name, however coarse the clock is.
	r.lastName = max(r.clock.Now().UnixNano(), r.lastName+1)
	entry, repeated := known.records[hash]
	allowed, floodStarts = known.bucket.takeToken(r.clock.Now())
	if !repeated {
		entry.name = r.lastName
	}
	entry.lastTime = r.lastName
	entry.count++
	known.records[hash] = entry
	if len(known.records) > maxTexts {
		known.dropOldest()
	}
	return entry, allowed, floodStarts
}

func (t *objectTexts) dropOldest() {
	var oldest [16]byte
	var last int64
	for hash, entry := range t.records {
		if last == 0 || entry.lastTime < last {
			oldest, last = hash, entry.lastTime
		}
	}
	delete(t.records, oldest)
}

// writeEvent creates the event, or patches the existing one if it is repeated. An event that has expired (the API server retains
// events for an hour) is created with its current count. If a new event exists already, an earlier attempt has created it and
// its response was lost.
func (r *Recorder) writeEvent(ctx context.Context, event *corev1.Event, repeated bool) error {
	if repeated {
		patch, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp, "message": event.Message, "reason": event.Reason})
		if err != nil {
			return fmt.Errorf("render patch of event %s: %w", event.Name, err)
		}
		err = r.writer.Patch(ctx, event, client.RawPatch(types.MergePatchType, patch))
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	err := r.writer.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// MarkTransient marks the errors of requests to an API server that is unavailable or busy as transient. Other errors, such as
// a refusal, are returned unchanged.
func MarkTransient(err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &status),
		apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsUnexpectedServerError(err):
		return Transient(err)
	default:
		return err
	}
}

// eventName joins the name of the object, shortened if necessary, and a time in hexadecimal nanoseconds.
func eventName(object string, nanoseconds int64) string {
	suffix := strconv.FormatInt(nanoseconds, 16)
	if room := nameLimit - len(suffix) - 1; len(object) > room {
		object = strings.TrimRight(object[:room], "-.")
	}
	return object + "." + suffix
}

// Keys returns the objects that have remembered texts.
func (r *Recorder) Keys() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.texts))
}
