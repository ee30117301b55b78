package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection selects a cluster as kubectl does, by the same flags and files. The library of kubectl is not used, because it would
// link many unused dependencies into the controller.
type connection struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	userExtra  []string
}

func (c *connection) register(flags *pflag.FlagSet) {
	c.overrides.ClusterDefaults.Server = os.Getenv("KUBERNETES_MASTER") // without the default of kubectl, localhost:8080
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	names.AuthOverrideFlags.Username, names.AuthOverrideFlags.Password = clientcmd.FlagInfo{}, clientcmd.FlagInfo{} // API servers do not support them
	clientcmd.BindOverrideFlags(&c.overrides, flags, names)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	flags.StringArrayVar(&c.userExtra, "as-user-extra", nil,
		"User extras to impersonate for the operation, this flag can be repeated to specify multiple values for the same key.")
}

// rules returns the rules by which kubeconfig files are found.
func (c *connection) rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return rules
}

// load reads the kubeconfig files, and returns the configuration of the client with the namespace of the context.
func (c *connection) load() (config *rest.Config, namespace string, err error) {
	if c.overrides.AuthInfo.ImpersonateUserExtra, err = parseUserExtras(c.userExtra); err != nil {
		return nil, "", withExitCode(ExitUsage, err)
	}
	rules := c.rules()
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	if namespace, _, err = loader.Namespace(); err == nil {
		config, err = loader.ClientConfig()
	}
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", withExitCode(ExitUnreachable, noClusterError(rules))
	case err != nil:
		return nil, "", withExitCode(ExitUsage, fmt.Errorf("read the kubeconfig: %w", err))
	}
	return config, namespace, nil
}

// currentContext returns the name of the selected context; empty: unknown.
func (c *connection) currentContext() string {
	if loaded, err := c.rules().Load(); err == nil {
		return loaded.CurrentContext
	}
	return ""
}

// noClusterError explains why no cluster is selected.
func noClusterError(rules *clientcmd.ClientConfigLoadingRules) error {
	files := strings.Join(rules.GetLoadingPrecedence(), " or ")
	if rules.ExplicitPath != "" {
		files = rules.ExplicitPath
	}
	if loaded, err := rules.Load(); err == nil && len(loaded.Contexts) > 0 {
		return fmt.Errorf("the kubeconfig %s selects no cluster: use --context with one of %s, or set one with kubectl config use-context",
			files, strings.Join(slices.Sorted(maps.Keys(loaded.Contexts)), ", "))
	}
	return fmt.Errorf("no kubeconfig: there is no usable file at %s: set KUBECONFIG or --kubeconfig", files)
}

// parseUserExtras parses KEY=VALUE pairs; a key may have several values.
func parseUserExtras(pairs []string) (map[string][]string, error) {
	var extras map[string][]string
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("read --as-user-extra: %q has no =: use KEY=VALUE", pair)
		}
		if extras == nil {
			extras = map[string][]string{}
		}
		extras[key] = append(extras[key], value)
	}
	return extras, nil
}
