// Package chart renders the Helm chart as helm template does. Its tests read what the values make of it, and need no cluster.
//
// It must not know whether a cluster takes the objects; that is the folder above.
package chart
