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

// SecondCluster is another cluster in the same sandbox: an API server with objects of its own, without controllers and nodes.
// Its API server is managed by its name, like the programs of StartProcess.
type SecondCluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Kubeconfig is a file with the administrator's credentials embedded, for programs in the sandbox.
	Kubeconfig string
}

// StartSecondCluster starts an API server that listens on a port of the loopback address, and returns when it is ready.
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
		return nil, fmt.Errorf("create a client of API server %s: %w", name, err)
	}
	if b.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create a client of API server %s: %w", name, err)
	}
	if _, err := c.StartProcess(name, append(c.apiServerSpec(port), "--etcd-prefix=/"+name), nil); err != nil {
		return nil, err
	}
	return b, c.waitUntil(ctx, "API server "+name, func(ctx context.Context) error {
		return b.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}
