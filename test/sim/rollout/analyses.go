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

// hashArgument is the argument that says which version a run is about.
const hashArgument = "hash"

// judgedBy is an analysis of the newest version by a template.
func judgedBy(template string) argov1.RolloutAnalysis {
	return argov1.RolloutAnalysis{
		Templates: []argov1.AnalysisTemplateRef{{TemplateName: template}},
		Args: []argov1.AnalysisRunArgument{{
			Name: hashArgument, ValueFrom: &argov1.ArgumentValueFrom{PodTemplateHashValue: new(argov1.HashOfLatest)},
		}},
	}
}

// analysisTemplate has the metrics of one kind of analysis.
func analysisTemplate(name string, metrics ...argov1.Metric) client.Object {
	return &argov1.AnalysisTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: actors.Namespace, Name: name},
		Spec:       argov1.AnalysisTemplateSpec{Args: []argov1.Argument{{Name: hashArgument}}, Metrics: metrics},
	}
}

// errors is a metric of which less than five is good. count 0: it is measured for as long as it may.
func errors(interval string, count int) argov1.Metric {
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

// The templates that each release has around it.
const (
	shortTemplate   = "errors"   // a few measurements
	endlessTemplate = "watching" // measured until someone ends it
)

func templates() []client.Object {
	return []client.Object{
		analysisTemplate(shortTemplate, errors("10s", 2)), analysisTemplate(endlessTemplate, errors("15s", 0)),
	}
}
