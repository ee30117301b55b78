package traffictest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Difference is a recorded version of an object from which the renderer deliberately differs.
type Difference struct {
	Case, Object string
	Version      int
	Why          string
}

// recordings are the recorded cases of Flagger, relative to the folder of a provider.
const recordings = "../../../test/conformance/flagger"

// Recorded compares rendered objects with those that Flagger wrote. For each recorded version of an object, the route that
// Read returns for it and the Canary of the case must render to the same version again. It compares all cases of the
// provider; their namespaces have the names of the cases. versions is the number of versions in these cases, so that the test
// fails in a clone with missing recordings.
func Recorded(t *testing.T, rd traffic.Renderer, provider string, versions int, differences []Difference) {
	t.Helper()
	compared := 0
	unused := slices.Clone(differences)
	inputs, err := filepath.Glob(filepath.Join(recordings, "*", "input", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range inputs {
		for _, c := range canariesIn(t, input) {
			if name, _ := traffic.Normalize(c.Spec.Provider); c.Spec.Provider == "" || name != provider {
				continue
			}
			dir := filepath.Dir(filepath.Dir(input))
			c.Namespace = filepath.Base(dir)
			t.Run(filepath.Base(dir), func(t *testing.T) {
				r := recording{renderer: rd, provider: provider, dir: dir, canary: c}
				n, used := r.compare(t, differences)
				compared += n
				unused = slices.DeleteFunc(unused, func(d Difference) bool { return slices.Contains(used, d) })
			})
		}
	}
	if compared != versions {
		t.Errorf("%s: compared %d recorded versions, expected %d: the cases in %s are incomplete, or new ones must be counted",
			provider, compared, versions, recordings)
		return
	}
	for _, d := range unused {
		t.Errorf("%s: version %d of %s is rendered as recorded: remove the difference %q", d.Case, d.Version, d.Object, d.Why)
	}
}

type recording struct {
	renderer traffic.Renderer
	provider string
	dir      string
	canary   *flaggerv1.Canary
}

func (r recording) compare(t *testing.T, differences []Difference) (compared int, used []Difference) {
	var objects []struct {
		Object   string           `json:"object"`
		Versions []map[string]any `json:"versions"`
	}
	read(t, filepath.Join(r.dir, "expected", "objects.yaml"), &objects)
	for _, object := range objects {
		for version, want := range object.Versions {
			got, ok := r.render(t, object.Object, want)
			if !ok {
				continue
			}
			compared++
			closest := ""
			for i := range got {
				if diff := cmp.Diff(plain(want), plain(got[i])); i == 0 || diff == "" {
					closest = diff
				}
			}
			expected := slices.IndexFunc(differences, func(d Difference) bool {
				return d.Case == filepath.Base(r.dir) && d.Object == object.Object && d.Version == version
			})
			switch {
			case closest != "" && expected < 0:
				t.Errorf("version %d of %s (-recorded +rendered):\n%s", version, object.Object, closest)
			case closest != "":
				used = append(used, differences[expected])
			}
		}
	}
	return compared, used
}

// render renders the object of that name for the route of the recorded version, once for each state that the Canary had in
// the case.
func (r recording) render(t *testing.T, object string, version map[string]any) ([]map[string]any, bool) {
	if version["deleted"] == true {
		return nil, false
	}
	var out []map[string]any
	for _, canary := range r.states(t) {
		target := traffic.NewCanaryTarget(canary, r.provider, "app")
		existing := Find(r.renderer, target, release.Route{}, nil)
		r.addUsersObjects(t, existing)
		i := slices.IndexFunc(existing, func(x traffic.Lookup) bool { return x.Ref.GVK.Kind+"/"+x.Ref.Name == object })
		if i < 0 {
			continue
		}
		seen, err := traffic.Value(version) // with the number types of a client
		if err != nil {
			t.Fatal(err)
		}
		given, ref := slices.Clone(existing), existing[i].Ref
		existing[i].Object = &unstructured.Unstructured{Object: seen.(map[string]any)}
		observed, err := r.renderer.Read(target, existing)
		if err != nil {
			t.Fatalf("read %s: %v", object, err)
		}
		if ref.Shared {
			if !observed.Found {
				continue // the user's object, before the release writes it
			}
			given[i] = existing[i] // its other fields do not belong to the route
		}
		route := observed.Route
		route.Matches = traffic.Matches(canary)
		route.Sticky = traffic.Sticky(canary, cookiesIn(t, version))
		rendered, err := r.renderer.Render(target, route, given)
		if err != nil {
			t.Fatalf("render %s: %v", object, err)
		}
		switch {
		case ref.Shared:
			annotations := rendered[i].GetAnnotations()
			delete(annotations, traffic.OriginalAnnotation) // only Serin has it
			rendered[i].SetAnnotations(annotations)
		case ref.Namespace != "":
			setOwner(target, rendered[i])
		}
		out = append(out, rendered[i].Object)
	}
	return out, len(out) > 0
}

// addUsersObjects adds the objects of the user that the route needs, as the case creates them.
func (r recording) addUsersObjects(t *testing.T, existing traffic.Objects) {
	inputs, err := filepath.Glob(filepath.Join(r.dir, "input", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range inputs {
		for _, document := range documents(t, input) {
			obj := &unstructured.Unstructured{}
			text, err := yaml.YAMLToJSON([]byte(document))
			if err == nil {
				err = obj.UnmarshalJSON(text)
			}
			if err != nil {
				continue // only a comment
			}
			for i, x := range existing {
				if !x.Ref.Owned && x.Ref.GVK == obj.GroupVersionKind() && x.Ref.Name == obj.GetName() {
					existing[i].Object = obj
				}
			}
		}
	}
}

// states are the Canary as it was applied, and after each patch of the case.
func (r recording) states(t *testing.T) []*flaggerv1.Canary {
	var play struct {
		Steps []struct {
			Patch struct {
				Object string          `json:"object"`
				Body   json.RawMessage `json:"body"`
			} `json:"patch"`
		} `json:"steps"`
	}
	read(t, filepath.Join(r.dir, "case.yaml"), &play)
	out := []*flaggerv1.Canary{r.canary}
	for _, step := range play.Steps {
		if step.Patch.Object != "canaries.flagger.app/"+r.canary.Name {
			continue
		}
		before, err := json.Marshal(out[len(out)-1])
		if err != nil {
			t.Fatal(err)
		}
		after, err := jsonpatch.MergePatch(before, step.Patch.Body)
		if err != nil {
			t.Fatal(err)
		}
		next := &flaggerv1.Canary{}
		if err := json.Unmarshal(after, next); err != nil {
			t.Fatal(err)
		}
		out = append(out, next)
	}
	return out
}

var setCookie = regexp.MustCompile(`([a-z]+)=(COOKIE[0-9]+); Max-Age=(-?[0-9]+)`)

// cookiesIn returns a status with the cookies of the version.
func cookiesIn(t *testing.T, version map[string]any) flaggerv1.CanaryStatus {
	text, err := json.Marshal(version)
	if err != nil {
		t.Fatal(err)
	}
	var status flaggerv1.CanaryStatus
	for _, found := range setCookie.FindAllStringSubmatch(string(text), -1) {
		cookie := found[1] + "=" + found[2]
		switch {
		case found[3] == "-1":
			status.PreviousSessionAffinityCookie = cookie
		case found[1] == "anchor":
			status.PrimarySessionAffinityCookie = cookie
		default:
			status.SessionAffinityCookie = cookie
		}
	}
	return status
}

// plain returns the object for a comparison: recordings do not have names and identities, and empty lists and maps are
// insignificant.
func plain(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}} {
		unstructured.RemoveNestedField(out, path...)
	}
	metadata, _ := out["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	for _, owner := range owners {
		delete(owner.(map[string]any), "uid")
	}
	pruned, _ := withoutEmpty(out).(map[string]any)
	return pruned
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if v[key] = withoutEmpty(value); v[key] == nil {
				delete(v, key)
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

func documents(t *testing.T, file string) []string {
	text, err := os.ReadFile(file) // #nosec G304 -- a test
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n---")
}

func canariesIn(t *testing.T, file string) []*flaggerv1.Canary {
	var out []*flaggerv1.Canary
	for _, document := range documents(t, file) {
		c := &flaggerv1.Canary{}
		if err := yaml.Unmarshal([]byte(document), c); err != nil || c.Kind != flaggerv1.CanaryKind {
			continue // another kind
		}
		c.UID = "0d3a5fd7-uid"
		out = append(out, c)
	}
	return out
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file) // #nosec G304 -- a test
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", file, err))
	}
}
