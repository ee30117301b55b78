package controller

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/analysis"
	"github.com/serin-dev/serin/internal/sharding"
	"github.com/serin-dev/serin/internal/telemetry"
)

// readTimeout is the maximum time for which a scrape waits for a cache that is not synchronized yet.
const readTimeout = time.Second

// ReadSeries returns a function that reads the content of the series about AnalysisRuns, Experiments and their
// templates from a cache. Kinds that cannot be read are omitted: their CustomResourceDefinitions may be missing. So are objects in
// the shards of other processes, which export their series.
func ReadSeries(ctx context.Context, cached client.Reader, shards *sharding.Held) func() telemetry.Analyses {
	return func() telemetry.Analyses {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		var out telemetry.Analyses
		runs := &argov1.AnalysisRunList{}
		if cached.List(ctx, runs, client.UnsafeDisableDeepCopy) == nil {
			for i := range runs.Items {
				if shards.Holds(runs.Items[i].Namespace) {
					out.Runs = append(out.Runs, runSeries(&runs.Items[i]))
				}
			}
		}
		experiments := &argov1.ExperimentList{}
		if cached.List(ctx, experiments, client.UnsafeDisableDeepCopy) == nil {
			for _, e := range experiments.Items {
				if !shards.Holds(e.Namespace) {
					continue
				}
				out.Experiments = append(out.Experiments, telemetry.Run{Namespace: e.Namespace, Name: e.Name, Phase: string(e.Status.Phase)})
			}
		}
		templates := &argov1.AnalysisTemplateList{}
		if cached.List(ctx, templates, client.UnsafeDisableDeepCopy) == nil {
			for _, t := range templates.Items {
				if !shards.Holds(t.Namespace) {
					continue
				}
				out.Templates = append(out.Templates, telemetry.Template{Namespace: t.Namespace, Name: t.Name, Metrics: metricSeries(t.Spec.Metrics)})
			}
		}
		return out
	}
}

func runSeries(run *argov1.AnalysisRun) telemetry.Run {
	out := telemetry.Run{Namespace: run.Namespace, Name: run.Name, Phase: string(run.Status.Phase), Metrics: metricSeries(run.Spec.Metrics)}
	for i, m := range out.Metrics {
		m.Name = analysis.ResolveMetricName(m.Name, run.Spec.Args)
		out.Metrics[i].Name = m.Name
		for _, result := range run.Status.MetricResults {
			if result.Name == m.Name {
				out.Metrics[i].Phase, out.Metrics[i].DryRun = string(result.Phase), result.DryRun
			}
		}
	}
	return out
}

func metricSeries(metrics []argov1.Metric) []telemetry.RunMetric {
	out := make([]telemetry.RunMetric, len(metrics))
	for i, m := range metrics {
		out[i] = telemetry.RunMetric{Name: m.Name, Type: providerType(m.Provider)}
	}
	return out
}

// providerType returns the label of the provider of a metric.
func providerType(p argov1.MetricProvider) string {
	if types := p.Types(); len(types) > 0 {
		return types[0]
	}
	return "Unknown Provider"
}
