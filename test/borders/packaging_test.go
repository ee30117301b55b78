package borders

import (
	"testing"

	"github.com/serin-dev/serin/hack/packaging"
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
