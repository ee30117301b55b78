// Package toolkeys knows by which labels and annotations tools keep account of one object, so that copies of objects are
// made without them.
//
// It must not know what is copied, or why.
package toolkeys

import (
	"slices"
	"strings"
)

// toolPrefixes of keys that are a tool's own. It is never changed.
var toolPrefixes = []string{
	"argocd.argoproj.io/", "meta.helm.sh/", "kapp.k14s.io/", "config.k8s.io/", "objectset.rio.cattle.io/",
	"flagger.app/", "flagger.kubernetes.io/", "serin.dev/",
}

// IsFluxKey is true for keys by which Flux knows its own objects.
func IsFluxKey(key string) bool { return strings.Contains(key, "toolkit.fluxcd.io") }

// IsKubernetesAnnotation is true for annotations by which Kubernetes counts the templates of one workload.
func IsKubernetesAnnotation(key string) bool {
	return strings.HasPrefix(key, "deployment.kubernetes.io/") || key == "deprecated.daemonset.template.generation"
}

// IsToolKey is true for keys by which a tool knows its own objects, or keeps its own account of one object: carried to a copy
// they would make the tool adopt, prune or misread the copy.
func IsToolKey(key string) bool {
	if IsFluxKey(key) || IsKubernetesAnnotation(key) || key == "kubectl.kubernetes.io/last-applied-configuration" || key == "flagger-id" {
		return true
	}
	for _, prefix := range toolPrefixes {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// MatchesPrefix is true for keys of no tool that have one of the prefixes that somebody asked for; * is every prefix.
func MatchesPrefix(key string, prefixes []string) bool {
	return !IsToolKey(key) && slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix == "*" || prefix != "" && strings.HasPrefix(key, prefix)
	})
}
