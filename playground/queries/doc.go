// Package queries tests the built-in queries on a real Prometheus with series
// that have the same labels as those that each provider exports.
//
// It consists of tests, which start a Prometheus and write series into it. It
// must not know a cluster.
package queries
