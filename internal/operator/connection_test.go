package operator

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

const twoContexts = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one.test"}}
- {name: two, cluster: {server: "https://two.test"}}
users:
- {name: vera, user: {token: first}}
- {name: max, user: {token: second}}
contexts:
- {name: one, context: {cluster: one, user: vera}}
- {name: two, context: {cluster: two, user: vera}}
`

func TestFlagsSelectTheClusterAndTheUser(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(twoContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for _, test := range []struct {
		args                     []string
		host, token, impersonate string
		timeout                  time.Duration
	}{
		{nil, "https://one.test", "first", "", 0},
		{[]string{"-kubeconfig", file}, "https://one.test", "first", "", 0},
		{[]string{"-kubeconfig", file, "-master", "https://three.test"}, "https://three.test", "first", "", 0},
		{[]string{"-kubeconfig", file, "-context=two", "-user=max"}, "https://two.test", "second", "", 0},
		{[]string{"--cluster", "two", "--as", "deputy", "--as-group", "a", "--as-group", "b"}, "https://two.test", "first", "deputy", 0},
		{[]string{"--server", "https://four.test", "--token", "third", "--request-timeout", "7s"}, "https://four.test", "third", "", 7 * time.Second},
	} {
		var f Flags
		set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		f.Register(set)
		if err := set.Parse(NormalizeArguments(set, test.args)); err != nil {
			t.Fatalf("%v: %v", test.args, err)
		}
		config, err := f.restConfig(nil)
		if err != nil {
			t.Fatalf("%v: %v", test.args, err)
		}
		if config.Host != test.host || config.BearerToken != test.token || config.Impersonate.UserName != test.impersonate || config.Timeout != test.timeout {
			t.Errorf("%v: got %s, token %s, as %s, timeout %s", test.args, config.Host, config.BearerToken, config.Impersonate.UserName, config.Timeout)
		}
		if groups := config.Impersonate.Groups; test.impersonate != "" && !slices.Equal(groups, []string{"a", "b"}) {
			t.Errorf("%v: got groups %q", test.args, groups)
		}
	}
}

func TestAnUnknownContextIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(twoContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	f := Flags{Kubeconfig: file}
	f.Connection.CurrentContext = "three"
	if _, err := f.restConfig(nil); err == nil || err.Error() != `read the kubeconfig: context "three" does not exist` {
		t.Errorf("got %v", err)
	}
}
