package demo_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	jsonpatch "github.com/evanphx/json-patch/v5"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/demo"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// TestObjects compares the objects with those in testdata/objects, for each kind with and without a gateway.
func TestObjects(t *testing.T) {
	datadriven.RunTest(t, "testdata/objects", func(t *testing.T, d *datadriven.TestData) string {
		options := demo.Options{Namespace: "try", Image: "registry.test/serin:v1", Kind: explain.KindCanary}
		if d.HasArg("rollout") {
			options.Kind = explain.KindRollout
		}
		if d.HasArg("gateway") {
			options.Gateway = &demo.Gateway{Namespace: "infra", Name: "public", Address: "192.0.2.1:80"}
		}
		objects, err := demo.Objects(options)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, object := range objects {
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
		}
		return strings.Join(out, "---\n")
	})
}

func TestAPatchChangesTheVersion(t *testing.T) {
	objects, err := demo.Objects(demo.Options{Namespace: "try", Image: "serin:v1", Kind: explain.KindRollout})
	if err != nil {
		t.Fatal(err)
	}
	workload := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Rollout" })]
	current, err := demo.VersionOf(workload)
	if err != nil || current != (demo.Version{Number: 1}) {
		t.Fatalf("the first version is %v, %v", current, err)
	}
	for _, want := range []demo.Version{current.Next(false), {Number: 3, IsBroken: true}, {Number: 4}} {
		text, err := want.Patch()
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		before, err := workload.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		after, err := patch.Apply(before)
		if err != nil {
			t.Fatal(err)
		}
		if err := workload.UnmarshalJSON(after); err != nil {
			t.Fatal(err)
		}
		if got, err := demo.VersionOf(workload); got != want || err != nil {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
}

func TestOnlyTheVersionUnderReleaseIsBroken(t *testing.T) {
	v2 := demo.Version{Number: 2}
	if got := v2.Broken(true); got != (demo.Version{Number: 2, IsBroken: true}) {
		t.Errorf("during the release, got %+v", got)
	}
	if got := v2.Broken(false); got != (demo.Version{Number: 3, IsBroken: true}) {
		t.Errorf("after the release, got %+v", got)
	}
}

func TestAChangedWorkloadHasNoVersion(t *testing.T) {
	for _, text := range []string{"{}", "{spec: {template: {spec: {containers: [{name: a}]}}}}", "{spec: {template: {spec: {containers: [{env: [{name: VERSION, value: new}]}]}}}}"} {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		if v, err := demo.VersionOf(object); err == nil {
			t.Errorf("%s: got version %s", text, v)
		}
	}
}

func TestOnlyReleasesHaveAnImage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "ghcr.io/serin-dev/serin:0.1.0", "v1.2.3-rc.1": "ghcr.io/serin-dev/serin:1.2.3-rc.1",
		"(devel)": "", "v0.1.0+dirty": "", "v0.0.0-20261127134500-9dee31cf0000": "", "v0.1.1-0.20261127134500-9dee31cf0000": "", "unknown": "",
	} {
		if got, err := demo.Image(version); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", version, got, err, want)
		}
	}
	values, err := os.ReadFile("../../../charts/serin/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^  repository: ghcr\.io/serin-dev/serin$`).Match(values) {
		t.Error("the chart uses another repository")
	}
}

func TestObjectsOfTheDemoAreSeparatedFromOthers(t *testing.T) {
	object := func(kind, name string, uid, owner types.UID, labels map[string]string) metav1.PartialObjectMetadata {
		out := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: kind}, ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: labels}}
		if owner != "" {
			out.OwnerReferences = []metav1.OwnerReference{{UID: owner}}
		}
		return out
	}
	token := object("Secret", "default-token", "6", "", nil)
	token.Annotations = map[string]string{"kubernetes.io/service-account.name": "default"}
	sharedPolicy := object("NetworkPolicy", "web", "12", "", nil) // exists in two APIs
	event := object("Event", "order", "27", "", nil)              // of another API
	event.APIVersion = "shop.test/v1"
	known := map[types.UID]bool{}
	own, foreign := demo.Separate([]metav1.PartialObjectMetadata{
		object("Pod", "demo-primary-x", "4", "3", nil), object("ReplicaSet", "demo-primary", "3", "2", nil), object("Deployment", "demo-primary", "2", "1", nil),
		object("Canary", "demo", "1", "", demo.Labels()), object("ConfigMap", "kube-root-ca.crt", "5", "", nil), token,
		object("Pod", "cart-x", "8", "7", nil), object("ConfigMap", "cart", "9", "", nil), object("Secret", "cart", "10", "", map[string]string{demo.Label: "false"}),
		object("Endpoints", "demo", "20", "", nil), object("Endpoints", "cart", "21", "", nil), object("EndpointSlice", "demo-x", "22", "23", nil), object("Service", "demo", "23", "1", nil),
		object("ServiceAccount", "default", "24", "", nil), object("ServiceAccount", "cart", "25", "", nil), object("Event", "cart-x.1", "26", "", nil), sharedPolicy, sharedPolicy, event,
	}, known)
	if got := strings.Join(own, ", "); got != "Pod demo-primary-x, ReplicaSet demo-primary, Deployment demo-primary, Canary demo, Endpoints demo, EndpointSlice demo-x, Service demo" {
		t.Errorf("of the demo: %s", got)
	}
	if got := strings.Join(foreign, ", "); got != "Pod cart-x, ConfigMap cart, Secret cart, Endpoints cart, ServiceAccount cart, NetworkPolicy web, Event order" {
		t.Errorf("of others: %s", got)
	}
	own, foreign = demo.Separate([]metav1.PartialObjectMetadata{object("Pod", "demo-primary-x", "4", "3", nil), object("Pod", "cart-x", "8", "7", nil)}, known)
	if got := strings.Join(slices.Concat(own, foreign), ", "); len(own) != 1 || got != "Pod demo-primary-x, Pod cart-x" {
		t.Errorf("after the deletion of the owner, %s", got)
	}
}
