package v1alpha1_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTypesLoseNoField(t *testing.T) {
	for _, m := range manifests(t) {
		t.Run(m.name, func(t *testing.T) {
			typed, err := scheme(t).New(v1alpha1.SchemeGroupVersion.WithKind(m.kind()))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(m.object)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, typed); err != nil {
				t.Fatal(err)
			}
			text, err = json.Marshal(typed.DeepCopyObject())
			if err != nil {
				t.Fatal(err)
			}
			var back map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &back); err != nil {
				t.Fatal(err)
			}
			// Quantities are normalized, and zero values may be omitted.
			if diff := cmp.Diff(comparableValue(m.object), comparableValue(back)); diff != "" {
				t.Errorf("-read +written:\n%s", diff)
			}
		})
	}
}

// comparableValue removes zero values and the quantities of resources.
func comparableValue(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range value {
			if inner := comparableValue(inner); inner != nil && key != "limits" && key != "requests" {
				out[key] = inner
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		out := make([]any, 0, len(value))
		for _, inner := range value {
			out = append(out, comparableValue(inner))
		}
		return out
	default:
		if value == nil || reflect.ValueOf(value).IsZero() {
			return nil
		}
		return value
	}
}

func TestNumbersAndStringsAreDistinguished(t *testing.T) {
	const text = `{"spec":{"strategy":{"canary":{"maxSurge":"25","maxUnavailable":0,"steps":[
		{"pause":{}},{"pause":{"duration":10}},{"pause":{"duration":"10"}},{"pause":{"duration":"1h30m"}},{"setWeight":0}]}}}}`
	var r v1alpha1.Rollout
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(r.Spec.Strategy.Canary)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"steps":[{"pause":{}},{"pause":{"duration":10}},{"pause":{"duration":"10"}},{"pause":{"duration":"1h30m"}},{"setWeight":0}],"maxUnavailable":0,"maxSurge":"25"}`
	if string(written) != want {
		t.Errorf("written %s\nwant    %s", written, want)
	}
}

func TestQuantitiesMayBeNumbersOrStrings(t *testing.T) {
	for _, amount := range []string{`0.001`, `"0.001"`, `"1m"`} {
		var r v1alpha1.Rollout
		text := `{"spec":{"template":{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":` + amount + `}}}]}}}}`
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "1m" {
			t.Errorf("cpu %s was read as %s, want 1m", amount, got)
		}
	}
}

// TestStepsAreWrittenInTheOrderThatIsHashed: another order, or another omitted field, would restart every release that
// another controller had in progress.
func TestStepsAreWrittenInTheOrderThatIsHashed(t *testing.T) {
	for want, step := range map[string]v1alpha1.CanaryStep{
		`{"pause":{}}`: {Pause: &v1alpha1.RolloutPause{}},
		`{"analysis":{"templates":[{"templateName":"a"}],"args":[{"name":"b","value":"c"}]}}`: {Analysis: &v1alpha1.RolloutAnalysis{
			Args: []v1alpha1.AnalysisRunArgument{{Name: "b", Value: "c"}}, Templates: []v1alpha1.AnalysisTemplateRef{{TemplateName: "a"}},
		}},
		`{"experiment":{"templates":[{"name":"a","specRef":"stable","metadata":{}}],"duration":"5m","analysisRunMetadata":{}}}`: {Experiment: &v1alpha1.RolloutExperimentStep{
			Duration: "5m", Templates: []v1alpha1.RolloutExperimentTemplate{{Name: "a", SpecRef: v1alpha1.StableSpecRef}},
		}},
		`{"setCanaryScale":{"weight":1,"replicas":2,"matchTrafficWeight":true}}`: {SetCanaryScale: &v1alpha1.SetCanaryScale{
			Weight: new(int32(1)), Replicas: new(int32(2)), MatchTrafficWeight: true,
		}},
		`{"setHeaderRoute":{"name":"a","match":[{"headerName":"b","headerValue":{"exact":"c"}}]}}`: {SetHeaderRoute: &v1alpha1.SetHeaderRoute{
			Name: "a", Match: []v1alpha1.HeaderRoutingMatch{{HeaderName: "b", HeaderValue: &v1alpha1.StringMatch{Exact: "c"}}},
		}},
		`{"setMirrorRoute":{"name":"a","match":[{"method":{"exact":"GET"},"path":{"prefix":"/"}}],"percentage":5}}`: {SetMirrorRoute: &v1alpha1.SetMirrorRoute{
			Name: "a", Percentage: new(int32(5)),
			Match: []v1alpha1.RouteMatch{{Path: &v1alpha1.StringMatch{Prefix: "/"}, Method: &v1alpha1.StringMatch{Exact: "GET"}}},
		}},
		`{"plugin":{"name":"a","config":{"b":1}}}`: {Plugin: &v1alpha1.PluginStep{Name: "a", Config: json.RawMessage(`{"b":1}`)}},
	} {
		written, err := json.Marshal(step)
		if err != nil {
			t.Fatal(err)
		}
		if string(written) != want {
			t.Errorf("written %s\nwant    %s", written, want)
		}
	}
}

func TestUnreadableValuesAreOmittedAndTheOthersAreUsed(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       func(v1alpha1.RolloutSpec) bool
	}{
		{"a quantity", `{"replicas":2,"template":{"spec":{"containers":[{"name":"a","resources":{"limits":{"memory":"invalid","cpu":"1"}}}]}}}`, func(s v1alpha1.RolloutSpec) bool {
			limits := s.Template.Spec.Containers[0].Resources.Limits
			return *s.Replicas == 2 && len(limits) == 1 && limits.Cpu().String() == "1"
		}},
		{"a list that is a string", `{"replicas":2,"template":{"spec":{"ephemeralContainers":"none","hostname":"h"}}}`, func(s v1alpha1.RolloutSpec) bool {
			return s.Template.Spec.EphemeralContainers == nil && s.Template.Spec.Hostname == "h"
		}},
		{"an element of a list", `{"strategy":{"canary":{"steps":[{"setWeight":"ten"},{"setWeight":20},"thirty"]}}}`, func(s v1alpha1.RolloutSpec) bool {
			steps := s.Strategy.Canary.Steps
			return len(steps) == 2 && steps[0].SetWeight == nil && *steps[1].SetWeight == 20
		}},
		{"a number too large", `{"replicas":99999999999,"minReadySeconds":3}`, func(s v1alpha1.RolloutSpec) bool {
			return s.Replicas == nil && s.MinReadySeconds == 3
		}},
		{"a time", `{"restartAt":"tomorrow","paused":true}`, func(s v1alpha1.RolloutSpec) bool { return s.RestartAt == nil && s.Paused }},
		{"a number or string", `{"strategy":{"canary":{"maxSurge":{},"maxUnavailable":"10%"}}}`, func(s v1alpha1.RolloutSpec) bool {
			return s.Strategy.Canary.MaxSurge == nil && *s.Strategy.Canary.MaxUnavailable == intstr.FromString("10%")
		}},
		{"a field of a background analysis", `{"strategy":{"canary":{"analysis":{"startingStep":"two","templates":[{"templateName":"a"}]}}}}`, func(s v1alpha1.RolloutSpec) bool {
			return s.Strategy.Canary.Analysis.StartingStep == nil && s.Strategy.Canary.Analysis.Templates[0].TemplateName == "a"
		}},
	} {
		var r v1alpha1.Rollout
		if err := json.Unmarshal([]byte(`{"metadata":{"name":"odd"},"spec":`+c.text+`}`), &r); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r.Name != "odd" || !c.want(r.Spec) {
			t.Errorf("%s: read as %+v", c.name, r.Spec)
		}
	}
}

func TestPositionsOfOmittedValuesAreRecorded(t *testing.T) {
	const amount = `{"resources":{"limits":{"cpu":"a","example.com/gpu":"b","memory":"1Gi"}}}`
	var r v1alpha1.Rollout
	text := `{"spec":{"replicas":"two","strategy":{"canary":{"steps":["ten",{"setWeight":20},"thirty"]}},"template":{"spec":{"containers":[{"name":"a"},` + amount + `]}}}}`
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"/spec/replicas", "/spec/template/spec/containers/1/resources/limits/cpu", "/spec/template/spec/containers/1/resources/limits/example.com~1gpu",
		"/spec/strategy/canary/steps/0", "/spec/strategy/canary/steps/2",
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(r.Unreadable)); !slices.Equal(got, want) {
		t.Errorf("omitted %q, want %q", got, want)
	}
	text = `{"spec":{"template":{"spec":{"ephemeralContainers":[` + amount + `,{"name":"b"}],"containers":[` + amount + `]}}}}`
	if err := json.Unmarshal([]byte(text), &r); err != nil || len(r.Unreadable) != 3 || r.Unreadable[2] != "/spec/template/spec/ephemeralContainers" || r.Spec.Template.Spec.EphemeralContainers != nil {
		t.Errorf("ephemeral containers: %v, omitted %q", err, r.Unreadable)
	}
	if err := json.Unmarshal([]byte(`{"spec":{"replicas":2}}`), &r); err != nil || r.Unreadable != nil {
		t.Errorf("decoded again without a mistake: %v, omitted %q", err, r.Unreadable)
	}
}

func TestValuesThatAreNotObjectsAreRefused(t *testing.T) {
	for _, text := range []string{`[]`, `"rollout"`, `{"spec":`} {
		var r v1alpha1.Rollout
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("%s was read as %+v, want an error", text, r)
		}
	}
}

func TestOneOddObjectDoesNotHideTheOthersInAList(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme(t)).UniversalDeserializer()
	for kind, odd := range map[string]string{
		"Rollout":                 `{"replicas":"two"}`,
		"AnalysisTemplate":        `{"metrics":[{"name":1}]}`,
		"ClusterAnalysisTemplate": `{"metrics":{}}`,
		"AnalysisRun":             `{"terminate":"yes"}`,
		"Experiment":              `{"templates":7}`,
	} {
		text := `{"apiVersion":"argoproj.io/v1alpha1","kind":"` + kind + `List","items":[{"metadata":{"name":"odd"},"spec":` + odd + `},{"metadata":{"name":"good"}}]}`
		object, err := runtime.Decode(decoder, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if items := reflect.ValueOf(object).Elem().FieldByName("Items"); items.Len() != 2 {
			t.Errorf("%s: %d objects, want 2", kind, items.Len())
		}
	}
}
