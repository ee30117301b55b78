package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// notificationSeries are the series about notifications of Rollouts, under the names that Argo Rollouts uses.
type notificationSeries struct {
	sent, failed *prometheus.CounterVec
	duration     *prometheus.HistogramVec

	mu sync.Mutex
	// counted are the events of each Rollout that have series.
	counted map[types.NamespacedName]map[eventLabels]bool
}

func newNotificationSeries(d declaration) *notificationSeries {
	object := []string{"namespace", "name"}
	reason := append(object, "type", "reason")
	return &notificationSeries{
		sent:     d.counter("notification_send_success", "Notifications about a Rollout that were sent.", reason...),
		failed:   d.counter("notification_send_error", "Notifications about a Rollout that were given up.", reason...),
		duration: d.histogram("notification_send", "Time in seconds that an attempt to send a notification took.", reconciliationBuckets, object...),
		counted:  map[types.NamespacedName]map[eventLabels]bool{},
	}
}

// RecordNotification records the result of a notification about a Rollout: err is the reason why Serin gave it up, nil means
// that it was sent. kind and reason are the type and reason of its event.
func (m *Metrics) RecordNotification(key types.NamespacedName, kind, reason string, err error) {
	n := m.notifications
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counted[key] == nil {
		n.counted[key] = map[eventLabels]bool{}
	}
	n.counted[key][eventLabels{kind, reason}] = true
	family := n.sent
	if err != nil {
		family = n.failed
	}
	family.WithLabelValues(key.Namespace, key.Name, kind, reason).Inc()
}

// RecordNotificationAttempt records the duration of an attempt to send a notification.
func (m *Metrics) RecordNotificationAttempt(key types.NamespacedName, took time.Duration) {
	m.notifications.duration.WithLabelValues(key.Namespace, key.Name).Observe(took.Seconds())
}

// ForgetNotifications ends the series about the notifications of a deleted Rollout. It deletes each series by all of its
// labels: a partial match visits the series of all Rollouts.
func (m *Metrics) ForgetNotifications(key types.NamespacedName) {
	n := m.notifications
	n.mu.Lock()
	defer n.mu.Unlock()
	for event := range n.counted[key] {
		n.sent.DeleteLabelValues(key.Namespace, key.Name, event.kind, event.reason)
		n.failed.DeleteLabelValues(key.Namespace, key.Name, event.kind, event.reason)
	}
	delete(n.counted, key)
	n.duration.DeleteLabelValues(key.Namespace, key.Name)
}
