package operator

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

func TestTheCacheRetainsOnlyTheFieldsThatAreRead(t *testing.T) {
	ofKind := func(kind string) client.Object {
		object := &unstructured.Unstructured{}
		object.SetKind(kind)
		return object
	}
	for name, c := range map[string]struct {
		object  client.Object
		retains bool
	}{
		"Deployment":         {ofKind("Deployment"), false},
		"DaemonSet":          {ofKind("DaemonSet"), false},
		"ScaledObject":       {ofKind("ScaledObject"), false},
		"autoscaler":         {ofKind("HorizontalPodAutoscaler"), false},
		"Service":            {ofKind("Service"), true},
		"HTTPRoute":          {ofKind("HTTPRoute"), true},
		"VirtualService":     {ofKind("VirtualService"), true},
		"Canary":             {&flaggerv1.Canary{}, false},
		"metadata of Secret": {&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Secret"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.object.SetAnnotations(map[string]string{lastAppliedAnnotation: "{}", "note": "mine"})
			c.object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			if _, err := trimObject(c.object); err != nil {
				t.Fatal(err)
			}
			_, retained := c.object.GetAnnotations()[lastAppliedAnnotation]
			if retained != c.retains || c.object.GetAnnotations()["note"] != "mine" || len(c.object.GetManagedFields()) > 0 {
				t.Errorf("got annotations %v and managed fields %v, want the last applied configuration retained: %t", c.object.GetAnnotations(), c.object.GetManagedFields(), c.retains)
			}
		})
	}
	applied := ofKind("Deployment")
	applied.SetAnnotations(map[string]string{lastAppliedAnnotation: "{}"})
	if _, err := trimObject(applied); err != nil || applied.GetAnnotations() != nil {
		t.Errorf("got annotations %v, %v, want none", applied.GetAnnotations(), err)
	}
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}}
	if got, err := trimObject(slice); err != nil || len(got.(*discoveryv1.EndpointSlice).Endpoints) != 1 || got.(*discoveryv1.EndpointSlice).Endpoints[0].Addresses != nil {
		t.Errorf("got endpoints %v, %v, want one without addresses", got, err)
	}
	tombstone := clientcache.DeletedFinalStateUnknown{Key: "shop/cart"}
	if got, err := trimObject(tombstone); err != nil || got != tombstone {
		t.Errorf("got %v, %v, want %v", got, err, tombstone)
	}
}
