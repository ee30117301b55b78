//go:build linux

package metrics_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/serin-dev/serin/playground/metrics"
)

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", Labels: map[string]string{"app.kubernetes.io/name": "cart"},
			Annotations: map[string]string{metrics.ScrapeAnnotation: "true"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
		Status: corev1.PodStatus{PodIP: "10.244.0.9", Phase: corev1.PodRunning},
	}
	change(p)
	return p
}

func TestTargetsAreTheRunningPodsWithTheAnnotation(t *testing.T) {
	got := metrics.PodTargets([]*corev1.Pod{
		pod("plain", func(*corev1.Pod) {}),
		pod("own-port", func(p *corev1.Pod) {
			p.Status.PodIP = "10.244.0.10"
			p.Annotations[metrics.PortAnnotation], p.Annotations[metrics.PathAnnotation] = "9797", "/stats"
		}),
		pod("not-annotated", func(p *corev1.Pod) { delete(p.Annotations, metrics.ScrapeAnnotation) }),
		pod("starting", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }),
		pod("without-address", func(p *corev1.Pod) { p.Status.PodIP = "" }),
		pod("without-port", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }),
	})
	want := []metrics.Target{
		{Targets: []string{"10.244.0.10:9797"}, Labels: map[string]string{
			"app_kubernetes_io_name": "cart", "kubernetes_namespace": "shop", "kubernetes_pod_name": "own-port", "__metrics_path__": "/stats",
		}},
		{Targets: []string{"10.244.0.9:8080"}, Labels: map[string]string{
			"app_kubernetes_io_name": "cart", "kubernetes_namespace": "shop", "kubernetes_pod_name": "plain", "__metrics_path__": "/metrics",
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
}
