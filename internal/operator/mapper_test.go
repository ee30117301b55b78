package operator

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMappingsAreCached(t *testing.T) {
	inner := meta.NewDefaultRESTMapper(nil)
	m := wrapMapper(inner)
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	if _, err := m.RESTMapping(kind.GroupKind(), kind.Version); !meta.IsNoMatchError(err) {
		t.Errorf("not installed: %v", err)
	}
	inner.Add(kind, meta.RESTScopeNamespace)
	first, err := m.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil || first.Resource.Resource != "deployments" {
		t.Fatalf("installed later: %+v, %v", first, err)
	}
	if again, err := m.RESTMapping(kind.GroupKind(), kind.Version); err != nil || again != first {
		t.Errorf("not cached: %p, before %p, %v", again, first, err)
	}
	if _, err := m.RESTMapping(kind.GroupKind(), "v2"); !meta.IsNoMatchError(err) {
		t.Errorf("another version: %v", err)
	}
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "Deployment"}, kind.Version); !meta.IsNoMatchError(err) {
		t.Errorf("another group: %v", err)
	}
}
