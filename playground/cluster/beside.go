//go:build linux

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// SecondCluster is another cluster in the same world: an API server with objects of its own, and nobody who acts on them. It is a
// program of its name as those of StartProcess are.
type SecondCluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Kubeconfig is a file for programs inside, of the administrator, with all that it says in itself.
	Kubeconfig string
}

// StartSecondCluster starts one that listens at a port of the loopback address, and returns when it answers.
func (c *Cluster) StartSecondCluster(ctx context.Context, name string, port int) (*SecondCluster, error) {
	b := &SecondCluster{Kubeconfig: filepath.Join(c.Folder, "kubeconfig-"+name)}
	if err := c.credentials.writeKubeconfig(b.Kubeconfig, "https://127.0.0.1:"+strconv.Itoa(port)); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", b.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	if b.Client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reach API server %s: %w", name, err)
	}
	if b.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("reach API server %s: %w", name, err)
	}
	if _, err := c.StartProcess(name, append(c.apiServerSpec(port), "--etcd-prefix=/"+name), nil); err != nil {
		return nil, err
	}
	return b, c.waitUntil(ctx, "API server "+name, func(ctx context.Context) error {
		return b.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}
