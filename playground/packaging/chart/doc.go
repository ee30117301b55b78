// Package chart renders the Helm chart as helm template does. Its tests check the effect of the values, without a cluster.
//
// It must not know whether an API server admits the objects; package packaging tests this.
package chart
