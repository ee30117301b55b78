package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// The recordings of what Flagger 1.44 wrote are replayed at the level of this package: the steps of a case change the
// cluster, the test carries out the actions of the phases that the case waits for, and every version of every workload
// object must equal the recorded one.

// cases lists the folders with cases and the number of cases in each that this test replays, so that it fails when
// recordings are missing. The case in testdata is written by hand: no recording combines a promotion that only changes
// a ConfigMap with binary data and discovered ports.
var cases = map[string]int{
	"../../test/conformance/flagger": 76,
	"testdata/cases":                 1,
}

// excludedCases are cases whose workloads depend on decisions of other packages, with the reason.
var excludedCases = map[string]string{
	"bad-two-canaries":                "which of two Canaries acts",
	"bad-port-name-conflict":          "nothing is written",
	"canary-breaks-while-promoting":   "another provider",
	"promotion-failed":                "what follows a failed promotion",
	"new-revision-while-promoting":    "the order of two runs",
	"progress-deadline":               "deadlines",
	"failed-then-fixed":               "deadlines",
	"knative-weighted":                "own test: the recorder simulated Knative",
	"knative-rollback":                "own test: the recorder simulated Knative",
	"revert-on-deletion":              "own test: restored by serin.dev/original",
	"revert-on-deletion-last-applied": "own test: restored by serin.dev/original",
}

// differences are the deliberate differences of Serin. Each function changes a recorded version into the expected one.
var differences = map[string]map[string]func(version map[string]any){
	"core-service-target": {
		"Service/cart-primary": func(version map[string]any) {
			// W18: one rule for labels at creation and at promotion, which removes no owner.
			mustSet(version, "cart", "metadata", "labels", "app")
			mustSet(version, []any{map[string]any{
				"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "name": "cart", "controller": true, "blockOwnerDeletion": true,
			}}, "metadata", "ownerReferences")
		},
	},
	"deployment-template": {
		"Deployment/cart-primary": func(version map[string]any) {
			// W18: annotations are retained at promotion.
			mustSet(version, "mine", "metadata", "annotations", "note")
			// W36: podAffinity is rewritten too.
			preferred, _, _ := unstructured.NestedSlice(version, "spec", "template", "spec", "affinity", "podAffinity",
				"preferredDuringSchedulingIgnoredDuringExecution")
			mustSet(preferred[0].(map[string]any), "cart-primary", "podAffinityTerm", "labelSelector", "matchLabels", "app")
			mustSet(version, preferred, "spec", "template", "spec", "affinity", "podAffinity",
				"preferredDuringSchedulingIgnoredDuringExecution")
		},
	},
}

// storedContent matches objects that Flagger does not have: the content that a promotion replaced, stored until the release ends.
var storedContent = regexp.MustCompile(`^(ConfigMap|Secret)/.*-primary-previous-[^/]*$`)

type recordedCase struct {
	Provider string                       `json:"provider"`
	Flags    []string                     `json:"flags"`
	Steps    []map[string]json.RawMessage `json:"steps"`
}

