package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/argoproj/argo-rollouts/metricproviders/plugin/rpc"
	"github.com/argoproj/argo-rollouts/pkg/apis/rollouts/v1alpha1"
	"github.com/argoproj/argo-rollouts/utils/plugin/types"
	goplugin "github.com/hashicorp/go-plugin"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type metric struct{}

func newMetricPlugin() goplugin.Plugin { return &rpc.RpcMetricProviderPlugin{Impl: metric{}} }

func (metric) InitPlugin() types.RpcError { return types.RpcError{} }

func (metric) Type() string { return "test" }

func (metric) GetMetadata(m v1alpha1.Metric) map[string]string {
	return map[string]string{"metric": m.Name}
}

func (metric) Run(run *v1alpha1.AnalysisRun, m v1alpha1.Metric) v1alpha1.Measurement {
	return measure("Run", run, m, v1alpha1.Measurement{})
}

func (metric) Resume(run *v1alpha1.AnalysisRun, m v1alpha1.Metric, before v1alpha1.Measurement) v1alpha1.Measurement {
	return measure("Resume", run, m, before)
}

func (metric) Terminate(run *v1alpha1.AnalysisRun, m v1alpha1.Metric, before v1alpha1.Measurement) v1alpha1.Measurement {
	return measure("Terminate", run, m, before)
}

func (metric) GarbageCollect(_ *v1alpha1.AnalysisRun, m v1alpha1.Metric, limit int) types.RpcError {
	return configuration(m).act(fmt.Sprintf("GarbageCollect %d", limit))
}

func configuration(m v1alpha1.Metric) behavior {
	for _, config := range m.Provider.Plugin {
		return parse(config)
	}
	return behavior{}
}

func measure(operation string, run *v1alpha1.AnalysisRun, m v1alpha1.Metric, before v1alpha1.Measurement) v1alpha1.Measurement {
	b := configuration(m)
	if err := b.act(operation + " " + run.Name); err.HasError() {
		return v1alpha1.Measurement{Phase: v1alpha1.AnalysisPhaseError, Message: err.Error()}
	}
	now := metav1.NewTime(time.Now())
	result := v1alpha1.Measurement{Phase: v1alpha1.AnalysisPhase(b.Phase), Value: b.Value, Message: b.message(), StartedAt: &now, Metadata: map[string]string{"operation": operation}}
	switch {
	case b.Behavior == "nonsense":
		result.Phase = "Purple"
	case operation == "Run" && b.Requeue != "":
		resume := metav1.NewTime(now.Add(b.requeue()))
		result.Phase, result.ResumeAt = v1alpha1.AnalysisPhaseRunning, &resume
		return result
	case operation == "Resume":
		result.StartedAt = before.StartedAt
		result.Metadata["before"] = before.Metadata["operation"]
	}
	if b.Echo {
		text, _ := json.Marshal(run)
		result.Value = string(text)
	}
	result.FinishedAt = &now
	return result
}
