// Package notification decides which messages about a Rollout, an AnalysisRun or an Experiment are due, and renders their content.
//
// It reads the ConfigMap and the Secret of Argo's notifications: triggers, templates, services, subscriptions. It is a
// function of values: it must not know clients, clocks, or how a service is reached. The senders are in
// notification/service; notification/dispatch reads the configuration and queues messages. The alerts of Canaries are in
// package alerting.
package notification

// The names of objects and annotations, as Argo Rollouts defines them.
const (
	ConfigMapName = "argo-rollouts-notification-configmap"
	SecretName    = "argo-rollouts-notification-secret" // the name of a Secret, not a credential

	// NotifiedAnnotation is the annotation of an object that contains its SentLog.
	NotifiedAnnotation = "notified.notifications.argoproj.io"

	subscribePrefix         = "notifications.argoproj.io/subscribe."
	subscriptionsAnnotation = "notifications.argoproj.io/subscriptions"
)

// Destination is a recipient of a service, by their names in the configuration.
type Destination struct{ Service, Recipient string }

// String returns SERVICE:RECIPIENT, or only the service if it needs no recipient.
func (d Destination) String() string {
	if d.Recipient == "" {
		return d.Service
	}
	return d.Service + ":" + d.Recipient
}
