// Package telemetry reports what the controller does: Kubernetes events, ordered messages to webhooks and chats,
// metrics, logs, and the HTTP server for health and metrics.
//
// It knows the vocabulary of package release and the names of objects. It must not know a kind of release, the meaning
// of an event, the receiver of a message, or a reconciler. None of its functions blocks its caller.
package telemetry