func TestWorkloadsEqualThoseOfFlagger(t *testing.T) {
	for root, expected := range cases {
		files, err := filepath.Glob(filepath.Join(root, "*", "case.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		replayed := 0
		for _, file := range files {
			dir := filepath.Dir(file)
			var recorded recordedCase
			readYAML(t, file, &recorded)
			provider, _, _ := strings.Cut(recorded.Provider, ":")
			if !slices.Contains([]string{"kubernetes", "istio", "gatewayapi"}, provider) || len(recorded.Flags) > 0 || excludedCases[filepath.Base(dir)] != "" {
				continue
			}
			inputs := documents(t, filepath.Join(dir, "input"))
			if !slices.ContainsFunc(inputs, func(o map[string]any) bool {
				kind, _, _ := unstructured.NestedString(o, "spec", "targetRef", "kind")
				return kind != ""
			}) {
				continue
			}
			replayed++
			t.Run(filepath.Base(dir), func(t *testing.T) { replay(t, dir, recorded, inputs) })
		}
		if replayed != expected {
			t.Errorf("replayed %d cases of %s, expected %d: the cases are incomplete, or new ones are not counted yet", replayed, root, expected)
		}
	}
}

// replay replays one case and compares the objects with the recorded ones.
func replay(t *testing.T, dir string, recorded recordedCase, inputs []map[string]any) {
	w := newFakeCluster(t)
	var canaries []string
	for _, input := range inputs {
		if input["kind"] == "Canary" {
			canaries = append(canaries, input["metadata"].(map[string]any)["name"].(string))
		}
		w.apply(input)
	}
	act := func(what ...func(c *flaggerv1.Canary) error) {
		for _, name := range canaries {
			c := w.canary(name)
			for _, do := range what {
				if err := do(c); err != nil {
					t.Logf("%s: %v", name, err)
					return
				}
				w.recordVersions()
			}
		}
	}
	ctx := t.Context()
	promotions, passes := 0, 0
	services := func(apex bool) func(c *flaggerv1.Canary) error {
		return func(c *flaggerv1.Canary) error {
			return exceptWarnings(w.workload.ForCanary(c).EnsureServices(ctx, c, apex))
		}
	}
	initialise := func() {
		passes++
		act(services(false),
			func(c *flaggerv1.Canary) error {
				return w.workload.ForCanary(c).EnsurePrimary(ctx, c, "", fmt.Sprint("pass", passes), false)
			},
			func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).EnsureScaler(ctx, c, false) },
			services(true))
	}
	initialise()
	initialised := false
	takeOver := func() {
		if !initialised {
			act(func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).PauseScaler(ctx, c) },
				func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).DownToZero(ctx, c) })
			initialised = true
		}
	}
	for _, step := range recorded.Steps {
		switch {
		case step["apply"] != nil:
			var file string
			must(t, json.Unmarshal(step["apply"], &file))
			for _, object := range documentsOf(t, filepath.Join(dir, file)) {
				w.apply(object)
			}
			initialise()
		case step["delete"] != nil:
			var object string
			must(t, json.Unmarshal(step["delete"], &object))
			if !w.delete(object) {
				return // the Canary was deleted: garbage collection deletes the remaining objects
			}
			initialise()
		case step["patch"] != nil:
			w.patchStep(step["patch"])
			initialise()
		case step["wait"] != nil:
			var wait struct {
				Phase string `json:"phase"`
			}
			must(t, json.Unmarshal(step["wait"], &wait))
			switch wait.Phase {
			case "Initialized":
				takeOver()
			case "Progressing":
				act(func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).UpFromZero(ctx, c) })
			case "Failed":
				act(func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).DownToZero(ctx, c) })
			case "Succeeded":
				promotions++
				act(func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).ResumeScaler(ctx, c) },
					func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).UpFromZero(ctx, c) },
					func(c *flaggerv1.Canary) error {
						seen, err := w.workload.ForCanary(c).Observe(ctx, c)
						must(t, err)
						return w.workload.ForCanary(c).CopyTemplate(ctx, c, seen.Target.Revision, fmt.Sprint("promotion", promotions))
					},
					func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).EnsureScaler(ctx, c, true) },
					func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).CollectConfigs(ctx, c) },
					func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).PauseScaler(ctx, c) },
					func(c *flaggerv1.Canary) error { return w.workload.ForCanary(c).DownToZero(ctx, c) })
			}
		}
	}

	change := differences[filepath.Base(dir)]
	wanted := map[string][]map[string]any{}
	var objects []struct {
		Object   string           `json:"object"`
		Versions []map[string]any `json:"versions"`
	}
	readYAML(t, filepath.Join(dir, "expected", "objects.yaml"), &objects)
	for _, object := range objects {
		kind, _, _ := strings.Cut(object.Object, "/")
		if !slices.Contains([]string{"Service", "ConfigMap", "Secret", "Deployment", "DaemonSet", "HorizontalPodAutoscaler", "ScaledObject"}, kind) {
			continue
		}
		for _, version := range object.Versions {
			if change[object.Object] != nil {
				change[object.Object](version)
			}
			wanted[object.Object] = append(wanted[object.Object], normalized(version))
		}
		wanted[object.Object] = withoutRepeats(wanted[object.Object])
	}
	for object, versions := range wanted {
		target := (strings.HasPrefix(object, "Deployment/") || strings.HasPrefix(object, "DaemonSet/")) && !strings.HasSuffix(object, "-primary")
		if target {
			continue // other packages decide when it is scaled; scale_test.go tests the numbers
		}
		if diff := cmp.Diff(versions, withoutRepeats(w.versions[object])); diff != "" {
			t.Errorf("%s (-recorded +here)\n%s", object, diff)
		}
	}
	for object := range w.versions {
		if wanted[object] == nil && w.written[object] && !storedContent.MatchString(object) {
			t.Errorf("%s was written, which Flagger does not", object)
		}
	}
}

