//go:build linux

// Package node is a small kubelet whose containers are plain processes.
//
// It knows Pods, ConfigMaps, Secrets, its own Node and Lease, and starts one
// program per container, with a root filesystem and a network of its own. It
// must not know Services, gateways, or what the programs do.
//
// It differs from a kubelet on purpose: an image is one program from a fixed
// list, and no other image can be pulled; a crashed container is restarted
// after 0, 1, 2, 4 … 30 s (not 10 s … 5 min); until a container is ready for
// the first time it is probed five times a second; there are no exec and gRPC
// probes and no resource limits; lifecycle hooks run commands only; volumes are
// configMap, secret, projected volumes of these, emptyDir and hostPath.
package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/network"
)

// Image is the program for the name of an image.
type Image struct {
	// Program is a static program on the machine. It is run whatever the first word of the container's command is.
	Program string
	// Commands are the commands that the program implements, if it implements several. The program then receives the whole
	// command of the container, and other commands cannot be started.
	Commands []string
	// Args precede the container's arguments.
	Args []string
	// Tags are the existing tags of the image. If empty, every tag exists.
	Tags []string
	// TagVariable, if not empty, is an environment variable with the image's tag, which the container may override.
	TagVariable string
}

// Options configure a node. All fields are required.
type Options struct {
	// Name of the Node.
	Name string
	// Version that the Node reports, such as v1.37.2.
	Version string
	Client  kubernetes.Interface
	Network *network.Network
	// Images are the available images; the key is the name without tag, such as serin.dev/demo.
	Images map[string]Image
	// Folder contains the files of pods, in the subfolder pods, and their logs, in the subfolder logs.
	Folder string
	// Certificate is that of the node's own API, from which the API server reads logs.
	Certificate tls.Certificate
	Clock       clock.WithTicker
	Log         *slog.Logger
}

// Port is the port of the node's own API.
const Port = 10250

// Node runs pods.
type Node struct {
	Options

	mu      sync.Mutex
	workers map[types.UID]*worker
	running sync.WaitGroup
}

// New returns a node; Register and Run start it.
func New(options Options) *Node {
	return &Node{Options: options, workers: map[types.UID]*worker{}}
}

// nodeCapacity returns a capacity that never prevents scheduling: the playground enforces no limits.
func nodeCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("256Gi"),
		corev1.ResourcePods:             resource.MustParse("500"),
	}
}

// Register creates the Node and its Lease, so that pods can be scheduled to it.
func (n *Node) Register(ctx context.Context) error {
	now := metav1.NewTime(n.Clock.Now())
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{
			corev1.LabelHostname: n.Name, corev1.LabelOSStable: "linux", "node-role.kubernetes.io/playground": "",
		}},
		Status: corev1.NodeStatus{
			Capacity: nodeCapacity(), Allocatable: nodeCapacity(),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: network.NodeAddress.String()}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "PlaygroundReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "Unlimited"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "Unlimited"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "Unlimited"),
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: Port}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: n.Version, OperatingSystem: "linux", ContainerRuntimeVersion: "process://1", OSImage: "playground",
			},
		},
	}
	if _, err := n.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	// The API server taints every new node as not ready, and the controller that removes the taint may not run yet.
	untaint := []byte(`{"spec":{"taints":null}}`)
	if _, err := n.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, untaint, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Namespace: corev1.NamespaceNodeLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(n.Name), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NewMicroTime(n.Clock.Now())),
		},
	}
	if _, err := n.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("register node %s: %w", n.Name, err)
	}
	return nil
}

// leaseRenewInterval is shorter than 50 s, after which the controller manager regards a node as unreachable.
const leaseRenewInterval = 10 * time.Second

// Run runs the pods of a registered node until ctx ends. Then it kills them and returns.
func (n *Node) Run(ctx context.Context) error {
	for _, folder := range []string{"pods", "logs"} {
		if err := os.MkdirAll(filepath.Join(n.Folder, folder), 0o755); err != nil {
			return fmt.Errorf("create the folder of pods: %w", err)
		}
	}
	pods := coreinformers.NewFilteredPodInformer(n.Client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.Name).String()
	})
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { n.updatePod(ctx, object.(*corev1.Pod)) },
		UpdateFunc: func(_, object any) { n.updatePod(ctx, object.(*corev1.Pod)) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			n.deletePod(object.(*corev1.Pod).UID)
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	serving := make(chan error, 1)
	go func() { serving <- n.serveLogs(ctx) }()
	watching := make(chan struct{})
	go func() { defer close(watching); pods.RunWithContext(ctx) }()

	ticker := n.Clock.NewTicker(leaseRenewInterval)
	defer ticker.Stop()
	for ctx.Err() == nil && err == nil {
		select {
		case <-ctx.Done():
		case err = <-serving:
		case <-ticker.C():
			n.renewLease(ctx)
		}
	}
	if ctx.Err() != nil {
		<-watching
		n.running.Wait()
	}
	return err
}

// renewLease renews the Lease of the node. A failed renewal is only logged: the next one is in time.
func (n *Node) renewLease(ctx context.Context) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": metav1.NewMicroTime(n.Clock.Now())}})
	if err == nil {
		_, err = n.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil && ctx.Err() == nil {
		n.Log.Warn("Could not renew the Lease of the node", "err", err)
	}
}

// updatePod passes the newest state of a pod to its worker, and starts the worker of a new pod.
func (n *Node) updatePod(ctx context.Context, pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.workers[pod.UID]
	if w == nil {
		if ctx.Err() != nil {
			return
		}
		w = newWorker(n, pod)
		n.workers[pod.UID] = w
		n.running.Go(func() {
			w.run(ctx)
			n.mu.Lock()
			defer n.mu.Unlock()
			// The entry of a pod that has ended remains until the pod is deleted, so that the pod is not started again.
			if w.objectDeleted {
				delete(n.workers, pod.UID)
			}
		})
	}
	w.notify(pod)
}

func (n *Node) deletePod(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.workers[uid]; w != nil {
		w.notify(nil)
	}
}

// findImage returns the program for an image reference, and its tag.
func (n *Node) findImage(name string) (image Image, tag string, found bool) {
	name, _, _ = strings.Cut(name, "@")
	// A colon before the last slash separates the port of a registry.
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		name, tag = name[:colon], name[colon+1:]
	}
	image, found = n.Images[name]
	return image, tag, found && (len(image.Tags) == 0 || slices.Contains(image.Tags, tag))
}

// patchStatus writes a pod's status. The UID is a precondition, so that a new pod of the same name is not changed.
func (n *Node) patchStatus(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	_, err = n.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it was deleted, which the watch reports too
	}
	return err
}

// deletePodObject deletes the object of a pod whose processes have ended.
func (n *Node) deletePodObject(ctx context.Context, pod *corev1.Pod) error {
	err := n.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// setUpNetwork returns the network of a pod: a new namespace, or nil and the node's address for host network.
func (n *Node) setUpNetwork(pod *corev1.Pod) (*network.Namespace, netip.Addr, error) {
	if pod.Spec.HostNetwork {
		return nil, network.NodeAddress, nil
	}
	if n.Network == nil {
		return nil, netip.Addr{}, errors.New("the node has no network for pods: set hostNetwork")
	}
	namespace, err := n.Network.Namespace()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	return namespace, namespace.Address, nil
}
