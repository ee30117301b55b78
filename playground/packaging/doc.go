// Package packaging tests the Helm chart and the kustomizations: the libraries of these tools render them, and a real API server
// admits the objects. It must not know how Serin works: it does not run Serin.
package packaging
