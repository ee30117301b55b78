package rollout

import (
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/test/sim/actors"
)

var nan = math.NaN()

// hashArgument is the argument that identifies the version that a run analyses.
const hashArgument = "hash"

// analysisWith returns an analysis of the newest version with a template.
func analysisWith(template string) argov1.RolloutAnalysis {
	return argov1.RolloutAnalysis{
		Templates: []argov1.AnalysisTemplateRef{{TemplateName: template}},
		Args: []argov1.AnalysisRunArgument{{
			Name: hashArgument, ValueFrom: &argov1.ArgumentValueFrom{PodTemplateHashValue: new(argov1.HashOfLatest)},
		}},
	}
}

// analysisTemplate returns a template with the given metrics.
func analysisTemplate(name string, metrics ...argov1.Metric) client.Object {
	return &argov1.AnalysisTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: name},
		Spec:       argov1.AnalysisTemplateSpec{Args: []argov1.Argument{{Name: hashArgument}}, Metrics: metrics},
	}
}

// errorsMetric returns a metric whose values are good below five. With count 0 it is measured until the run ends.
func errorsMetric(interval string, count int) argov1.Metric {
	m := argov1.Metric{
		Name: "errors", Interval: argov1.DurationString(interval), SuccessCondition: "result[0] < 5",
		Provider: argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{
			Address: "http://prometheus.example", Query: `errors{hash="{{args.hash}}"}`,
		}},
	}
	if count > 0 {
		m.Count = new(intstr.FromInt32(int32(count)))
	}
	return m
}

// The analysis templates that exist for each release.
const (
	shortTemplate   = "errors"   // a few measurements
	endlessTemplate = "watching" // measured until the run is ended
)

func defaultTemplates() []client.Object {
	return []client.Object{
		analysisTemplate(shortTemplate, errorsMetric("10s", 2)), analysisTemplate(endlessTemplate, errorsMetric("15s", 0)),
	}
}
