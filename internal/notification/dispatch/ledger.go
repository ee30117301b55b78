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

// ledger is what is known of the messages about one Rollout beyond its annotation, which a cache shows late.
type ledger struct {
	// annotated is the last observed annotation.
	annotated notification.SentLog
	// told are messages that were sent, and ended those that hold no more, until the annotation says so.
	told  notification.SentLog
	ended map[string]bool
	// begun are messages that were queued in this process. One that was given up stays here: it is not tried again until
	// it holds anew, or the process begins anew.
	begun map[string]bool
	// complaints are what people were told about a version of the configuration.
	complaints map[string]map[string]bool
	// pending counts what is queued about the Rollout. gone: it was deleted, and only that is waited for.
	pending int
	gone    bool
}

// ledger is that of a Rollout; d.mu is held.
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

// end drops what is known of a Rollout that is gone, as soon as nothing about it is queued; d.mu is held.
func (d *Dispatcher) end(key types.NamespacedName, uid types.UID) {
	l := d.ledgers[key][uid]
	if l.gone = true; l.pending > 0 {
		return
	}
	if delete(d.ledgers[key], uid); len(d.ledgers[key]) == 0 {
		delete(d.ledgers, key)
	}
}

// see takes in what the annotation says now.
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

// known are all messages that need not be sent: told, or under way.
func (l *ledger) known() notification.SentLog {
	out := l.sentLog()
	for key := range l.begun {
		out[key] = 0
	}
	return out
}

// begin notes that a message is under way.
func (l *ledger) begin(key string) {
	if key != "" {
		l.begun[key] = true
	}
}

// end notes that what a message said holds no more, and is true if the annotation has to be changed.
func (l *ledger) end(key string) bool {
	delete(l.begun, key)
	_, told := l.told[key]
	delete(l.told, key)
	if l.annotated.Has(key) {
		l.ended[key] = true
	}
	return told || l.annotated.Has(key)
}

// news is true of a complaint that is not known about this version of a configuration.
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

// writeSentLog queues the write of the annotation. The writes of one Rollout are sent in order, each with the messages that are
// recorded by then.
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

// write changes the annotation, of that very Rollout.
func (d *Dispatcher) write(ctx context.Context, key types.NamespacedName, uid types.UID, sentLog notification.SentLog) error {
	var value any // null takes the annotation away
	if text := sentLog.String(); text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{notification.NotifiedAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("write the patch of the log of sent messages: %w", err)
	}
	object := &argov1.Rollout{}
	object.Namespace, object.Name = key.Namespace, key.Name
	err = d.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, or another one of that name
	}
	return telemetry.MarkTransient(err)
}
