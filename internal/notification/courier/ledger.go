package courier

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
	// annotated is the book as the annotation was seen last.
	annotated notification.Book
	// told are messages that were sent, and ended those that hold no more, until the annotation says so.
	told  notification.Book
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

// ledger is that of a Rollout; c.mu is held.
func (c *Courier) ledger(key types.NamespacedName, uid types.UID) *ledger {
	if l := c.ledgers[key][uid]; l != nil {
		return l
	}
	for former := range c.ledgers[key] {
		c.end(key, former)
	}
	if c.ledgers[key] == nil {
		c.ledgers[key] = map[types.UID]*ledger{}
	}
	l := &ledger{told: notification.Book{}, ended: map[string]bool{}, begun: map[string]bool{}, complaints: map[string]map[string]bool{}}
	c.ledgers[key][uid] = l
	return l
}

// end drops what is known of a Rollout that is gone, as soon as nothing about it is queued; c.mu is held.
func (c *Courier) end(key types.NamespacedName, uid types.UID) {
	l := c.ledgers[key][uid]
	if l.gone = true; l.pending > 0 {
		return
	}
	if delete(c.ledgers[key], uid); len(c.ledgers[key]) == 0 {
		delete(c.ledgers, key)
	}
}

// see takes in what the annotation says now.
func (l *ledger) see(annotated notification.Book) {
	l.annotated = annotated
	maps.DeleteFunc(l.told, func(key string, _ int64) bool { return annotated.Has(key) })
	maps.DeleteFunc(l.ended, func(key string, _ bool) bool { return !annotated.Has(key) })
}

// book is what the annotation has to say.
func (l *ledger) book() notification.Book {
	out := maps.Clone(l.annotated)
	maps.Copy(out, l.told)
	maps.DeleteFunc(out, func(key string, _ int64) bool { return l.ended[key] })
	return out
}

// known are all messages that need not be sent: told, or under way.
func (l *ledger) known() notification.Book {
	out := l.book()
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

// told notes that a message was sent, and is true if the book has to say so: what it said may hold no more.
func (c *Courier) told(key types.NamespacedName, uid types.UID, message string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.ledgers[key][uid]
	if l == nil || !l.begun[message] {
		return false
	}
	delete(l.begun, message)
	delete(l.ended, message)
	l.told = l.told.With(message, c.Clock.Now())
	return true
}

// keepBook queues the write of the book of a Rollout. The writes of one Rollout leave in their order, each with what is
// known by then.
func (c *Courier) keepBook(about About) {
	key, uid := about.key(), about.Object.UID
	c.enqueue(about, "book", "book of notifications", func(ctx context.Context) error {
		c.mu.Lock()
		l := c.ledgers[key][uid]
		if l == nil {
			c.mu.Unlock()
			return nil
		}
		book := l.book()
		c.mu.Unlock()
		return c.write(ctx, key, uid, book)
	}, nil)
}

// write changes the annotation, of that very Rollout.
func (c *Courier) write(ctx context.Context, key types.NamespacedName, uid types.UID, book notification.Book) error {
	var value any // null takes the annotation away
	if text := book.String(); text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": map[string]any{notification.NotifiedAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("write the patch of the book: %w", err)
	}
	object := &argov1.Rollout{}
	object.Namespace, object.Name = key.Namespace, key.Name
	err = c.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it is gone, or another one of that name
	}
	return telemetry.TransientOrFinal(err)
}
