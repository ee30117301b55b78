package v1beta1_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "sigs.k8s.io/json"

	"github.com/serin-dev/serin/api/flagger/v1beta1"
)

// emptyObject returns a new object of a kind.
func emptyObject(t *testing.T, kind string) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object, err := scheme.New(v1beta1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func TestTypesLoseNoField(t *testing.T) {
	for _, m := range manifests(t) {
		t.Run(m.name, func(t *testing.T) {
			typed := emptyObject(t, fmt.Sprint(m.object["kind"]))
			text, err := json.Marshal(m.object)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, typed); err != nil {
				t.Fatal(err)
			}
			text, err = json.Marshal(typed)
			if err != nil {
				t.Fatal(err)
			}
			var back map[string]any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &back); err != nil {
				t.Fatal(err)
			}
			// Zero values may be omitted, so both sides are compared without them.
			if diff := cmp.Diff(withoutZeros(m.object), withoutZeros(back)); diff != "" {
				t.Errorf("-read +written:\n%s", diff)
			}

			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(withoutZeros(back), withoutZeros(converted)); diff != "" {
				t.Errorf("JSON and unstructured differ (-JSON +unstructured):\n%s", diff)
			}
		})
	}
}

// withoutZeros removes false, 0, empty strings and empty lists, and removes the difference between 1 and 1.0.
func withoutZeros(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, inner := range value {
			if inner := withoutZeros(inner); inner != nil {
				out[key] = inner
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(value))
		for _, inner := range value {
			out = append(out, withoutZeros(inner))
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case int64:
		return withoutZeros(float64(value))
	default:
		if value == nil || reflect.ValueOf(value).IsZero() {
			return nil
		}
		return value
	}
}

func TestEmptyTrackedConfigsStayEmpty(t *testing.T) {
	for _, text := range []string{`{}`, `{"trackedConfigs":{}}`} {
		var status v1beta1.CanaryStatus
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Fatal(err)
		}
		written, err := json.Marshal(status.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want["trackedConfigs"], got["trackedConfigs"]); diff != "" {
			t.Errorf("%s (-read +written):\n%s", text, diff)
		}
	}
}

func TestSignificantZerosAreRetained(t *testing.T) {
	const text = `{"spec":{"service":{"corsPolicy":{"allowCredentials":false},"mirror":[{"backendRef":{"group":"","name":"x"}}],"port":80},` +
		`"analysis":{"canaryReadyThreshold":0,"metrics":[{"name":"m","thresholdRange":{"min":0,"max":0}}]},"progressDeadlineSeconds":0}}`
	var c v1beta1.Canary
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	spec := c.Spec
	if cors := spec.Service.CorsPolicy; cors.AllowCredentials == nil || *cors.AllowCredentials {
		t.Errorf("allowCredentials false became %v", cors.AllowCredentials)
	}
	if group := spec.Service.Mirror[0].BackendRef.Group; group == nil || *group != "" {
		t.Errorf("group of the mirror became %v", group)
	}
	if ready := spec.Analysis.CanaryReadyThreshold; ready == nil || *ready != 0 {
		t.Errorf("canaryReadyThreshold 0 became %v", ready)
	}
	if bounds := spec.Analysis.Metrics[0].ThresholdRange; bounds.Min == nil || bounds.Max == nil {
		t.Errorf("bounds 0 became %+v", bounds)
	}
	if spec.ProgressDeadlineSeconds == nil {
		t.Error("progressDeadlineSeconds 0 was lost")
	}
	written, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var again v1beta1.CanarySpec
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, again); diff != "" {
		t.Errorf("read, written and read again (-first +second):\n%s", diff)
	}
}

func TestStatusNeverOmitsItsNumbers(t *testing.T) {
	written, err := json.Marshal(v1beta1.CanaryStatus{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(written), `{"failedChecks":0,"canaryWeight":0,"iterations":0}`; got != want {
		t.Errorf("an empty status is written as %s, want %s", got, want)
	}
}

func TestCanaryAcceptsEveryNumberThatTheSchemaAccepts(t *testing.T) {
	const text = `{"apiVersion":"flagger.app/v1beta1","kind":"Canary","metadata":{"name":"cart","generation":7},"spec":{
		"progressDeadlineSeconds":1e12,
		"service":{"port":80.9,"targetPort":99999999999,"match":[{"port":-5e11}]},
		"analysis":{"threshold":2.0,"maxWeight":50.5,"stepWeights":[10,20.7,1e300],"primaryReadyThreshold":99.9,
			"mirrorWeight":-1e300,"metrics":[{"name":"m","threshold":0.5,"thresholdRange":{"min":99.95}}]}}}`
	var c v1beta1.Canary
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	type numbers struct {
		Deadline, Port, TargetPort, MatchPort           int32
		Threshold, MaxWeight, PrimaryReady, MirrorShare int
		StepWeights                                     []int
		MetricThreshold, MetricMinimum                  float64
		Generation                                      int64
		Name                                            string
	}
	a := c.Spec.Analysis
	got := numbers{
		*c.Spec.ProgressDeadlineSeconds, c.Spec.Service.Port, c.Spec.Service.TargetPort.IntVal, c.Spec.Service.Match[0].Port,
		a.Threshold, a.MaxWeight, *a.PrimaryReadyThreshold, a.MirrorWeight,
		a.StepWeights, a.Metrics[0].Threshold, *a.Metrics[0].ThresholdRange.Min, c.Generation, c.Name,
	}
	want := numbers{
		math.MaxInt32, 80, math.MaxInt32, math.MinInt32,
		2, 50, 99, math.MinInt,
		[]int{10, 20, math.MaxInt},
		0.5, 99.95, 7, "cart",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
}

func TestCanaryRefusesValuesOfTheWrongType(t *testing.T) {
	for _, text := range []string{`{"spec":{"service":{"port":"eighty"}}}`, `{"spec":[]}`, `[]`, `{"spec":{"service":{"port":80.5}},"status":{"phase":1}}`} {
		var c v1beta1.Canary
		if err := json.Unmarshal([]byte(text), &c); err == nil {
			t.Errorf("%s was read as %+v, want an error", text, c)
		}
	}
}

func TestOneOddCanaryDoesNotHideTheOthersInAList(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	const text = `{"apiVersion":"flagger.app/v1beta1","kind":"CanaryList","items":[
		{"metadata":{"name":"odd"},"spec":{"service":{"port":80.5}}},
		{"metadata":{"name":"good"},"spec":{"service":{"port":80}}}]}`
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme).UniversalDeserializer(), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	list := object.(*v1beta1.CanaryList)
	if len(list.Items) != 2 || list.Items[0].Spec.Service.Port != 80 || list.Items[1].Name != "good" {
		t.Errorf("got %+v, want both", list.Items)
	}
}

func TestCanaryIsReadFromUnstructured(t *testing.T) {
	object := parse(t, base)
	var c v1beta1.Canary
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured((&unstructured.Unstructured{Object: object}).Object, &c); err != nil {
		t.Fatal(err)
	}
	if c.Name != "cart" || c.Spec.Service.Port != 80 || c.Spec.Analysis.StepWeight != 10 {
		t.Errorf("got %+v", c)
	}
}
