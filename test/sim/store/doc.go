// Package store is a Kubernetes API server in memory, with the lagging views of its watchers.
//
// It is for simulations of real controllers. A [Server] answers requests like a real API server, records every change in a log,
// and lets a [Hook] fail any request before or after it took effect. A [Cache] is what one process has observed of the server,
// and advances only on request. The package draws no random numbers, starts no goroutines, and reads no clock other than the
// given one: the same calls in the same order have the same results.
//
// It must not know what is simulated: no state machine, no reconciler, no package below internal. Of Serin it knows the
// definitions of the kinds it serves. Because Serin does not depend on them, the following is omitted: namespaces as objects
// that must exist, managed fields, server-side apply and strategic merge patches. The last two are rejected.
//
// Pruning, defaulting and validation of custom resources, and the decoding of built-in ones, are implemented here a second
// time, because the API machinery is too slow for simulation runs. With its structural pruning, defaulting and validation in
// place of the quick path of custom.go, and its results cached, a run takes 1.4 times (Canaries) to 1.8 times (Rollouts) the
// CPU time, so that only 54 to 73 percent of the runs fit into a minute. Decoding a Deployment with the unstructured converter
// and back takes 1.7 times as long as gotype.go (2026-11, AMD EPYC, two processors). The quick path decides only what is
// certainly valid: everything else, and the text of each error, comes from the API machinery, and
// TestQuickPathMatchesTheAPIMachinery compares the two.
package store
