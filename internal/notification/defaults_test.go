package notification

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/release"
)

// TestDefaultTriggersAndTemplates evaluates each trigger of the documented configuration for its event, and renders its
// templates.
func TestDefaultTriggersAndTemplates(t *testing.T) {
	text, err := os.ReadFile("../../config/notifications/configmap.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(text, config); err != nil || config.Name != ConfigMapName {
		t.Fatalf("%s: %v", config.Name, err)
	}
	c := NewConfig(config.Data, nil)
	for _, problem := range c.Problems() {
		t.Error(problem)
	}
	run := map[string]any{
		"metadata": map[string]any{"name": "cart-1", "namespace": "shop"},
		"status": map[string]any{"phase": "Failed", "message": "too many errors", "metricResults": []any{
			map[string]any{"name": "errors", "phase": "Failed", "measurements": []any{map[string]any{"value": "7"}}}, map[string]any{"name": "fine", "phase": "Successful"},
		}},
	}
	rollout := map[string]any{"metadata": map[string]any{"name": "cart", "namespace": "shop"}, "status": map[string]any{"phase": "Degraded"}}
	tested := 0
	for _, reason := range eventReasons {
		trigger := triggerName(reason)
		if config.Data["trigger."+trigger] == "" {
			continue
		}
		tested++
		event := release.Event{Reason: reason, Message: "well"}
		situations := map[string]Situation{"Rollout": {Rollout: rollout, Runs: []any{run}, Event: event}, "AnalysisRun": {Rollout: run, Variable: "analysisRun", Event: event}}
		if strings.HasPrefix(reason, "Experiment") {
			situations = map[string]Situation{"Experiment": {Rollout: run, Variable: "experiment", Event: event}}
		} else if !strings.HasPrefix(reason, "AnalysisRun") {
			delete(situations, "AnalysisRun")
		}
		for kind, s := range situations {
			out := c.Evaluate(t.Context(), event, map[string][]Destination{trigger: {{Service: "email"}}}, c.Vars(s), nil)
			if len(out.Due) != 1 {
				t.Errorf("%s of %s: %+v", trigger, kind, out)
				continue
			}
			content, err := c.Render(t.Context(), out.Due[0].Templates, c.Vars(s))
			var email struct{ Subject string }
			if err == nil {
				err = content.Part("email", &email)
			}
			if err != nil || strings.Contains(content.Message+email.Subject, "<no value>") || !strings.Contains(content.Message, "shop/cart") || !strings.Contains(email.Subject, kind+" shop/cart") {
				t.Errorf("%s of %s: %v: %q, %q", trigger, kind, err, content.Message, email.Subject)
			}
			if failed := strings.HasSuffix(reason, "RunFailed"); failed && !strings.Contains(content.Message, "errors was 7 (Failed)") {
				t.Errorf("%s of %s does not contain the cause: %q", trigger, kind, content.Message)
			}
		}
	}
	triggers := 0
	for key := range config.Data {
		if strings.HasPrefix(key, "trigger.") {
			triggers++
		}
	}
	if tested != triggers {
		t.Errorf("%d of %d triggers have the name of an event", tested, triggers)
	}
}