// normalized removes from a version the empty maps and lists, the defaults of the API server, and Serin's own annotations.
func normalized(version map[string]any) map[string]any {
	// Flagger records the promotion only in a template, and the source of a template nowhere.
	for _, own := range []string{promotedAnnotation, previousAnnotation, templateSourceAnnotation} {
		unstructured.RemoveNestedField(version, "metadata", "annotations", own)
	}
	kept, _ := prune(version).(map[string]any)
	// The fake API server does not set defaults.
	unstructured.RemoveNestedField(kept, "spec", "behavior", "scaleUp")
	for _, field := range []string{"policies", "selectPolicy"} {
		unstructured.RemoveNestedField(kept, "spec", "behavior", "scaleDown", field)
	}
	unstructured.RemoveNestedField(kept, "spec", "externalTrafficPolicy")
	if kept["spec"] != nil {
		if strategy, _, _ := unstructured.NestedString(kept, "spec", "strategy", "type"); strategy == "RollingUpdate" {
			unstructured.RemoveNestedField(kept, "spec", "strategy", "type")
		}
		if spec := kept["spec"].(map[string]any); spec["ports"] != nil {
			if spec["type"] == nil {
				spec["type"] = "ClusterIP"
			}
			for _, port := range spec["ports"].([]any) {
				if port.(map[string]any)["protocol"] == nil {
					port.(map[string]any)["protocol"] = "TCP"
				}
			}
		}
	}
	return kept
}

func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, item := range value {
			if item = prune(item); item != nil {
				kept[key] = item
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		var kept []any
		for _, item := range value {
			if item = prune(item); item != nil {
				kept = append(kept, item)
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case float64:
		return int64(value)
	default:
		return value
	}
}

// withoutRepeats removes each version that equals the previous one. It numbers the values of flagger-id, like the recordings.
func withoutRepeats(versions []map[string]any) []map[string]any {
	var kept []map[string]any
	numbers := map[string]int{}
	for _, version := range versions {
		path := []string{"spec", "template", "metadata", "annotations", promotionIDAnnotation}
		if id, found, _ := unstructured.NestedString(version, path...); found {
			if numbers[id] == 0 {
				numbers[id] = len(numbers) + 1
			}
			mustSet(version, fmt.Sprint("UUID", numbers[id]), path...)
		}
		if len(kept) == 0 || !cmp.Equal(kept[len(kept)-1], version) {
			kept = append(kept, version)
		}
	}
	return kept
}

func (w *fakeCluster) patchStep(raw json.RawMessage) {
	w.t.Helper()
	var patch struct {
		Object string          `json:"object"`
		Type   string          `json:"type"`
		Body   json.RawMessage `json:"body"`
	}
	must(w.t, json.Unmarshal(raw, &patch))
	object := w.objectNamed(patch.Object)
	if object == nil {
		return // a route, which this package does not manage
	}
	kind := types.MergePatchType
	switch patch.Type {
	case "strategic":
		kind = types.StrategicMergePatchType
	case "json":
		kind = types.JSONPatchType
	}
	must(w.t, w.client.Patch(context.Background(), object, client.RawPatch(kind, patch.Body)))
	w.recordVersions()
}

func (w *fakeCluster) delete(name string) bool {
	w.t.Helper()
	object := w.objectNamed(name)
	if object == nil || object.GetKind() == "Canary" {
		return false
	}
	must(w.t, w.client.Delete(context.Background(), object))
	w.recordVersions()
	return true
}

// objectNamed returns an object by resource.group/name, the format in the steps of a case; nil for kinds of other packages.
func (w *fakeCluster) objectNamed(name string) *unstructured.Unstructured {
	resource, name, _ := strings.Cut(name, "/")
	resource, _, _ = strings.Cut(resource, ".")
	for _, kind := range append(comparedKinds, flaggerv1.SchemeGroupVersion.WithKind("Canary")) {
		plural := strings.ToLower(kind.Kind) + "s"
		if kind.Kind == "Canary" {
			plural = "canaries"
		}
		if plural == resource {
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(kind)
			object.SetName(name)
			object.SetNamespace(namespace)
			return object
		}
	}
	return nil
}

func documents(t *testing.T, dir string) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	must(t, err)
	var all []map[string]any
	for _, file := range files {
		all = append(all, documentsOf(t, file)...)
	}
	return all
}

func documentsOf(t *testing.T, file string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	var all []map[string]any
	for document := range strings.SplitSeq("\n"+string(text), "\n---\n") {
		var object map[string]any
		must(t, yaml.Unmarshal([]byte(document), &object))
		if object != nil {
			all = append(all, object)
		}
	}
	return all
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, yaml.Unmarshal(text, into))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustSet(object map[string]any, value any, path ...string) {
	if err := unstructured.SetNestedField(object, value, path...); err != nil {
		panic(err)
	}
}
