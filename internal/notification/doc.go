// Package notification decides which messages about a Rollout are due, and what they say.
//
// It reads the ConfigMap and the Secret that Argo's users write: triggers, templates, services, subscriptions. Values in,
// values out: it must not know clients, clocks, or how a service is reached. The senders are in notification/service,
// notification/dispatch reads the configuration and queues messages. The alerts of Canaries are package alerting.
package notification

// The names by which the API knows notifications.
const (
	ConfigMapName = "argo-rollouts-notification-configmap"
	SecretName    = "argo-rollouts-notification-secret" // the name of one, not a secret

	// NotifiedAnnotation of a Rollout contains the SentLog.
	NotifiedAnnotation = "notified.notifications.argoproj.io"

	subscribePrefix         = "notifications.argoproj.io/subscribe."
	subscriptionsAnnotation = "notifications.argoproj.io/subscriptions"
)

// Destination is a recipient of a service, both as the configuration names them.
type Destination struct{ Service, Recipient string }

// String is service and recipient.
func (d Destination) String() string {
	if d.Recipient == "" {
		return d.Service
	}
	return d.Service + ":" + d.Recipient
}
