//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// byHand is the name of a scheduler that does not exist. Pods that wait for it are no processes; they become ready when
// a test says so. That shows readiness pod by pod, and makes a hundred pods cheap.
const byHand = "by-hand"

// deploymentByHand is a Deployment of such pods.
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

// addresses of pods by hand; nobody listens there.
var addresses atomic.Int32

// ready makes a pod run and be ready.
func (s *stage) ready(pod string) error {
	n := addresses.Add(1)
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	condition := func(kind corev1.PodConditionType) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","lastTransitionTime":%q}`, kind, now)
	}
	patch := fmt.Sprintf(`{"status":{"phase":"Running","podIP":"10.250.%[1]d.%[2]d","podIPs":[{"ip":"10.250.%[1]d.%[2]d"}],"conditions":[%[3]s,%[4]s,%[5]s,%[6]s]}}`,
		n/250, n%250+1, condition(corev1.PodInitialized), condition(corev1.PodScheduled), condition(corev1.ContainersReady), condition(corev1.PodReady))
	_, err := shared.Client.CoreV1().Pods(s.namespace).
		Patch(context.Background(), pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil // it was not needed any more
	}
	return err
}

// keepReady makes every pod of the namespace ready as soon as it is there, until the test ends.
func (s *stage) keepReady(t *testing.T) {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(shared.Client, 0, informers.WithNamespace(s.namespace))
	look := func(object any) {
		pod := object.(*corev1.Pod)
		if pod.Spec.SchedulerName != byHand || pod.Status.Phase != corev1.PodPending {
			return
		}
		if err := s.ready(pod.Name); err != nil {
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

// makeReady makes so many further pods with these labels ready, and wants as many to be there.
func (s *stage) makeReady(selector string, n int) {
	s.t.Helper()
	all, err := shared.Client.CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pod := range all.Items {
		if n == 0 {
			break
		}
		if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
			continue
		}
		if err := s.ready(pod.Name); err != nil {
			s.t.Fatal(err)
		}
		n--
	}
	if n > 0 {
		s.t.Fatalf("%d pods with %s are missing", n, selector)
	}
}
