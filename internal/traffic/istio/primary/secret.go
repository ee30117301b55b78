// Package primary finds the cluster that has the Istio objects of Rollouts, where a Secret says that it is another one than
// that of their pods, and bounds how long anybody waits for it.
//
// It must not know what the objects hold, routes, or releases; and nothing of the Secret may reach a log, an event or an
// error.
package primary

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

// SecretLabel is "true" on the Secret whose one value is a kubeconfig of that cluster.
const SecretLabel = "istio.argoproj.io/primary-cluster"

// Group is the API whose objects are there.
const Group = "networking.istio.io"

// Choose is the Secret that counts among those that carry the label, the first by namespace and name, and the names of the
// others. nil: there is none.
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

// Name is that of a Secret in texts for people.
func Name(secret *corev1.Secret) string { return secret.Name + "." + secret.Namespace }

// Config is the way to the cluster that the Secret says. Errors are sentences for whoever runs Serin, without anything of
// what is in the Secret.
//
// Whoever may write the Secret chooses the address that Serin sends requests to, so that address, and that of a proxy, are
// held to the policy like any that users name.
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
		// What is wrong with a text is not repeated: the parser quotes from it.
		kubeconfig, err := clientcmd.Load(text)
		if err != nil || len(text) == 0 {
			return nil, errors.New("its value is no kubeconfig")
		}
		if err := self(kubeconfig); err != nil {
			return nil, err
		}
		cfg, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
		if err != nil {
			return nil, errors.New("no client can be made of its kubeconfig: certificate, key or credentials are not what they should be")
		}
		proxy, err := held(kubeconfig, policy)
		if err != nil {
			return nil, err
		}
		guard := policy.Guard(proxy)
		cfg.Proxy, cfg.Dial = guard.Proxy, guard.Dial
		cfg.Wrap(guard.Wrap)
		if _, err := rest.HTTPClientFor(cfg); err != nil {
			return nil, errors.New("no client can be made of its kubeconfig: certificate or key cannot be read")
		}
		return cfg, nil
	}
	return nil, nil
}

// held refuses a server or a proxy by its name or address, where that tells already that it is closed, so that the log says so
// at the start. What names resolve to is seen when they are dialled. It returns the proxy that the kubeconfig names; nil: none.
func held(kubeconfig *api.Config, policy outbound.Policy) (*url.URL, error) {
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
		return nil, errors.New("the proxy-url of its kubeconfig is no URL, or may not be called: it is a loopback, link-local or metadata address, or another that Serin refuses")
	}
	return proxy, nil
}

// self wants a kubeconfig to say everything itself. A program or a file that it names would be run or read in Serin's own
// container, with Serin's own rights, by whoever may write a Secret.
func self(kubeconfig *api.Config) error {
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil {
		return errors.New("the current-context of its kubeconfig is not among the contexts")
	}
	cluster, user := kubeconfig.Clusters[current.Cluster], kubeconfig.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return errors.New("the context of its kubeconfig names a cluster or a user that is not there")
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" || server.User != nil {
		return errors.New("the server of its kubeconfig is not an https URL without a user")
	}
	for _, user := range sorted(kubeconfig.AuthInfos) {
		switch {
		case user.Exec != nil || user.AuthProvider != nil:
			return errors.New("its kubeconfig has a program get the credentials (exec, auth-provider), which Serin does not run: use a token or a client certificate")
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("its kubeconfig names a file with credentials, which Serin does not read: use token, client-certificate-data and client-key-data")
		}
	}
	for _, cluster := range sorted(kubeconfig.Clusters) {
		if cluster.CertificateAuthority != "" {
			return errors.New("its kubeconfig names a file with a certificate authority, which Serin does not read: use certificate-authority-data")
		}
	}
	return nil
}

// sorted are the values of a map in the order of its keys, so that of several mistakes always the same is told.
func sorted[V any](of map[string]V) []V {
	out := make([]V, 0, len(of))
	for _, key := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[key])
	}
	return out
}
