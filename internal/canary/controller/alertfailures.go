package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/internal/release"
)

// reasonAlertFailed is the reason of the event that reports an alert that was not sent.
const reasonAlertFailed = "AlertFailed"

// alertFailureInterval is the minimum time between two events about the failures of one alert entry. A chat that is down fails
// every alert of every release, with errors that differ in port numbers and would each be an event. The metric counts all.
const alertFailureInterval = 10 * time.Minute

// alertFailures remembers when the failures of alerts were last reported. The zero value is ready for use.
type alertFailures struct {
	mu sync.Mutex
	// reported are the times by Canary and alert entry.
	reported map[types.NamespacedName]map[string]time.Time
}

// track begins to remember a Canary. Only Canaries that exist are tracked: an alert may fail after its Canary was deleted, and
// forget would not be called again.
func (f *alertFailures) track(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reported == nil {
		f.reported = map[types.NamespacedName]map[string]time.Time{}
	}
	if f.reported[key] == nil {
		f.reported[key] = map[string]time.Time{}
	}
}

// isDue reports whether a failure must be reported now, and records that it is.
func (f *alertFailures) isDue(key types.NamespacedName, entry string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	entries, tracked := f.reported[key]
	if last, reported := entries[entry]; !tracked || reported && now.Sub(last) < alertFailureInterval {
		return false
	}
	entries[entry] = now
	return true
}

func (f *alertFailures) forget(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reported, key)
}

func (f *alertFailures) keys() []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := make([]types.NamespacedName, 0, len(f.reported))
	for key := range f.reported {
		keys = append(keys, key)
	}
	return keys
}

// queuedAlert is an alert on its way to one receiver.
type queuedAlert struct {
	about corev1.ObjectReference
	// entry identifies the alert entry of the Canary; empty: the chat of the flags.
	entry string
	// receiver and remedy complete the event about a failure: "… was not sent to RECEIVER: ERROR. REMEDY".
	receiver, remedy string
}

// postAlert queues an alert. Its result is counted, and a failure is an event of the Canary.
func (r *Reporter) postAlert(ctx context.Context, a queuedAlert, send func(context.Context) error) {
	key := types.NamespacedName{Namespace: a.about.Namespace, Name: a.about.Name}
	r.failures.track(key)
	name := "alert"
	if a.entry != "" {
		name = "alert of " + a.entry
	}
	detached := context.WithoutCancel(ctx)
	r.Outbox.PostWithCallback(key, name, send, func(err error) {
		r.Metrics.CountAlert(key.Namespace, key.Name, err)
		if err != nil {
			r.reportAlertFailure(detached, key, a, err)
		}
	})
}

// reportAlertFailure writes an event about an alert that was given up. The errors of senders contain neither addresses nor
// tokens.
func (r *Reporter) reportAlertFailure(ctx context.Context, key types.NamespacedName, a queuedAlert, err error) {
	if !r.failures.isDue(key, a.entry, r.Clock.Now()) {
		log.FromContext(ctx).V(1).Info("Does not report an alert that failed again", "entry", a.entry, "err", err.Error())
		return
	}
	r.Recorder.LateEvent(ctx, a.about, release.Event{
		Type: release.Warning, Reason: reasonAlertFailed,
		Message: fmt.Sprintf("An alert was not sent to %s: %s. %s", a.receiver, err, a.remedy),
	})
}
