package borders

import (
	"bytes"
	"strings"
	"testing"

	"github.com/serin-dev/serin/hack/packaging"
	"github.com/serin-dev/serin/internal/traffic"
)

// TestChartAndKustomizationHaveTheDocumentedPermissions: every way of installing grants exactly the documented permissions,
// and installs the same CustomResourceDefinitions.
func TestChartAndKustomizationHaveTheDocumentedPermissions(t *testing.T) {
	files, err := packaging.Files("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got := read(t, name); got != string(want) {
			t.Errorf("%s is out of date: go run ./hack/packaging/write", name)
		}
	}
}

// TestEveryProviderHasAKustomization: hack/packaging has an entry for each provider, in one version.
func TestEveryProviderHasAKustomization(t *testing.T) {
	files, err := packaging.Files("../..")
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/install.md")
	for _, name := range traffic.ProviderNames() {
		folder, _, _ := strings.Cut(name, ":")
		if folder == "smi" {
			continue // has many versions and meshes
		}
		if !bytes.Contains(files["config/"+folder+"/Kustomization"], []byte("value: -mesh-provider="+folder)) {
			t.Errorf("provider %s has no kustomization: add it to the overlays of hack/packaging", name)
		}
		if !strings.Contains(page, "`"+folder+"`") && !strings.Contains(page, "`config/"+folder+"`") {
			t.Errorf("docs/install.md does not list config/%s", folder)
		}
	}
}
