// Package queries asks a real Prometheus what the builtin queries say of series
// that are shaped as each provider exports them.
//
// It consists of tests, which start a server of their own and write into it
// what a scrape would bring. It must not know a cluster.
package queries
