package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// notifications are the series about notifications of Rollouts, by the names of Argo's own.
type notifications struct {
	sent, failed *prometheus.CounterVec
	took         *prometheus.HistogramVec
}

func newNotifications(d declaration) *notifications {
	object := []string{"namespace", "name"}
	reason := append(object, "type", "reason")
	return &notifications{
		sent:   d.counter("notification_send_success", "Notifications about a Rollout that were sent.", reason...),
		failed: d.counter("notification_send_error", "Notifications about a Rollout that were given up.", reason...),
		took:   d.histogram("notification_send", "Time in seconds that an attempt to send a notification took.", passBuckets, object...),
	}
}

// Notified records what became of a notification about a Rollout: err is why it was given up, nil that it was sent. kind
// and reason are those of its event.
func (m *Metrics) Notified(key types.NamespacedName, kind, reason string, err error) {
	family := m.notifications.sent
	if err != nil {
		family = m.notifications.failed
	}
	family.WithLabelValues(key.Namespace, key.Name, kind, reason).Inc()
}

// Notifying records how long an attempt to send a notification took.
func (m *Metrics) Notifying(key types.NamespacedName, took time.Duration) {
	m.notifications.took.WithLabelValues(key.Namespace, key.Name).Observe(took.Seconds())
}

// ForgetNotifications ends the series about the notifications of a Rollout that is gone.
func (m *Metrics) ForgetNotifications(key types.NamespacedName) {
	m.notifications.forget(prometheus.Labels{"namespace": key.Namespace, "name": key.Name})
}

func (n *notifications) forget(of prometheus.Labels) {
	n.sent.DeletePartialMatch(of)
	n.failed.DeletePartialMatch(of)
	n.took.DeletePartialMatch(of)
}
