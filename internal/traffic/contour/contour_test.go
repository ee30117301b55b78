package contour_test

import (
	"testing"

	"github.com/serin-dev/serin/internal/traffic/contour"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.NewAdmissionOf(t, "github.com/projectcontour/contour", "examples/contour/01-crds.yaml")
	for _, class := range []string{"", "edge"} {
		t.Run(class, func(t *testing.T) {
			traffictest.Run(t, contour.New(class), traffictest.Options{Provider: "contour", Admission: admission})
		})
	}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, contour.New(""), "contour", "testdata/golden")
	traffictest.Golden(t, contour.New("edge"), "contour", "testdata/golden-class")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	traffictest.Recorded(t, contour.New(""), "contour", 7, []traffictest.Difference{
		zero("contour-weighted", 0), zero("contour-weighted", 3), zero("contour-rollback", 0), zero("contour-rollback", 2),
	})
}

func zero(name string, version int) traffictest.Difference {
	return traffictest.Difference{Case: name, Object: "HTTPProxy/cart", Version: version, Why: "a weight of 0 is written"}
}
