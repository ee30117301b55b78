// Package e2e tests Serin as its users see it: on a real cluster with a real
// gateway, real requests and a real Prometheus.
//
// It reads resources, events and answers, and drives Serin by manifests and
// commands only. It must not know Serin's packages.
package e2e
