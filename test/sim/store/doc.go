// Package store is a Kubernetes API server in memory, with the lagging views that its watchers have of it.
//
// It is for simulations that run real controllers: a [Server] answers requests as the real one does, writes every change
// into a log, and lets a [Hook] fail any request before or after it took effect; a [Cache] is what one process has seen
// of the server so far, and advances only on request. Nothing here draws chance, starts a goroutine, or looks at a
// clock that was not given: the same calls in the same order have the same results.
//
// It must not know what is simulated: no machine, no reconciler, nothing of package internal. Of Serin it knows the
// definitions of the kinds it serves. Left out, because no part of Serin depends on them, are namespaces as objects that
// must exist, managed fields, server-side apply and strategic merge patches; the last two are refused.
//
// Pruning, defaulting and validation of custom resources, and the decoding of built-in ones, are implemented here a second
// time, because the API machinery is too slow for simulation runs. With its structural pruning, defaulting and validation in
// place of the quick path of custom.go, and its results remembered, a run takes 1.4 times (Canaries) to 1.8 times (Rollouts) the
// processor time, so that only 54 to 73 percent of the runs fit into a minute. Decoding a Deployment with the unstructured
// converter and back takes 1.7 times as long as gotype.go (2026-11, AMD EPYC, two processors). The quick path decides only what
// is certainly valid: everything else, and the text of each error, comes from the API machinery, and TestQuickWayIsRight
// compares the two.
package store
