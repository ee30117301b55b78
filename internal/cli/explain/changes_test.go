package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTemplateChangesNameTheChangedParts(t *testing.T) {
	old := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "cart", "tier": "web", "rollouts-pod-template-hash": "a"}, Annotations: map[string]string{"serin.dev/x": "1"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "cart", Volumes: []corev1.Volume{{Name: "data"}},
			Containers: []corev1.Container{
				{
					Name: "app", Image: "app:v1", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "old-secret"}, {Name: "SAME", Value: "x"}, {Name: "GONE", Value: "y"}},
					Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}, Args: []string{"a"},
				},
				{Name: "proxy", Image: "proxy:1"},
			},
		},
	}
	current := *old.DeepCopy()
	current.Labels["tier"], current.Labels["rollouts-pod-template-hash"], current.Annotations["serin.dev/x"] = "api", "b", "2"
	current.Spec.ServiceAccountName, current.Spec.Volumes, current.Spec.HostNetwork = "other", nil, true
	app := &current.Spec.Containers[0]
	app.Image, app.Args = "app:v2", []string{"b"}
	app.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "new-secret"}, {Name: "SAME", Value: "x"}, {Name: "ADDED", Value: "z"}}
	app.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("2Gi")
	current.Spec.Containers[1] = corev1.Container{Name: "mesh", Image: "mesh:1"}

	got := TemplateChanges(old, current)
	want := []TemplateChange{
		{Path: "label tier", Kind: changed},
		{Path: "container app, image", Old: "app:v1", New: "app:v2", Kind: changed},
		{Path: "container app, environment variable GONE", Kind: removed},
		{Path: "container app, environment variable PASSWORD", Kind: changed},
		{Path: "container app, environment variable ADDED", Kind: added},
		{Path: "container app, limits of memory", Old: "1Gi", New: "2Gi", Kind: changed},
		{Path: "container app, arguments", Kind: changed},
		{Path: "container proxy", Old: "proxy:1", Kind: removed},
		{Path: "container mesh", New: "mesh:1", Kind: added},
		{Path: "service account", Old: "cart", New: "other", Kind: changed},
		{Path: "volume data", Kind: removed},
		{Path: "other fields of the pod", Kind: changed},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for _, change := range got {
		if strings.Contains(change.Old+change.New, "secret") {
			t.Errorf("%+v contains a value that may be confidential", change)
		}
	}
	if got := TemplateChanges(old, *old.DeepCopy()); len(got) > 0 {
		t.Errorf("equal templates differ by %v", got)
	}
}

func TestTemplateOfAPrimaryHasTheNamesOfTheTarget(t *testing.T) {
	target := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "cart"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "app:v1", EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
		}}},
	}
	primary := *target.DeepCopy()
	primary.Labels["app"] = "cart-primary"
	primary.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name = "settings-primary"
	if got := TemplateChanges(targetTemplate(primary), target); len(got) > 0 {
		t.Errorf("got %v, want none", got)
	}
}

func TestRecorderBeginsAgainWithEachRelease(t *testing.T) {
	var rec Recorder
	at := func(second int) time.Time { return time.Unix(int64(second), 0).UTC() }
	record := func(second int, r Release, gates ...Gate) {
		r.Gates = gates
		rec.Record(&Canary{}, &r, at(second))
	}
	check := func(value, verdict string) Gate {
		return Gate{Name: "latency", Check: true, Verdict: verdict, LastVerdict: verdict, Value: value, Since: at(1), Message: "waiting" + lastAnswer + "no values found"}
	}
	window := func(second int) *Window { return &Window{Start: at(second)} }
	record(0, Release{Run: "a", Weight: 0, Window: window(0)})
	record(1, Release{Run: "a", Weight: 20, Window: window(1)}, check("100ms", "pass"))
	record(2, Release{Run: "a", Weight: 20, Window: window(1)}, check("100ms", "pass")) // nothing has changed
	record(3, Release{Run: "a", Weight: 40, Window: window(1)}, check("1.5s", "fail"))
	record(4, Release{Run: "a", Weight: 40}, check("1.5s", "fail")) // the next window measured the same
	record(5, Release{Run: "a", Weight: 40, Window: window(5)}, check("1.5s", "fail"))
	record(6, Release{Run: "a", Weight: 40, Window: window(6)}, check("", "fail"))
	rec.Interrupt()
	record(8, Release{Run: "a", Weight: 40, Window: window(8)}, check("200ms", "pass"))
	record(9, Release{Run: "a", Weight: 40, Window: window(9)}, check("200ms", "pass"))
	wantWeights := []WeightPoint{{at(0), 0}, {at(1), 20}, {at(3), 40}}
	if diff := cmp.Diff(wantWeights, rec.Weight); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	wantSeries := []Series{{Name: "latency", Subject: "latency", Unit: "s", Points: []Point{
		{At: at(1), Value: "100ms", Number: new(0.1), Verdict: "pass"},
		{At: at(3), Value: "1.5s", Number: new(1.5), Verdict: "fail"},
		{At: at(4), Value: "1.5s", Number: new(1.5), Verdict: "fail"},
		{At: at(6), Verdict: "fail", Message: "no values found"},
		{At: at(8).Add(-time.Millisecond), Message: "not observed by the dashboard"},
		{At: at(8), Value: "200ms", Number: new(0.2), Verdict: "pass"},
		{At: at(9), Value: "200ms", Number: new(0.2), Verdict: "pass"},
	}}}
	if diff := cmp.Diff(wantSeries, rec.Series); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	for i := range 2 * maxPoints {
		record(10+i, Release{Run: "a", Weight: i % 2})
	}
	if len(rec.Weight) != maxPoints {
		t.Errorf("%d points, want at most %d", len(rec.Weight), maxPoints)
	}
	record(9999, Release{Run: "b", Weight: 5})
	if len(rec.Weight) != 1 || len(rec.Series) != 0 {
		t.Errorf("after another release: %v %v", rec.Weight, rec.Series)
	}
}
