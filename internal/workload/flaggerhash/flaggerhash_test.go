package flaggerhash

import (
	"testing"

	"github.com/cockroachdb/datadriven"
	kjson "sigs.k8s.io/json"
)

// testdata/templates was generated with the library and dumper of Flagger, k8s.io/api v0.36.3 and go-spew. Never rewrite it: a
// difference is a defect of this package.
func TestHashesEqualFlaggers(t *testing.T) {
	seen := 0
	datadriven.RunTest(t, "testdata/templates", func(t *testing.T, data *datadriven.TestData) string {
		seen++
		var template map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(data.Input), &template); err != nil {
			t.Fatal(err)
		}
		return HashTemplate(template) + "\n"
	})
	if seen < 30 {
		t.Errorf("got %d templates", seen)
	}
}

// The values were generated like those of testdata/templates.
func TestHashesOfServicesAndNamesEqualFlaggers(t *testing.T) {
	for spec, want := range map[string]string{
		`{"type":"ExternalName","externalName":"one.example.com","ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":8080}],"sessionAffinity":"None"}`:                                                                                                                                                                                                                    "68b746c9bc",
		`{"type":"ClusterIP","clusterIP":"10.0.0.7","clusterIPs":["10.0.0.7"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","internalTrafficPolicy":"Cluster","selector":{"app":"cart"},"ports":[{"name":"http","protocol":"TCP","port":80,"targetPort":"web","appProtocol":"http"}],"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10}}}`: "58f6997569",
		`{}`: "55f5bb485",
	} {
		var object map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(spec), &object); err != nil {
			t.Fatal(err)
		}
		if got := HashServiceSpec(object); got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	if got, want := HashText("cart-00002"), "86cdc66cf6"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDump(t *testing.T) {
	got := string(dump(podTemplate, map[string]any{"metadata": map[string]any{"labels": map[string]any{"b": "2", "a": "1"}}}))
	const want = "(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) Namespace:(string) SelfLink:(string) " +
		"UID:(types.UID) ResourceVersion:(string) Generation:(int64)0 " +
		"CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} " +
		"DeletionTimestamp:(*v1.Time)<nil> DeletionGracePeriodSeconds:(*int64)<nil> " +
		"Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)<nil> " +
		"OwnerReferences:([]v1.OwnerReference)<nil> Finalizers:([]string)<nil> ManagedFields:([]v1.ManagedFieldsEntry)<nil>} " +
		"Spec:(v1.PodSpec){Volumes:([]v1.Volume)<nil> "
	if len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("got  %.*s\nwant %s", len(want), got, want)
	}
}

func BenchmarkHashTemplate(b *testing.B) {
	template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}}}
	for b.Loop() {
		HashTemplate(template)
	}
}
