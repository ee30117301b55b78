package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection is how the user selects a cluster: the flags of kubectl, and the files that kubectl reads. kubectl's own library
// is not used, because it would link many unused dependencies into the controller.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	userExtra  []string
}

func (c *connection) register(flags *pflag.FlagSet) {
	c.overrides.ClusterDefaults = clientcmd.ClusterDefaults
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{} // API servers do not support them
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	flags.StringArrayVar(&c.userExtra, "as-user-extra", nil,
		"User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key.")
}

// load reads the files, and returns the namespace of the context.
func (c *connection) load() (config *rest.Config, namespace string, err error) {
	if c.overrides.AuthInfo.ImpersonateUserExtra, err = extras(c.userExtra); err != nil {
		return nil, "", exit(ExitUsage, err)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	rules.DefaultClientConfig = &clientcmd.DefaultClientConfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	if namespace, _, err = loader.Namespace(); err == nil {
		config, err = loader.ClientConfig()
	}
	if err != nil {
		return nil, "", exit(configCode(err), fmt.Errorf("read the kubeconfig: %w", err))
	}
	return config, namespace, nil
}

// configCode distinguishes a wrong flag from a missing configuration.
func configCode(err error) int {
	if clientcmd.IsEmptyConfig(err) {
		return ExitUnreachable
	}
	return ExitUsage
}

// extras reads KEY=VALUE; a key may have several values.
func extras(pairs []string) (map[string][]string, error) {
	var read map[string][]string
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("read --as-user-extra: %q has no =: use KEY=VALUE", pair)
		}
		if read == nil {
			read = map[string][]string{}
		}
		read[key] = append(read[key], value)
	}
	return read, nil
}
