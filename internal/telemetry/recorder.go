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
	// eventReason is that of every event that has none of its own; dashboards and scripts select by it.
	eventReason = "Synced"
	// defaultComponent is what dashboards expect as the source of events.
	defaultComponent = "flagger"
	// textLimit bounds the message of an event, in bytes.
	textLimit = 1024
	// nameLimit bounds the name of an object, in bytes.
	nameLimit = 253
	// maxTexts bounds the texts that are remembered of one object; the one said longest ago goes first, and is a new
	// event when it is said again.
	maxTexts = 128
	// floodText is told once when an object tells so much that the rest is not written.
	floodText = "So much happens here that further events are not written until it is calmer; the log of the controller and the event webhooks have all of them"
)

// EventWriter writes Kubernetes events; a client.Client is one.
type EventWriter interface {
	Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error
	Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error
}

// Recorder writes what happened to the releases of one kind as Kubernetes events. Unlike client-go's recorder it never
// merges different texts, and drops none but those of a flood: events have few reasons here, and that recorder
// would write ten texts and merge or drop the rest of a run. One event is one API request; a text that an object had
// before raises the count of its event instead.
type Recorder struct {
	writer    EventWriter
	outbox    *Outbox
	clock     clock.PassiveClock
	component string

	mu       sync.Mutex
	lastName int64 // the Unix nanoseconds that name the newest event
	texts    map[types.NamespacedName]*objectTexts
}

// objectTexts are what was said of one object. After a restart they are unknown, and a repeated text becomes a new event.
type objectTexts struct {
	uid     types.UID
	bucket  eventBucket
	records map[[16]byte]eventRecord // by the hash of type, reason and message; the texts themselves would cost ten times the memory
}

type eventRecord struct {
	name     int64 // the Unix nanoseconds of the first time, which name the event
	lastTime int64 // those of the last time
	count    int32
}

// NewRecorder makes a recorder whose events leave through the outbox, those of one release in their order.
// component is the source that events name; empty means flagger.
func NewRecorder(writer EventWriter, outbox *Outbox, clk clock.PassiveClock, component string) *Recorder {
	return &Recorder{
		writer:    writer,
		outbox:    outbox,
		clock:     clk,
		component: cmp.Or(component, defaultComponent),
		texts:     map[types.NamespacedName]*objectTexts{},
	}
}

// Event logs what happened, with the message as it is and at the level of its type, and queues the Kubernetes event.
// It returns at once. about names the object completely, its UID and resourceVersion included. Silent events are
// neither logged nor written.
func (r *Recorder) Event(ctx context.Context, about corev1.ObjectReference, event release.Event) {
	if event.AlertOnly {
		return
	}
	logEvent(ctx, r.clock.Now(), log.FromContext(ctx), about, event)
	r.enqueueEvent(about, event, false)
}

// LateEvent is Event for what ends after the reconciliation that began it: a notification that is given up, an analysis of
// an Experiment of a Rollout. Its object may be gone by then, and nobody would call Forget for it again, so that nothing is
// remembered of an object of which nothing was said before.
func (r *Recorder) LateEvent(ctx context.Context, about corev1.ObjectReference, event release.Event) {
	if event.AlertOnly {
		return
	}
	logEvent(ctx, r.clock.Now(), log.FromContext(ctx), about, event)
	r.enqueueEvent(about, event, true)
}

func (r *Recorder) enqueueEvent(about corev1.ObjectReference, event release.Event, late bool) {
	// What is held back counts: when its text is said again in calmer times, the event has the number of all times.
	object, again, may, floods := r.buildEvent(about, event, late)
	switch {
	case floods:
		object, again, _, _ = r.buildEvent(about, release.Event{Type: release.Warning, Message: floodText}, late)
	case !may:
		return
	}
	key := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
	r.outbox.enqueue(key, message{
		name:     fmt.Sprintf("Kubernetes event %q", object.Message),
		isRecord: true,
		send: func(ctx context.Context) error {
			return MarkTransient(r.writeEvent(ctx, object.DeepCopy(), again))
		},
	})
}

// Forget drops what is known of a release that is gone. Events that are queued still leave.
func (r *Recorder) Forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.texts, key)
}

// buildEvent is the event as it shall be written, and whether it was written before with a lower count. may and floods are
// those of its pace.
func (r *Recorder) buildEvent(about corev1.ObjectReference, event release.Event, late bool) (object *corev1.Event, again, may, floods bool) {
	text := release.Truncate(event.Message, textLimit)
	event.Reason = cmp.Or(event.Reason, eventReason)
	entry, may, floods := r.countText(about, event, text, late)
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
	}, entry.count > 1, may, floods
}

// countText records that a text is said, once more or for the first time.
func (r *Recorder) countText(about corev1.ObjectReference, event release.Event, text string, late bool) (entry eventRecord, may, floods bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := types.NamespacedName{Namespace: about.Namespace, Name: about.Name}
	known := r.texts[key]
	if known == nil || known.uid != about.UID {
		known = &objectTexts{uid: about.UID, records: map[[16]byte]eventRecord{}}
		if !late {
			r.texts[key] = known
		}
	}

	sum := sha256.Sum256([]byte(string(event.Type) + "\x00" + event.Reason + "\x00" + text))
	hash := [16]byte(sum[:])
	// No two events of one recorder share a moment, and so a name, however coarse the clock.
	r.lastName = max(r.clock.Now().UnixNano(), r.lastName+1)
	entry, again := known.records[hash]
	may, floods = known.bucket.takeToken(r.clock.Now())
	if !again {
		entry.name = r.lastName
	}
	entry.lastTime = r.lastName
	entry.count++
	known.records[hash] = entry
	if len(known.records) > maxTexts {
		known.dropOldest()
	}
	return entry, may, floods
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

// writeEvent creates the event, or patches the one that was written before. An event that is gone (the API server keeps
// them for an hour) is created with the count it has come to. One that exists already was created by an attempt whose
// answer was lost.
func (r *Recorder) writeEvent(ctx context.Context, event *corev1.Event, again bool) error {
	if again {
		patch, err := json.Marshal(map[string]any{"count": event.Count, "lastTimestamp": event.LastTimestamp})
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

// MarkTransient marks those errors of requests to the API server that may be gone in a moment: it is away or busy. A
// refusal stays one.
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

// eventName is the object's name and a moment in hexadecimal nanoseconds; the name is shortened where both would be
// too long for an object.
func eventName(object string, nanoseconds int64) string {
	moment := strconv.FormatInt(nanoseconds, 16)
	if room := nameLimit - len(moment) - 1; len(object) > room {
		object = strings.TrimRight(object[:room], "-.")
	}
	return object + "." + moment
}

// Keys are the objects that are remembered.
func (r *Recorder) Keys() []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.texts))
}
