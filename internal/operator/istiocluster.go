package operator

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/serin-dev/serin/internal/readyourwrites"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio/remotecluster"
)

// remoteClusters contains the connections to other clusters by API group. It is empty if all objects are in Serin's own
// cluster.
type remoteClusters struct {
	clients map[string]client.Client
	// clusters are the clusters that can be watched.
	clusters map[string]cluster.Cluster
}

// connectIstioPrimary connects to the cluster that has the Istio objects of Rollouts, if a Secret configures one. The Secret
// is read once: replacing the caches of a cluster while releases use them is not supported.
func (p process) connectIstioPrimary(ctx context.Context) (remoteClusters, error) {
	secret, err := p.primarySecret(ctx)
	if err != nil || secret == nil {
		return remoteClusters{}, err
	}
	cfg, err := remotecluster.Config(secret, p.flags.userAddressPolicy())
	if err != nil {
		p.logger.Info("Does not route Rollouts with Istio: " + err.Error())
		p.reportHealth("istio", err.Error())
		return remoteClusters{clients: map[string]client.Client{remotecluster.Group: remotecluster.Refusing(traffic.ErrNotInstalled, err.Error())}}, nil
	}
	watched := p.flags.cacheOptions()
	// The kinds of ByObject are listed at once, but the cluster may not answer yet.
	watched.ByObject = nil
	// The default handler logs the address of the cluster.
	watched.DefaultWatchErrorHandler = func(_ context.Context, _ *toolscache.Reflector, err error) {
		p.logger.Info("Could not watch Istio's objects", "secret", remotecluster.Name(secret), "err", remotecluster.Why(err))
	}
	remote, err := cluster.New(p.flags.tuneClient(cfg, p.transports), func(o *cluster.Options) {
		o.Scheme, o.Cache, o.NewCache, o.Client, o.NewClient = p.mgr.GetScheme(), watched, p.caches.newCache, cachedReads(), newClient
		o.MapperProvider = func(cfg *rest.Config, _ *http.Client) (meta.RESTMapper, error) {
			bounded := rest.CopyConfig(cfg) // the methods of a mapper have no context
			bounded.Timeout = remotecluster.RequestTimeout
			httpClient, err := rest.HTTPClientFor(bounded)
			if err != nil {
				return nil, err
			}
			return newCachingMapper(bounded, httpClient)
		}
	})
	if err != nil {
		return remoteClusters{}, fmt.Errorf("connect to the cluster of Secret %s: %w", remotecluster.Name(secret), err)
	}
	if err := p.mgr.Add(remote); err != nil {
		return remoteClusters{}, fmt.Errorf("add the cluster of Secret %s: %w", remotecluster.Name(secret), err)
	}
	p.logger.Info("Routes Rollouts with Istio in the cluster of a Secret", "secret", remotecluster.Name(secret))
	clk := clock.RealClock{}
	guard := remotecluster.NewGuard(remotecluster.Name(secret), clk, func(problem string) {
		if problem == "" {
			p.logger.Info("Reconnected to the cluster of Istio's objects", "secret", remotecluster.Name(secret))
		} else {
			p.logger.Info("Lost the connection to the cluster of Istio's objects", "err", problem)
		}
		p.reportHealth("istio", problem)
	})
	return remoteClusters{
		clients:  map[string]client.Client{remotecluster.Group: readyourwrites.New(guard.Client(remote.GetClient()), guard.Reader(remote.GetAPIReader()), clk)},
		clusters: map[string]cluster.Cluster{remotecluster.Group: remote},
	}, nil
}

// primarySecret returns the Secret for the cluster with the Istio objects of Rollouts, or nil. It is read only from the namespace
// that the administrator chooses: a user who may write this Secret controls the traffic of all Rollouts.
func (p process) primarySecret(ctx context.Context) (*corev1.Secret, error) {
	namespace := p.flags.PrimarySecretNamespace()
	chosen, others, err := findPrimarySecret(ctx, p.mgr.GetAPIReader(), namespace)
	switch {
	case apierrors.IsForbidden(err):
		p.logger.Info("Assumes that Istio's objects are in this cluster, because the Secrets that could configure another cluster may not be " +
			"listed. Allow list on secrets of namespace " + namespace + ", and restart")
		return nil, nil
	case err != nil:
		return nil, err
	}
	if len(others) > 0 {
		p.logger.Info("Found several Secrets for the cluster of Istio's objects and used the first: remove the label "+remotecluster.SecretLabel+" from the others",
			"secret", remotecluster.Name(chosen), "others", strings.Join(others, ", "))
	}
	return chosen, nil
}

func findPrimarySecret(ctx context.Context, reader client.Reader, namespace string) (chosen *corev1.Secret, others []string, err error) {
	var labelled corev1.SecretList
	if err := reader.List(ctx, &labelled, client.InNamespace(namespace), client.MatchingLabels{remotecluster.SecretLabel: "true"}); err != nil {
		return nil, nil, fmt.Errorf("list the Secrets of namespace %s with label %s: %w", namespace, remotecluster.SecretLabel, err)
	}
	chosen, others = remotecluster.Choose(labelled.Items)
	return chosen, others, nil
}

// PrimarySecretNamespace returns the namespace of the Secret for another cluster with the Istio objects of Rollouts.
func (f *Flags) PrimarySecretNamespace() string {
	return cmp.Or(f.IstioPrimarySecretNamespace, f.Argo.OwnNamespace)
}
