// Package telemetry tells people and machines what the controller does: Kubernetes events, messages to hooks and
// chats in their order, metrics, logs, and the HTTP server that shows health and metrics.
//
// It knows the vocabulary of package release and the names of objects. It must not know a kind of release, what an
// event means, who receives a message, or a reconciler; and nothing in it makes its caller wait.
package telemetry
