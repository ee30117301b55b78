// Command fakenode replaces a kubelet on a machine without containers.
//
// It registers one node and simulates the life of every pod that is bound to it: volumes that must exist, image pulls that
// fail, commands that sleep or exit, postStart and preStop hooks, readiness probes, readiness gates, restart policy with
// backoff, and termination within the grace period. It executes nothing on the host: command.go interprets a small subset of
// shell commands.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
)

type config struct {
	nodeName   string
	nodeIP     string
	podSubnet  string
	startDelay time.Duration
	stopDelay  time.Duration
	pullDelay  time.Duration
	badImage   *regexp.Regexp
	verbose    bool
}

func main() {
	var cfg config
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	flag.StringVar(&cfg.nodeName, "node", "node0", "name of the node to register")
	flag.StringVar(&cfg.nodeIP, "node-ip", "127.0.0.1", "address of the node")
	flag.StringVar(&cfg.podSubnet, "pod-subnet", "10.244", "first two octets of pod addresses")
	flag.DurationVar(&cfg.startDelay, "start-delay", time.Second, "from binding to the first container running")
	flag.DurationVar(&cfg.stopDelay, "stop-delay", 500*time.Millisecond, "from the stop signal to the exit of a server that handles it")
	flag.DurationVar(&cfg.pullDelay, "pull-delay", 300*time.Millisecond, "from pull to failure for a bad image")
	bad := flag.String("bad-image", `does-not-exist|nonexistent|[:-]error$`, "images matching this regular expression cannot be pulled")
	flag.BoolVar(&cfg.verbose, "v", false, "log every step of every pod")
	flag.Parse()
	cfg.badImage = regexp.MustCompile(*bad)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatalf("kubeconfig: %v", err)
	}
	rest.QPS, rest.Burst = 300, 600
	client := kubernetes.NewForConfigOrDie(rest)

	if err := registerNode(ctx, client, cfg); err != nil {
		log.Fatalf("register node: %v", err)
	}
	go renewLease(ctx, client, cfg)

	m := &manager{ctx: ctx, client: client, cfg: cfg, workers: map[string]*podWorker{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", cfg.nodeName).String()
	}))
	inf := factory.Core().V1().Pods().Informer()
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.observe(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { m.observe(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj
			}
			if p, ok := o.(*corev1.Pod); ok {
				m.forget(p)
			}
		},
	}); err != nil {
		log.Fatal(err)
	}
	factory.Start(ctx.Done())
	log.Printf("node %s ready", cfg.nodeName)
	<-ctx.Done()
}

func nodeConditions(now metav1.Time) []corev1.NodeCondition {
	mk := func(t corev1.NodeConditionType, s corev1.ConditionStatus, r string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: r, Message: r, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []corev1.NodeCondition{
		mk(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
		mk(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
		mk(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
		mk(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
	}
}

func registerNode(ctx context.Context, client kubernetes.Interface, cfg config) error {
	res := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1000"),
		corev1.ResourceMemory:           resource.MustParse("4000Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("4000Gi"),
		corev1.ResourcePods:             resource.MustParse("100000"),
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: cfg.nodeName,
		Labels: map[string]string{
			"kubernetes.io/hostname": cfg.nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		},
	}}
	if _, err := client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The control plane changes the new Node too: adds taints and labels.
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := client.CoreV1().Nodes().Get(ctx, cfg.nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.Status.Capacity, n.Status.Allocatable = res, res
		n.Status.Conditions = nodeConditions(metav1.Now())
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: cfg.nodeIP}, {Type: corev1.NodeHostName, Address: cfg.nodeName},
		}
		n.Status.NodeInfo = corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux", KubeletVersion: "v1.36.0-fake", ContainerRuntimeVersion: "fake://0"}
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// renewLease renews the lease of the node, so that the node lifecycle controller regards it as ready.
func renewLease(ctx context.Context, client kubernetes.Interface, cfg config) {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds := int32(40)
	for first := true; ; first = false {
		if !first {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
			}
		}
		now := metav1.NowMicro()
		l, err := leases.Get(ctx, cfg.nodeName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = leases.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: cfg.nodeName},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &cfg.nodeName, LeaseDurationSeconds: &seconds, RenewTime: &now},
			}, metav1.CreateOptions{})
		case err == nil:
			l.Spec.RenewTime = &now
			_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		}
		if err != nil && ctx.Err() == nil {
			log.Printf("lease: %v", err)
		}
	}
}

func podKey(p *corev1.Pod) string { return fmt.Sprintf("%s/%s/%s", p.Namespace, p.Name, p.UID) }
