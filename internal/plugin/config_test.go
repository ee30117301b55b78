package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseConfig(t *testing.T) {
	c := ParseConfig(map[string]string{
		"stepPlugins": `
- {name: acme/file, location: "file:///plugins/a", args: [--x], sha256: "` + strings.Repeat("AB", 32) + ` "}
- {name: acme/off, disabled: true}
- {name: acme/https, location: "https://example.com/a", sha256: ` + strings.Repeat("ab", 32) + `}
- {name: nameless, location: "file:///a"}
- {name: acme/plain, location: "http://example.com/a", sha256: ` + strings.Repeat("ab", 32) + `}
- {name: acme/unpinned, location: "https://example.com/a"}
- {name: acme/short, location: "https://example.com/a", sha256: abc}
- {name: acme/relative, location: "file://plugins/a"}
- {name: acme/ftp, location: "ftp://example.com/a"}
- {name: acme/none}
- {name: acme/twice, location: "file:///a"}
- {name: acme/twice, location: "file:///b"}
`,
		"metricProviderPlugins": "{",
	})
	if item, err := c.Find(Step, "acme/file"); err != nil || item.SHA256 != strings.Repeat("ab", 32) || !cmp.Equal(item.Args, []string{"--x"}) {
		t.Errorf("got %+v, %v", item, err)
	}
	if item, err := c.Find(Step, "acme/off"); err != nil || !item.Disabled {
		t.Errorf("got %+v, %v", item, err)
	}
	want := []string{
		"metricProviderPlugins of the ConfigMap argo-rollouts-config is not a valid list of plugins: error converting YAML to JSON: yaml: line 1: did not find expected node content",
		"plugin acme/ftp: its location must be a file:// or https:// URL",
		"plugin acme/none: its location must be a file:// or https:// URL",
		"plugin acme/plain: its location is http://, where the file could be replaced on its way: use https://, or mount the file and use file://",
		"plugin acme/relative: its location must contain an absolute path, such as file:///plugins/example",
		"plugin acme/short: its sha256 must consist of 64 hexadecimal digits: set it to the output of sha256sum",
		"plugin acme/twice: it is configured twice in stepPlugins of the ConfigMap argo-rollouts-config: remove one",
		"plugin acme/unpinned: its location is https:// and it has no sha256, which is required: set it to the output of sha256sum",
		"plugin nameless: its name must have the form namespace/name, with letters, digits and dashes: correct it in the ConfigMap argo-rollouts-config",
	}
	if diff := cmp.Diff(want, c.Problems()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := c.Find(Metric, "acme/any"); err == nil || !strings.HasPrefix(err.Error(), "acme/any: metricProviderPlugins of the ConfigMap") {
		t.Errorf("got %v", err)
	}
	if _, err := c.Find(Router, "acme/any"); err == nil || err.Error() != "acme/any: not configured: add it to trafficRouterPlugins of the ConfigMap argo-rollouts-config" {
		t.Errorf("got %v", err)
	}
}
