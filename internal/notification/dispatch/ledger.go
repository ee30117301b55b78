package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/telemetry"
)

// ledger is the state of the messages about one Rollout in addition to its annotation, which a cache shows late.
type ledger struct {
	// annotated is the last observed annotation.
	annotated notification.SentLog
	// told contains messages that were sent, and ended those whose condition is no longer true, until the annotation shows
	// it.
	told  notification.SentLog
	ended map[string]bool
	// begun contains the messages that were queued by this process. An undeliverable message remains here: it is not
	// retried until its condition becomes true again, or the process restarts.
	begun map[string]bool
	// complaints are the errors that were reported about a version of the configuration.
	complaints map[string]map[string]bool
	// pending is the number of queued tasks about the Rollout. gone reports that the Rollout was deleted, so that the ledger
	// is deleted after them.
	pending int
	gone    bool
}

// ledger returns the ledger of a Rollout. The caller holds d.mu.
func (d *Dispatcher) ledger(key types.NamespacedName, uid types.UID) *ledger {
	if l := d.ledgers[key][uid]; l != nil {
		return l
	}
	for former := range d.ledgers[key] {
		d.end(key, former)
	}
	if d.ledgers[key] == nil {
		d.ledgers[key] = map[types.UID]*ledger{}
	}
	l := &ledger{told: notification.SentLog{}, ended: map[string]bool{}, begun: map[string]bool{}, complaints: map[string]map[string]bool{}}
	d.ledgers[key][uid] = l
	return l
}

// end deletes the ledger of a deleted Rollout once nothing about it is queued. The caller holds d.mu.
func (d *Dispatcher) end(key types.NamespacedName, uid types.UID) {
	l := d.ledgers[key][uid]
	if l.gone = true; l.pending > 0 {
		return
	}
	if delete(d.ledgers[key], uid); len(d.ledgers[key]) == 0 {
		delete(d.ledgers, key)
	}
}

// see updates the ledger with the current annotation.
func (l *ledger) see(annotated notification.SentLog) {
	l.annotated = annotated
	maps.DeleteFunc(l.told, func(key string, _ int64) bool { return annotated.Has(key) })
	maps.DeleteFunc(l.ended, func(key string, _ bool) bool { return !annotated.Has(key) })
}

// sentLog is the desired content of the annotation.
func (l *ledger) sentLog() notification.SentLog {
	out := maps.Clone(l.annotated)
	maps.Copy(out, l.told)
	maps.DeleteFunc(out, func(key string, _ int64) bool { return l.ended[key] })
	return out
}

// known returns the messages that need not be sent, because they were sent or are queued.
func (l *ledger) known() notification.SentLog {
	out := l.sentLog()
	for key := range l.begun {
		out[key] = 0
	}
	return out
}

// begin records that a message is queued.
func (l *ledger) begin(key string) {
	if key != "" {
		l.begun[key] = true
	}
}

// end records that the condition of a message is no longer true, and reports whether the annotation must change.
func (l *ledger) end(key string) bool {
	delete(l.begun, key)
	_, told := l.told[key]
	delete(l.told, key)
	if l.annotated.Has(key) {
		l.ended[key] = true
	}
	return told || l.annotated.Has(key)
}

// news reports whether an error was not yet reported about this version of a configuration.
func (l *ledger) news(version, text string) bool {
	if l.complaints[version] == nil {
		l.complaints = map[string]map[string]bool{version: {}}
	}
	known := l.complaints[version][text]
	l.complaints[version][text] = true
	return !known
}

// told records that a message was sent, and reports whether the annotation must be written: the condition of the message may
// have ended meanwhile.
func (d *Dispatcher) told(key types.NamespacedName, uid types.UID, message string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.ledgers[key][uid]
	if l == nil || !l.begun[message] {
		return false
	}
	delete(l.begun, message)
	delete(l.ended, message)
	l.told = l.told.With(message, d.Clock.Now())
	return true
}

// writeSentLog queues the write of the annotation. The writes of one Rollout are executed in order, each with the messages
// that are recorded by then.
func (d *Dispatcher) writeSentLog(about About) {
	key, uid := about.key(), about.Object.UID
	d.enqueue(about, "sent-log", "log of sent notifications", func(ctx context.Context) error {
		d.mu.Lock()
		l := d.ledgers[key][uid]
		if l == nil {
			d.mu.Unlock()
			return nil
		}
		sentLog := l.sentLog()
		d.mu.Unlock()
		return d.write(ctx, key, uid, sentLog)
	}, nil)
}

// write patches the annotation, unless a different Rollout has that name now.
func (d *Dispatcher) write(ctx context.Context, key types.NamespacedName, uid types.UID, sentLog notification.SentLog) error {
	var value any // null removes the annotation
	if text := sentLog.String(); text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{notification.NotifiedAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("encode the patch of the log of sent messages: %w", err)
	}
	object := &argov1.Rollout{}
	object.Namespace, object.Name = key.Namespace, key.Name
	err = d.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // the Rollout was deleted, or deleted and created again
	}
	return telemetry.MarkTransient(err)
}
