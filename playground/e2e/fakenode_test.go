//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/bench/fakenode"
	"github.com/serin-dev/serin/playground/build"
)

// byHand is the name of a scheduler that does not exist, and of a fake node. Pods with that scheduler are not processes; a
// test makes them ready by binding them to the fake node. This allows tests to control the readiness of each pod, and makes a
// hundred pods cheap.
const byHand = "by-hand"

// deploymentByHand returns a Deployment of such pods.
func deploymentByHand(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      schedulerName: %[3]s
      containers:
      - name: app
        image: serin.dev/demo:v1
        ports: [{name: http, containerPort: 8080}]
---
`, name, replicas, byHand)
}

// runFakeNode runs the fake node until ctx ends. It is unschedulable, so that the scheduler assigns no other pods to it.
func runFakeNode(ctx context.Context) error {
	node := fakenode.New(fakenode.Options{
		Name: byHand, Version: build.KubernetesVersion, Client: shared.Client, Clock: clock.RealClock{},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err := node.Register(ctx); err != nil {
		return err
	}
	closedAddress := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := shared.Client.CoreV1().Nodes().Patch(ctx, byHand, types.MergePatchType, closedAddress, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("make node %s unschedulable: %w", byHand, err)
	}
	go node.Run(ctx) //nolint:errcheck // it returns an error only before it runs
	return nil
}

// bindPod binds a pod to the fake node, which makes it ready.
func (s *environment) bindPod(pod string) error {
	err := shared.Client.CoreV1().Pods(s.namespace).Bind(context.Background(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: byHand},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod was deleted or is already bound
	}
	return err
}

// keepPodsReady makes every new pod of the namespace ready until the test ends.
func (s *environment) keepPodsReady(t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(shared.Client, 0, informers.WithNamespace(s.namespace))
	look := func(object any) {
		pod := object.(*corev1.Pod)
		if pod.Spec.SchedulerName != byHand || pod.Spec.NodeName != "" {
			return
		}
		if err := s.bindPod(pod.Name); err != nil {
			t.Errorf("make pod %s ready: %v", pod.Name, err)
		}
	}
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
}

// makePodsReady makes n more pods with these labels ready, and fails if there are fewer.
func (s *environment) makePodsReady(selector string, n int) {
	s.t.Helper()
	all, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pod := range all.Items {
		if n == 0 {
			break
		}
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		if err := s.bindPod(pod.Name); err != nil {
			s.t.Fatal(err)
		}
		n--
	}
	if n > 0 {
		s.t.Fatalf("%d pods with %s are missing", n, selector)
	}
}
