package gloo_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/gloo"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

func TestContract(t *testing.T) {
	admission := traffictest.LocalAdmission(t, "testdata/definitions.yaml")
	t.Run("alone", func(t *testing.T) {
		traffictest.Run(t, gloo.New(nil), traffictest.Options{Provider: "gloo", Admission: admission, NoHandOver: true})
	})
	t.Run("after a pattern", func(t *testing.T) {
		traffictest.Run(t, gloo.New([]string{"team"}), traffictest.Options{
			Provider: "gloo", Admission: admission, Canary: patterned, Given: pattern, NoHandOver: true,
		})
	})
}

func patterned(t *rapid.T, c *flaggerv1.Canary) {
	c.Spec.UpstreamRef = &flaggerv1.UpstreamReference{
		APIVersion: "gloo.solo.io/v1", Kind: "Upstream", Name: "pattern",
		Namespace: rapid.SampledFrom([]string{"", "gloo-system"}).Draw(t, "namespace of the pattern"),
	}
}

// pattern is an Upstream of a user.
func pattern(t traffic.Target) []*unstructured.Unstructured {
	refs := gloo.New(nil).Refs(t, release.Route{}, nil)
	obj := traffictest.NewObject(refs[len(refs)-1], map[string]any{
		"connectionConfig": map[string]any{"maxRequestsPerConnection": int64(32)},
		"useHttp2":         true,
		"kube":             map[string]any{"serviceName": "other"},
	})
	obj.SetLabels(map[string]string{"team": "shop"})
	return []*unstructured.Unstructured{obj}
}

func TestGolden(t *testing.T) {
	traffictest.Golden(t, gloo.New([]string{"team"}), "gloo", "testdata/golden")
}

// TestRecorded compares with routes that Flagger wrote.
func TestRecorded(t *testing.T) {
	differs := func(name string, version int, why string) traffictest.Difference {
		return traffictest.Difference{Case: name, Object: "RouteTable/cart", Version: version, Why: why}
	}
	const zero, rest = "a weight of 0 is written", "there is a second route for requests that do not match"
	traffictest.Recorded(t, gloo.New(nil), "gloo", 11, []traffictest.Difference{
		differs("gloo-weighted", 0, zero), differs("gloo-weighted", 3, zero),
		differs("gloo-ab", 0, rest), differs("gloo-ab", 1, rest), differs("gloo-ab", 2, rest),
	})
}
