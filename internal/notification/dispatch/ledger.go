package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/telemetry"
)

// ledger is the state of the messages about one object in addition to its annotation, which a cache shows late.
type ledger struct {
	// annotated is the last observed annotation.
	annotated notification.SentLog
	// sent contains messages that were sent, and cleared those whose condition is no longer true, until the annotation shows
	// it.
	sent    notification.SentLog
	cleared map[string]bool
	// omitted contains messages that were sent, and for which the annotation has no space. They may be sent again after a restart.
	omitted notification.SentLog
	// queued contains the messages that were queued by this process. An undeliverable message remains here: it is not
	// retried until its condition becomes true again, or the process restarts.
	queued notification.SentLog
	// reportedProblems are the errors that were reported about a version of the configuration.
	reportedProblems map[string]map[string]bool
	// pending is the number of queued tasks about the object. deleted reports that it was deleted, so that the ledger
	// is deleted after them.
	pending int
	deleted bool
}

const (
	// maxAnnotated and maxAnnotatedBytes bound the annotation, which shares 256 KiB with all others of the object.
	maxAnnotated      = 100
	maxAnnotatedBytes = 32 << 10
	// maxKnown and maxKnownBytes bound the messages of an object that are known in addition to those of the annotation.
	maxKnown      = 1000
	maxKnownBytes = 256 << 10
)

// ledger returns the ledger of an object. The caller holds d.mu.
func (d *Dispatcher) ledger(key objectKey, uid types.UID) *ledger {
	if l := d.ledgers[key][uid]; l != nil {
		return l
	}
	for former := range d.ledgers[key] {
		d.deleteLedger(key, former)
	}
	if d.ledgers[key] == nil {
		d.ledgers[key] = map[types.UID]*ledger{}
	}
	l := &ledger{sent: notification.SentLog{}, cleared: map[string]bool{}, omitted: notification.SentLog{}, queued: notification.SentLog{}, reportedProblems: map[string]map[string]bool{}}
	d.ledgers[key][uid] = l
	return l
}

// deleteLedger deletes the ledger of a deleted object once nothing about it is queued. The caller holds d.mu.
func (d *Dispatcher) deleteLedger(key objectKey, uid types.UID) {
	l := d.ledgers[key][uid]
	if l.deleted = true; l.pending > 0 {
		return
	}
	if delete(d.ledgers[key], uid); len(d.ledgers[key]) == 0 {
		delete(d.ledgers, key)
		d.deleteUnusedConfig(key.Namespace)
	}
}

// deleteUnusedConfig deletes the parsed configuration of a namespace without ledgers, which may no longer exist. It is parsed
// again if an object uses it. The caller holds d.mu.
func (d *Dispatcher) deleteUnusedConfig(namespace string) {
	if d.configs[namespace] == nil || namespace == d.Namespace {
		return
	}
	for key := range d.ledgers {
		if key.Namespace == namespace {
			return
		}
	}
	delete(d.configs, namespace)
}

// observe updates the ledger with the current annotation.
func (l *ledger) observe(annotated notification.SentLog) {
	l.annotated = annotated
	maps.DeleteFunc(l.sent, func(key string, _ int64) bool { return annotated.Has(key) })
	maps.DeleteFunc(l.cleared, func(key string, _ bool) bool { return !annotated.Has(key) })
}

// sentLog returns the desired content of the annotation, and records the messages that it omits.
func (l *ledger) sentLog() notification.SentLog {
	known := l.sentMessages()
	out := known.Newest(maxAnnotated, maxAnnotatedBytes)
	maps.DeleteFunc(known, func(key string, _ int64) bool { return out.Has(key) })
	l.omitted = known.Newest(maxKnown, maxKnownBytes)
	return out
}

// sentMessages returns all known messages that were sent.
func (l *ledger) sentMessages() notification.SentLog {
	out := maps.Clone(l.omitted)
	maps.Copy(out, l.annotated)
	maps.Copy(out, l.sent)
	maps.DeleteFunc(out, func(key string, _ int64) bool { return l.cleared[key] })
	return out
}

// knownMessages returns the messages that need not be sent, because they were sent or are queued.
func (l *ledger) knownMessages() notification.SentLog {
	out := l.sentMessages()
	for key := range l.queued {
		out[key] = 0
	}
	return out
}

// recordQueued records that a message is queued.
func (l *ledger) recordQueued(key string, now time.Time) {
	if key != "" {
		l.queued = l.queued.With(key, now).Newest(maxKnown, maxKnownBytes)
	}
}

// recordCleared records that the condition of a message is no longer true, and reports whether the annotation must change.
func (l *ledger) recordCleared(key string) bool {
	delete(l.queued, key)
	_, sent := l.sent[key]
	delete(l.sent, key)
	delete(l.omitted, key)
	if l.annotated.Has(key) {
		l.cleared[key] = true
	}
	return sent || l.annotated.Has(key)
}

// isNewProblem reports whether an error was not yet reported about this version of a configuration.
func (l *ledger) isNewProblem(version, text string) bool {
	if l.reportedProblems[version] == nil {
		l.reportedProblems = map[string]map[string]bool{version: {}}
	}
	known := l.reportedProblems[version][text]
	l.reportedProblems[version][text] = true
	return !known
}

// recordSent records that a message was sent, and reports whether the annotation must be written: the condition of the
// message may have ended meanwhile.
func (d *Dispatcher) recordSent(key objectKey, uid types.UID, message string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[key][uid]
	if l == nil || !l.queued.Has(message) {
		return false
	}
	delete(l.queued, message)
	delete(l.cleared, message)
	l.sent = l.sent.With(message, d.Clock.Now()).Newest(maxKnown, maxKnownBytes)
	return true
}

// writeSentLog queues the write of the annotation. The writes of one object are executed in order, each with the messages
// that are recorded by then.
func (d *Dispatcher) writeSentLog(about About) {
	key, uid := about.key(), about.Object.GetUID()
	d.enqueue(about, "sent-log", "log of sent notifications", func(ctx context.Context) error {
		d.mu.Lock()
		l := d.ledgers[key][uid]
		if l == nil {
			d.mu.Unlock()
			return nil
		}
		sentLog := l.sentLog()
		d.mu.Unlock()
		return d.patchSentLog(ctx, key, uid, sentLog)
	}, nil)
}

// patchSentLog patches the annotation, unless a different object has that name now.
func (d *Dispatcher) patchSentLog(ctx context.Context, key objectKey, uid types.UID, sentLog notification.SentLog) error {
	var value any // null removes the annotation
	if text := sentLog.String(); text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{notification.NotifiedAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("encode the patch of the log of sent messages: %w", err)
	}
	object := newObject(key.kind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	err = d.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || hasOtherUID(err) {
		return nil // the object was deleted, or deleted and created again
	}
	return telemetry.MarkTransient(err)
}

// hasOtherUID reports whether a patch was refused because it would change the UID.
func hasOtherUID(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}
