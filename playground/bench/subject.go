package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// benchmarkedAPI is one of the two APIs: its manifests, the object with the template, and the objects that show the progress.
type benchmarkedAPI struct {
	// api is its name in flags.
	api string
	// sharedObjects are created once in each namespace.
	sharedObjects  func(settings) []*unstructured.Unstructured
	releaseObjects func(name string, s settings) []*unstructured.Unstructured
	// targetResource is the resource of the object whose template users change.
	targetResource schema.GroupVersionResource
	// watchedResources are the resources from which timelines are filled.
	watchedResources []schema.GroupVersionResource
	// timeline returns an empty timeline for a release by a controller.
	timeline func(controller) timeline
	// peer is the project that the API is from.
	peer peer
}

// benchmarkedAPIs are the two APIs, in the order of measurement and output.
var benchmarkedAPIs = []benchmarkedAPI{canaries, rollouts}

// selectAPIs returns the APIs that a flag names.
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

// nodeName is the name of the node that simulates the pods of all releases.
const nodeName = "bench"

// namespaceReleases is the number of releases in a namespace. Ten thousand in one would measure the controller manager, which reads
// all ReplicaSets of the namespace whenever a Deployment changes.
const namespaceReleases = 100

// The released images. Nothing runs them.
const (
	oldVersion = "serin.dev/bench:v1"
	newVersion = "serin.dev/bench:v2"
)

// releaseName returns the name of a release.
func releaseName(number int) string { return fmt.Sprintf("app-%04d", number) }

// releaseNamespace returns the name of the namespace of a release.
func releaseNamespace(number int) string { return fmt.Sprintf("bench-%02d", number/namespaceReleases) }

// newObject returns an object without a namespace.
func newObject(resource schema.GroupVersionResource, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": resource.GroupVersion().String(), "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// workloadSpec is the part of a spec that Deployments and Rollouts share: one pod, on the node that simulates its pods.
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

// releaseForObject returns the name of the release of an object: that of its owner, its own name, or that of the original of a primary.
func releaseForObject(object *unstructured.Unstructured) string {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "Rollout" {
			return owner.Name
		}
	}
	return strings.TrimSuffix(object.GetName(), "-primary")
}
