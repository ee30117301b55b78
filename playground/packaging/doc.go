// Package packaging holds the tests of what people install Serin with: the Helm chart and the kustomizations, rendered by
// the libraries of these tools and admitted by a real API server. It must not know how Serin works: it runs none.
package packaging
