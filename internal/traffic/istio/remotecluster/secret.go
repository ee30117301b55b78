// Package remotecluster connects to the cluster that has the Istio objects of Rollouts, if a Secret configures another cluster
// than that of their pods (Istio calls it the primary cluster), and limits how long callers wait for it.
//
// It must not know the content of the objects, routes, or releases. No content of the Secret may appear in a log, an event or
// an error.
package remotecluster

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/serin-dev/serin/internal/outbound"
)

// SecretLabel is "true" on the Secret whose only value is a kubeconfig for that cluster.
const SecretLabel = "istio.argoproj.io/primary-cluster"

// Group is the API group of the objects in that cluster.
const Group = "networking.istio.io"

// Choose returns the first of the labelled Secrets by namespace and name, which is used, and the names of the others. It is
// nil if there is none.
func Choose(labelled []corev1.Secret) (chosen *corev1.Secret, others []string) {
	if len(labelled) == 0 {
		return nil, nil
	}
	sorted := slices.SortedFunc(slices.Values(labelled), func(a, b corev1.Secret) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range sorted[1:] {
		others = append(others, Name(&sorted[i+1]))
	}
	return &sorted[0], others
}

// Name is the name of a Secret in messages.
func Name(secret *corev1.Secret) string { return secret.Name + "." + secret.Namespace }

// Config is the client configuration in the Secret. Errors are messages for the administrator of Serin, without any content
// of the Secret.
//
// The author of the Secret chooses the address to which Serin sends requests. The policy for user-supplied addresses
// therefore applies to it, and to that of a proxy.
func Config(secret *corev1.Secret, policy outbound.Policy) (*rest.Config, error) {
	cfg, err := config(secret.Data, policy)
	if err != nil {
		return nil, fmt.Errorf("Secret %s has the label %s, and %w: correct it and restart Serin, or remove the label to keep Istio's objects in this cluster", //nolint:staticcheck // a sentence that begins with a kind
			Name(secret), SecretLabel, err)
	}
	return cfg, nil
}

func config(data map[string][]byte, policy outbound.Policy) (*rest.Config, error) {
	if len(data) != 1 {
		return nil, fmt.Errorf("has %d values instead of one, the kubeconfig", len(data))
	}
	for _, text := range data {
		// The error of the parser is dropped: it quotes the content.
		kubeconfig, err := clientcmd.Load(text)
		if err != nil || len(text) == 0 {
			return nil, errors.New("its value is no kubeconfig")
		}
		if err := checkSelfContained(kubeconfig); err != nil {
			return nil, err
		}
		cfg, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
		if err != nil {
			return nil, errors.New("no client can be created from its kubeconfig: certificate, key or credentials are invalid")
		}
		proxy, err := checkAddresses(kubeconfig, policy)
		if err != nil {
			return nil, err
		}
		guard := policy.Guard(proxy)
		cfg.Proxy, cfg.Dial = guard.Proxy, guard.Dial
		cfg.Wrap(guard.Wrap)
		if _, err := rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.New("no client can be created from its kubeconfig: certificate or key cannot be read")
		}
		return cfg, nil
	}
	return nil, nil
}

// checkAddresses refuses a server or a proxy whose name or address is already known to be forbidden, so that it is reported
// at startup. Resolved addresses are checked when they are dialed. It returns the proxy in the kubeconfig; nil if there is
// none.
func checkAddresses(kubeconfig *api.Config, policy outbound.Policy) (*url.URL, error) {
	cluster := kubeconfig.Clusters[kubeconfig.Contexts[kubeconfig.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil || policy.Check(server) != nil {
		return nil, errors.New("the server of its kubeconfig may not be called: it is a loopback, link-local or metadata address, or another that Serin refuses")
	}
	if cluster.ProxyURL == "" {
		return nil, nil
	}
	proxy, err := url.Parse(cluster.ProxyURL)
	if err != nil || proxy.Host == "" || policy.Check(proxy) != nil {
		return nil, errors.New("the proxy-url of its kubeconfig is not a URL, or may not be called: it is a loopback, link-local or metadata address, or another that Serin refuses")
	}
	return proxy, nil
}

// checkSelfContained refuses a kubeconfig that names programs or files. Otherwise every user with permission to write a
// Secret could run or read them in Serin's container.
func checkSelfContained(kubeconfig *api.Config) error {
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil {
		return errors.New("the current-context of its kubeconfig is not among the contexts")
	}
	cluster, user := kubeconfig.Clusters[current.Cluster], kubeconfig.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return errors.New("the context of its kubeconfig names a cluster or a user that does not exist")
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil {
		return errors.New("the server of its kubeconfig is not an https URL without a user")
	}
	for _, user := range sortedValues(kubeconfig.AuthInfos) {
		switch {
		case user.Exec != nil || user.AuthProvider != nil:
			return errors.New("its kubeconfig gets the credentials from a program (exec, auth-provider), which Serin does not run: use a token or a client certificate")
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("its kubeconfig names a file with credentials, which Serin does not read: use token, client-certificate-data and client-key-data")
		}
	}
	for _, cluster := range sortedValues(kubeconfig.Clusters) {
		if cluster.CertificateAuthority != "" {
			return errors.New("its kubeconfig names a file with a certificate authority, which Serin does not read: use certificate-authority-data")
		}
	}
	return nil
}

// sortedValues returns the values of a map in the order of its keys, so that the same one of several errors is always
// reported.
func sortedValues[V any](m map[string]V) []V {
	out := make([]V, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[key])
	}
	return out
}
