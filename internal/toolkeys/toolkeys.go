// Package toolkeys recognises the labels and annotations with which tools track a single object, so that copies of the
// object are created without them.
//
// It must not know which objects are copied, or why.
package toolkeys

import (
	"slices"
	"strings"
)

// toolPrefixes are prefixes of keys that belong to a tool. It is never modified.
var toolPrefixes = []string{
	"argocd.argoproj.io/", "meta.helm.sh/", "kapp.k14s.io/", "config.k8s.io/", "objectset.rio.cattle.io/",
	"flagger.app/", "flagger.kubernetes.io/", "serin.dev/",
}

// IsFluxKey reports whether Flux recognises its objects by a key.
func IsFluxKey(key string) bool { return strings.Contains(key, "toolkit.fluxcd.io") }

// IsKubernetesAnnotation reports whether Kubernetes counts the templates of a workload in an annotation.
func IsKubernetesAnnotation(key string) bool {
	return strings.HasPrefix(key, "deployment.kubernetes.io/") || key == "deprecated.daemonset.template.generation"
}

// IsToolKey reports whether a tool recognises its objects by a key, or stores its own data about one object in it. On a copy,
// such keys would make the tool adopt, prune or misinterpret the copy.
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

// MatchesPrefix reports whether a key has one of the configured prefixes and does not belong to a tool; * matches every key.
func MatchesPrefix(key string, prefixes []string) bool {
	return !IsToolKey(key) && slices.ContainsFunc(prefixes, func(prefix string) bool {
		return prefix == "*" || prefix != "" && strings.HasPrefix(key, prefix)
	})
}
