// Package e2e tests Serin from the perspective of its users: on a real cluster
// with a real gateway, real requests and a real Prometheus.
//
// It reads resources, events and answers, and uses only manifests and commands. It must not know Serin's packages.
package e2e
