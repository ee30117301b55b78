// Package fakenode simulates a node: its pods exist as objects only. They become ready some time after they were bound, and are
// removed as soon as they are deleted.
//
// It makes hundreds of pods as cheap as their objects. It must not know the purpose of the pods, and it starts no program, no
// network and no probe. Its pods have addresses, so that Services have endpoints, but no server listens on them.
package fakenode

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Options configure a node. All fields are required.
type Options struct {
	// Name of the Node, also its label kubernetes.io/hostname, by which pods select it.
	Name string
	// Version that the Node reports, such as v1.37.2.
	Version string
	// Delay is the time between the binding of a pod and its readiness.
	Delay  time.Duration
	Client kubernetes.Interface
	Clock  clock.WithTicker
	Log    *slog.Logger
}

// Node simulates pods.
type Node struct {
	Options
	pods  cache.SharedIndexInformer
	queue workqueue.TypedDelayingInterface[types.NamespacedName]
	// addresses is the number of allocated addresses.
	addresses atomic.Uint32
}

// New returns a node. Register creates its objects, and Run simulates its pods.
func New(options Options) *Node {
	return &Node{
		Options: options,
		pods: coreinformers.NewFilteredPodInformer(options.Client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", options.Name).String()
		}),
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Clock: options.Clock}),
	}
}

// Register creates the Node and its Lease, so that pods can be scheduled to it.
func (n *Node) Register(ctx context.Context) error {
	now := n.Clock.Now()
	plenty := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("10000"), corev1.ResourceMemory: resource.MustParse("10Ti"), corev1.ResourcePods: resource.MustParse("100000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{
			Capacity: plenty, Allocatable: plenty,
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Played",
				LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: n.Version, OperatingSystem: "linux", OSImage: "none"},
		},
	}
	if _, err := n.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	// The API server taints every new node as not ready; the controller that removes the taint may not run yet.
	untaint := []byte(`{"spec":{"taints":null}}`)
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, untaint, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &n.Name, LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NewMicroTime(now)),
		},
	}
	if _, err := n.Client.CoordinationV1().Leases(lease.Namespace).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	return nil
}

const (
	// leaseRenewInterval is shorter than the 50 s after which the controller manager considers the node lost.
	leaseRenewInterval = 10 * time.Second
	// workerCount is the number of concurrent requests to the API server.
	workerCount = 8
	// retryInterval is the delay before a failed request is repeated.
	retryInterval = time.Second
)

// Run simulates the pods of a registered node until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	_, err := n.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.schedulePod(object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.schedulePod(object.(*corev1.Pod)) },
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { n.pods.RunWithContext(ctx) })
	for range workerCount {
		running.Go(func() { n.processQueue(ctx) })
	}
	ticker := n.Clock.NewTicker(leaseRenewInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C():
			n.renewLease(ctx)
		}
	}
	n.queue.ShutDown()
	running.Wait()
	return nil
}

// schedulePod schedules the next change of a pod.
func (n *Node) schedulePod(pod *corev1.Pod) {
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	switch {
	case pod.DeletionTimestamp != nil:
		n.queue.Add(key)
	case pod.Status.Phase != corev1.PodRunning:
		n.queue.AddAfter(key, n.Delay) // the earliest of several times counts
	}
}

func (n *Node) processQueue(ctx context.Context) {
	for {
		key, ended := n.queue.Get()
		if ended {
			return
		}
		if err := n.simulatePod(ctx, key); err != nil && ctx.Err() == nil {
			n.Log.Warn("Could not play a pod", "pod", key.String(), "err", err)
			n.queue.AddAfter(key, retryInterval)
		}
		n.queue.Done(key)
	}
}

// simulatePod makes a pod ready, or removes it.
func (n *Node) simulatePod(ctx context.Context, key types.NamespacedName) error {
	object, found, err := n.pods.GetStore().GetByKey(key.String())
	if err != nil || !found {
		return err
	}
	pod, client := object.(*corev1.Pod), n.Client.CoreV1().Pods(key.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		err = client.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase != corev1.PodRunning:
		var patch []byte
		// The UID protects a new pod of the same name.
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": readyStatus(pod, metav1.NewTime(n.Clock.Now()), n.allocateAddress())})
		if err == nil {
			_, err = client.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		}
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, and the watch reports that too
	}
	return err
}

// allocateAddress returns an address that no pod of this node has, from the block reserved for benchmarks (RFC 2544).
func (n *Node) allocateAddress() string {
	given := n.addresses.Add(1)
	return netip.AddrFrom4([4]byte{198, 18 + byte(given>>16&1), byte(given >> 8), byte(given)}).String()
}

// readyStatus returns the status of a pod whose containers all run.
func readyStatus(pod *corev1.Pod, now metav1.Time, address string) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

// renewLease renews the Lease of the node. A single failure is harmless.
func (n *Node) renewLease(ctx context.Context) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": metav1.NewMicroTime(n.Clock.Now())}})
	if err == nil {
		_, err = n.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil && ctx.Err() == nil {
		n.Log.Warn("Missed a heartbeat", "err", err)
	}
}
