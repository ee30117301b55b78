package plan

import (
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
