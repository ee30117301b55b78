package plan

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestPlansOfRolloutsEndPromoted: the plan of random steps ends with the new revision as the stable one, its weights are those of
// the setWeight steps, and its duration is the sum of the pauses.
func TestPlansOfRolloutsEndPromoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := testRollout()
		c := &argov1.CanaryStrategy{CanaryService: "canary", StableService: "stable", TrafficRouting: &argov1.RolloutTrafficRouting{Nginx: &argov1.NginxTrafficRouting{StableIngress: "web"}}}
		r.Spec.Strategy.Canary = c
		var want []int
		pauses, indefinite := int32(0), 0
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				weight := rapid.Int32Range(0, 100).Draw(t, "weight")
				c.Steps = append(c.Steps, argov1.CanaryStep{SetWeight: &weight})
				want = append(want, int(weight))
			case 1:
				length := rapid.Int32Range(1, 300).Draw(t, "length")
				pauses += length
				c.Steps = append(c.Steps, argov1.CanaryStep{Pause: &argov1.RolloutPause{Duration: new(intstr.FromInt32(length))}})
			default:
				indefinite++
				c.Steps = append(c.Steps, argov1.CanaryStep{Pause: &argov1.RolloutPause{}})
			}
		}
		p, err := New(Input{Rollout: r})
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		promoted := false
		for _, step := range p.Steps {
			if strings.HasPrefix(step.Action, "setWeight") {
				got = append(got, step.CanaryWeight)
			}
			promoted = promoted || step.Action == "the new revision is stable" && step.CanaryPods == 4
		}
		switch {
		case !promoted:
			t.Fatalf("not promoted: %+v", p.Steps)
		case !slices.Equal(got, want):
			t.Fatalf("weights %v, want %v", got, want)
		case p.Duration.ShortestSeconds != float64(pauses):
			t.Fatalf("takes %v s, and its pauses take %d s", p.Duration.ShortestSeconds, pauses)
		case len(p.Duration.Unbounded) != indefinite:
			t.Fatalf("%d pauses have no duration, but %v", indefinite, p.Duration.Unbounded)
		}
	})
}

// TestAStrategyIsValidatedWithoutItsWorkload: a workload that is not known has a template that cannot be validated, and all else can.
func TestAStrategyIsValidatedWithoutItsWorkload(t *testing.T) {
	r := testRollout()
	r.Spec.Template, r.Spec.Selector = corev1.PodTemplateSpec{}, nil
	r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	r.Spec.Strategy = argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{{SetWeight: new(int32(20))}}}}
	p, err := New(Input{Rollout: r})
	if err != nil || len(p.Notes) == 0 || p.Notes[len(p.Notes)-1] != "Deployment/web is not known: its template is not validated." {
		t.Errorf("got %v, %v", p.Notes, err)
	}
	r.Spec.Strategy.Canary.Steps[0].SetWeight = new(int32(120))
	if _, err := New(Input{Rollout: r}); err == nil || !strings.Contains(err.Error(), "setWeight") {
		t.Errorf("a weight of 120 is planned: %v", err)
	}
}

