package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	shopFile = `
apiVersion: v1
kind: Config
current-context: shop
contexts:
- {name: shop, context: {cluster: shop, user: me, namespace: web}}
clusters:
- {name: shop, cluster: {server: "https://shop.example:6443"}}
`
	testFile = `
apiVersion: v1
kind: Config
contexts:
- {name: test, context: {cluster: test, user: me}}
clusters:
- {name: test, cluster: {server: "https://test.example:6443"}}
users:
- {name: me, user: {token: secret}}
`
)

// writeKubeconfigs writes two kubeconfigs. The user of the first one is defined in the second one.
func writeKubeconfigs(t *testing.T) (shop, other string) {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, value := range map[string]string{
		"HOME": folder, "KUBECONFIG": "", "KUBERNETES_MASTER": "", "KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": "",
	} {
		t.Setenv(name, value)
	}
	return write("shop", shopFile), write("other", testFile)
}

func TestTheClusterIsSelectedAsByKubectl(t *testing.T) {
	for name, c := range map[string]struct {
		environment func(shop, other string) string
		args        func(shop, other string) []string
		host        string
		namespace   string
		token       string
	}{
		"a server without a file": {
			environment: func(string, string) string { return "" },
			args:        func(string, string) []string { return []string{"-s", "https://other.example"} },
			host:        "https://other.example", namespace: "default",
		},
		"several files in KUBECONFIG": {
			environment: func(shop, other string) string { return shop + string(filepath.ListSeparator) + other },
			host:        "https://shop.example:6443", namespace: "web", token: "secret",
		},
		"another context": {
			environment: func(shop, other string) string { return shop + string(filepath.ListSeparator) + other },
			args:        func(string, string) []string { return []string{"--context", "test"} },
			host:        "https://test.example:6443", namespace: "default", token: "secret",
		},
		"--kubeconfig has precedence over KUBECONFIG": {
			environment: func(_, other string) string { return other },
			args:        func(shop, _ string) []string { return []string{"--kubeconfig", shop} },
			host:        "https://shop.example:6443", namespace: "web",
		},
		"flags have precedence over files": {
			environment: func(shop, other string) string { return shop + string(filepath.ListSeparator) + other },
			args: func(string, string) []string {
				return []string{"-n", "other", "-s", "https://other.example", "--token", "mine", "--as", "ann", "--as-group", "a", "--as-group", "b", "--as-user-extra", "why=test", "--request-timeout", "7s"}
			},
			host: "https://other.example", namespace: "other", token: "mine",
		},
	} {
		t.Run(name, func(t *testing.T) {
			shop, other := writeKubeconfigs(t)
			t.Setenv("KUBECONFIG", c.environment(shop, other))
			var selected connection
			flags := pflag.NewFlagSet("serin", pflag.ContinueOnError)
			selected.register(flags)
			if c.args != nil {
				if err := flags.Parse(c.args(shop, other)); err != nil {
					t.Fatal(err)
				}
			}
			config, namespace, err := selected.load()
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != c.host || namespace != c.namespace || config.BearerToken != c.token {
				t.Errorf("got %s, namespace %s, token %q, want %s, %s, %q", config.Host, namespace, config.BearerToken, c.host, c.namespace, c.token)
			}
			if flags.Changed("as") {
				if as := config.Impersonate; as.UserName != "ann" || len(as.Groups) != 2 || len(as.Extra["why"]) != 1 || config.Timeout.Seconds() != 7 {
					t.Errorf("got %+v and a timeout of %s", as, config.Timeout)
				}
			}
		})
	}
}

func TestWithoutAClusterTheErrorNamesTheFiles(t *testing.T) {
	shop, other := writeKubeconfigs(t)
	missing := filepath.Join(filepath.Dir(shop), "missing")
	home := filepath.Join(filepath.Dir(shop), ".kube", "config")
	before := clientcmd.RecommendedHomeFile // read from the environment when the process starts
	clientcmd.RecommendedHomeFile = home
	t.Cleanup(func() { clientcmd.RecommendedHomeFile = before })
	for environment, want := range map[string]string{
		"":      "no kubeconfig: there is no usable file at " + home + ": set KUBECONFIG or --kubeconfig",
		missing: "no kubeconfig: there is no usable file at " + missing + ": set KUBECONFIG or --kubeconfig",
		other:   "the kubeconfig " + other + " selects no cluster: use --context with one of test, or set one with kubectl config use-context",
	} {
		t.Setenv("KUBECONFIG", environment)
		var selected connection
		selected.register(pflag.NewFlagSet("serin", pflag.ContinueOnError))
		if _, _, err := selected.load(); err == nil || err.Error() != want || ExitCode(err) != ExitUnreachable {
			t.Errorf("KUBECONFIG=%s: got %v with exit code %d, want %s", environment, err, ExitCode(err), want)
		}
	}
}

func TestInvalidConnectionsAreUsageErrors(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a missing file":           {[]string{"--kubeconfig", "/nowhere/config"}, "/nowhere/config"},
		"an extra without a value": {[]string{"--as-user-extra", "why"}, "use KEY=VALUE"},
		"no such context":          {[]string{"--context", "nobody"}, "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			writeKubeconfigs(t)
			var selected connection
			flags := pflag.NewFlagSet("serin", pflag.ContinueOnError)
			selected.register(flags)
			if err := flags.Parse(c.args); err != nil {
				t.Fatal(err)
			}
			_, _, err := selected.load()
			if err == nil || ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v with exit code %d, want %q and %d", err, ExitCode(err), c.want, ExitUsage)
			}
		})
	}
}
