package metric_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/metric"
	"github.com/serin-dev/serin/internal/metric/graphite"
	"github.com/serin-dev/serin/internal/metric/prometheus"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

func TestOutcomeOf(t *testing.T) {
	for want, errs := range map[release.Outcome][]error{
		release.Measured:    {nil},
		release.NoData:      {metric.ErrNoData, fmt.Errorf("query: %w", metric.ErrNoData)},
		release.Unreachable: {&outbound.UnreachableError{}, context.DeadlineExceeded, context.Canceled},
		release.Broken:      {errors.New("x"), &outbound.RefusedError{}, metric.Unexpected("x"), &metric.StatusError{Code: 404}},
	} {
		for _, err := range errs {
			if got := metric.OutcomeOf(err); got != want {
				t.Errorf("the outcome of %T is %s, want %s", err, got, want)
			}
		}
	}
	// Flagger promises this text as part of events.
	if metric.ErrNoData.Error() != "no values found" {
		t.Errorf("the text of ErrNoData is %q", metric.ErrNoData)
	}
}

func TestRegistryKnowsItsTypes(t *testing.T) {
	registry := metric.NewRegistry(prometheus.Service(nil), graphite.Service())
	if diff := cmp.Diff([]string{"graphite", "prometheus"}, registry.TemplateTypes()); diff != "" {
		t.Error(diff)
	}
	_, err := registry.NewProvider(nil, "shop", flaggerv1.MetricTemplateProvider{Type: "cloudwatch", Region: "x"}, nil)
	if !errors.Is(err, metric.ErrProviderUnknown) || !strings.Contains(err.Error(), "cloudwatch") || !strings.Contains(err.Error(), "graphite, prometheus") {
		t.Errorf("got %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a duplicate type is accepted")
		}
	}()
	metric.NewRegistry(prometheus.Service(nil), prometheus.Service(nil))
}

func TestTextsEqualThoseOfFlagger(t *testing.T) {
	cause := errors.New(`metrictemplate.flagger.app "nowhere" not found`)
	for got, want := range map[string]string{
		metric.TemplateMissing("t", "ns", cause):               `Metric template t.ns error: metrictemplate.flagger.app "nowhere" not found`,
		metric.SecretMissing("t", "ns", "s", cause):            `Metric template t.ns secret s error: metrictemplate.flagger.app "nowhere" not found`,
		metric.ProviderRefused("t", "ns", "prometheus", cause): `Metric template t.ns provider prometheus error: metrictemplate.flagger.app "nowhere" not found`,
		metric.RenderFailed("t", "ns", cause):                  `Metric template t.ns query render error: metrictemplate.flagger.app "nowhere" not found`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestSingleReturnsTheOnlyNumber(t *testing.T) {
	for _, c := range []struct {
		value   any
		want    float64
		outcome release.Outcome
	}{
		{1.5, 1.5, release.Measured},
		{[]float64{1.5}, 1.5, release.Measured},
		{nil, 0, release.NoData},
		{math.NaN(), 0, release.NoData},
		{[]float64{math.NaN()}, 0, release.NoData},
		{[]float64{1, 2}, 0, release.Broken},
		{[]float64{}, 0, release.Broken},
		{"1.5", 0, release.Broken},
		{true, 0, release.Broken},
		{map[string]any{"a": 1.0}, 0, release.Broken},
	} {
		if got, err := metric.Single(metric.Result{Value: c.value}); got != c.want || metric.OutcomeOf(err) != c.outcome {
			t.Errorf("%v: got %v, %v, want %v with outcome %s", c.value, got, err, c.want, c.outcome)
		}
	}
}