// TestPlansOfRandomStrategiesEndPromoted: strategies without a router, and blue-green ones with analyses.
func TestPlansOfRandomStrategiesEndPromoted(t *testing.T) {
	template := func(string, bool) (argov1.AnalysisTemplateSpec, error) {
		metric := argov1.Metric{Name: "errors", Interval: "30s", Count: new(intstr.FromInt32(3)), Provider: argov1.MetricProvider{Prometheus: &argov1.PrometheusMetric{Query: "x"}}}
		return argov1.AnalysisTemplateSpec{Metrics: []argov1.Metric{metric}}, nil
	}
	rapid.Check(t, func(t *rapid.T) {
		r := testRollout()
		r.Spec.Replicas = new(rapid.Int32Range(1, 12).Draw(t, "replicas"))
		r.Spec.MinReadySeconds = rapid.SampledFrom([]int32{0, 10}).Draw(t, "min ready")
		analysis := &argov1.RolloutAnalysis{Templates: []argov1.AnalysisTemplateRef{{TemplateName: "errors"}}}
		analyses := 0
		if rapid.Bool().Draw(t, "blue-green") {
			b := &argov1.BlueGreenStrategy{
				ActiveService: "active", PreviewService: rapid.SampledFrom([]string{"", "preview"}).Draw(t, "preview"),
				AutoPromotionSeconds:  rapid.SampledFrom([]int32{0, 20}).Draw(t, "auto seconds"),
				AutoPromotionEnabled:  rapid.SampledFrom([]*bool{nil, new(true), new(false)}).Draw(t, "auto"),
				ScaleDownDelaySeconds: rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(90))}).Draw(t, "delay"),
				PreviewReplicaCount:   rapid.SampledFrom([]*int32{nil, new(int32(1))}).Draw(t, "preview count"),
			}
			if rapid.Bool().Draw(t, "pre") {
				b.PrePromotionAnalysis = analysis
				analyses++
			}
			if rapid.Bool().Draw(t, "post") {
				b.PostPromotionAnalysis = analysis
				analyses++
			}
			r.Spec.Strategy.BlueGreen = b
		} else {
			kinds := []argov1.CanaryStep{
				{SetWeight: new(int32(0))},
				{SetWeight: new(int32(30))},
				{SetWeight: new(int32(100))},
				{Pause: &argov1.RolloutPause{}},
				{Pause: &argov1.RolloutPause{Duration: new(intstr.FromString("1m"))}},
				{Analysis: analysis},
			}
			r.Spec.Strategy.Canary = &argov1.CanaryStrategy{Steps: rapid.SliceOfN(rapid.SampledFrom(kinds), 0, 8).Draw(t, "steps")}
			for _, step := range r.Spec.Strategy.Canary.Steps {
				if step.Analysis != nil {
					analyses++
				}
			}
		}
		p, err := New(Input{Rollout: r, AnalysisTemplate: template})
		if err != nil {
			t.Fatal(err)
		}
		last := p.Steps[len(p.Steps)-1]
		switch {
		case last.CanaryWeight != 100 || last.CanaryPods != *r.Spec.Replicas || last.StablePods != 0:
			t.Fatalf("ends with %+v", last)
		case len(p.Queries) != analyses:
			t.Fatalf("%d analyses, and queries %+v", analyses, p.Queries)
		case p.Duration.LongestSeconds < p.Duration.ShortestSeconds:
			t.Fatalf("the longest release takes %v s, the shortest %v s", p.Duration.LongestSeconds, p.Duration.ShortestSeconds)
		}
		for _, q := range p.Queries {
			if q.Times != 3 {
				t.Fatalf("%s of the %s is measured %d times", q.Metric, q.Analysis, q.Times)
			}
		}
	})
}

func testRollout() *argov1.Rollout {
	labels := map[string]string{"app": "web"}
	return &argov1.Rollout{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec: argov1.RolloutSpec{
			Replicas: new(int32(4)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}},
			},
		},
	}
}

func TestAnalysesShowNoSecret(t *testing.T) {
	provider, query := describeProvider(argov1.MetricProvider{Web: &argov1.WebMetric{URL: "https://user:password@example.com/check?token=secret", Headers: []argov1.WebMetricHeader{{Key: "Authorization", Value: "secret"}}}})
	if text := provider + query; strings.Contains(text, "secret") || strings.Contains(text, "password") {
		t.Errorf("shows a secret: %s", text)
	}
}

// TestPlansShowTheQueryOfEveryService: describeProvider has a case for each service whose settings contain a query.
func TestPlansShowTheQueryOfEveryService(t *testing.T) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[argov1.MetricProvider]()) {
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		settings := reflect.New(field.Type.Elem())
		if query := settings.Elem().FieldByName("Query"); query.Kind() == reflect.String {
			query.SetString("up")
			var p argov1.MetricProvider
			reflect.ValueOf(&p).Elem().FieldByIndex(field.Index).Set(settings)
			if _, shown := describeProvider(p); shown != "up" {
				t.Errorf("%s: serin plan shows the query %q", field.Name, shown)
			}
		}
	}
}
