package borders

import (
	"testing"

	"github.com/serin-dev/serin/hack/packaging"
)

// TestChartAndKustomizationHaveTheDocumentedRights: a right that is written down in docs/examples/rights.yaml is one that
// every way of installing gives, and so are the definitions.
func TestChartAndKustomizationHaveTheDocumentedRights(t *testing.T) {
	files, err := packaging.Files("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got := read(t, name); got != string(want) {
			t.Errorf("%s is older than what it is made of: go run ./hack/packaging/write", name)
		}
	}
}
