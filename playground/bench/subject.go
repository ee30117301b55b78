package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// benchmarkedAPI is one of the two APIs: how a release is planned in it, where its versions are changed, and what shows how far it is.
type benchmarkedAPI struct {
	// api is its name, as flags have it.
	api string
	// sharedObjects are made once, each for every release.
	sharedObjects  func(settings) []*unstructured.Unstructured
	releaseObjects func(name string, s settings) []*unstructured.Unstructured
	// targetResource is the kind of the object whose template users change.
	targetResource schema.GroupVersionResource
	// watchedResources are the kinds from which timelines are filled.
	watchedResources []schema.GroupVersionResource
	timeline         func() timeline
}

// benchmarkedAPIs are the two APIs, in the order in which they are measured and shown.
var benchmarkedAPIs = []benchmarkedAPI{canaries, rollouts}

// selectAPIs finds the subjects that a flag names.
func selectAPIs(names string) ([]benchmarkedAPI, error) {
	var out []benchmarkedAPI
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(benchmarkedAPIs, func(s benchmarkedAPI) bool { return s.api == name })
		if i < 0 {
			return nil, fmt.Errorf("-apis is %q: choose canary, rollout, or canary,rollout", names)
		}
		out = append(out, benchmarkedAPIs[i])
	}
	return out, nil
}

// Where everything is. All releases share one namespace, which is the harder case for whoever looks for those that
// share a target.
const (
	namespace = "bench"
	nodeName  = "bench"
)

// The versions that are shipped. Nothing runs them.
const (
	oldVersion = "serin.dev/bench:v1"
	newVersion = "serin.dev/bench:v2"
)

// releaseName is the name of a release.
func releaseName(number int) string { return fmt.Sprintf("app-%04d", number) }

// newObject makes an object of the namespace of the releases.
func newObject(resource schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace}, "spec": spec,
	}}
}

// workloadSpec is the part of a spec that Deployments and Rollouts share: one pod, on the node whose pods cost nothing.
func workloadSpec(name string) map[string]any {
	return map[string]any{
		"replicas": int64(1),
		"selector": map[string]any{"matchLabels": map[string]any{"app": name}},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": name}},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"kubernetes.io/hostname": nodeName},
				"containers": []any{map[string]any{
					"name": "app", "image": oldVersion, "ports": []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
					"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "http"}},
				}},
			},
		},
	}
}

// releaseForObject is the name of the release that an object belongs to: what made it, its own, or that of which it is the copy.
func releaseForObject(object *unstructured.Unstructured) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Rollout" {
			return owner.Name
		}
	}
	return strings.TrimSuffix(object.GetName(), "-primary")
}
