package fakenode

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/internal/waittest"
)

func TestPodsBecomeReadyAndGoWhenAskedTo(t *testing.T) {
	client := fake.NewClientset()
	n := New(Options{Name: "played", Version: "v1.36.3", Delay: time.Millisecond, Client: client, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler)})
	if err := n.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	pods := client.CoreV1().Pods("shop")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "cart", Namespace: "shop", UID: "1"},
		Spec:       corev1.PodSpec{NodeName: "played", Containers: []corev1.Container{{Name: "app", Image: "app:v1"}}},
	}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the pod is ready", func() bool {
		seen, err := pods.Get(t.Context(), "cart", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod = seen
		for _, condition := range seen.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionTrue && len(seen.Status.ContainerStatuses) == 1 && seen.Status.PodIP == "198.18.0.1"
			}
		}
		return false
	})

	pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} // as the API server sets it where a node has to answer
	if _, err := pods.Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the pod is gone", func() bool {
		_, err := pods.Get(t.Context(), "cart", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	waittest.Until(t, what, func() error {
		if !holds() {
			return errors.New("not yet")
		}
		return nil
	})
}
