package operator

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
)

// ConnectionFlags override parts of the kubeconfig.
type ConnectionFlags = clientcmd.ConfigOverrides

// noTimeout is the default of -request-timeout.
const noTimeout = "0"

// registerConnection declares the flags by which Argo's controller selects a cluster and a user, as kubectl does. -namespace, which
// exists, has another meaning. API servers do not support user names with passwords.
func (f *Flags) registerConnection(set *pflag.FlagSet) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace = clientcmd.FlagInfo{}
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{}
	clientcmd.BindOverrideFlags(&f.Connection, set, names)
}

// restConfig returns the configuration of the client: that of the pod, or the one that the flags select.
func (f *Flags) restConfig(transports []transport.WrapperFunc) (*rest.Config, error) {
	cfg, err := f.clientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return f.tuneClient(cfg, transports), nil
}

func (f *Flags) clientConfig() (*rest.Config, error) {
	isDefault := reflect.DeepEqual(f.Connection, ConnectionFlags{Timeout: f.Connection.Timeout}) && cmp.Or(f.Connection.Timeout, noTimeout) == noTimeout
	if f.Kubeconfig == "" && f.Master == "" && isDefault {
		return ctrl.GetConfig()
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	overrides := f.Connection
	overrides.ClusterInfo.Server = cmp.Or(overrides.ClusterInfo.Server, f.Master)
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides).ClientConfig()
}
