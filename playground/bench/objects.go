package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

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

var canaries = schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}

// nameOf is the name of the Deployment and the Canary of a release.
func nameOf(number int) string { return fmt.Sprintf("app-%04d", number) }

// deployment is a target as users write it, on the node whose pods cost nothing.
func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{corev1.LabelHostname: nodeName},
					Containers: []corev1.Container{{
						Name: "app", Image: oldVersion, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
						ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")}}},
					}},
				},
			},
		},
	}
}

// canary is the plan of a release.
func canary(name string, steps int, interval time.Duration) *unstructured.Unstructured {
	check := func(name, limit string, value int64) any {
		return map[string]any{"name": name, "interval": "30s", "thresholdRange": map[string]any{limit: value}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": canaries.GroupVersion().String(), "kind": "Canary",
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec": map[string]any{
			"provider":  "istio",
			"targetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
			"service":   map[string]any{"port": int64(80), "targetPort": "http"},
			"analysis": map[string]any{
				"interval": interval.String(), "threshold": int64(5), "stepWeight": int64(stepWeight), "maxWeight": int64(steps * stepWeight),
				"metrics": []any{check("request-success-rate", "min", 99), check("request-duration", "max", 500)},
			},
		},
	}}
}
