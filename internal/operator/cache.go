package operator

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/othercontroller"
)

// lastAppliedAnnotation is the annotation in which kubectl stores a copy of the object, including data.
const lastAppliedAnnotation = "kubectl.kubernetes.io/last-applied-configuration"

// otherControllerLeases selects the leases that Serin reads. Without it, the cache would contain the leases of all nodes.
var otherControllerLeases = fields.OneTermEqualSelector("metadata.name", othercontroller.FlaggerLeaseName)

// cacheOptions returns the options of the cache: the objects to watch, without fields that are never read.
func (f *Flags) cacheOptions() cache.Options {
	options := cache.Options{
		DefaultTransform: trimObject,
		ByObject:         map[client.Object]cache.ByObject{&coordinationv1.Lease{}: {Field: otherControllerLeases}},
	}
	if f.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{f.Namespace: {}}
	}
	return options
}

// trimObject removes the fields that are never read. The last applied configuration is read only of Services and routes,
// to restore them. For other objects it would cost memory, and for ConfigMaps and Secrets it contains their content. No
// write removes it from the cluster, because each write sends only the difference to the object that was read.
func trimObject(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // not an object, but the tombstone of a deleted one
	}
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		return endpoints.Strip(slice)
	}
	accessor.SetManagedFields(nil)
	if generic, ok := object.(*unstructured.Unstructured); ok {
		switch generic.GetKind() {
		case "Revision": // a Revision of Knative: only its readiness is read
			delete(generic.Object, "spec")
		case "Deployment", "DaemonSet", "HorizontalPodAutoscaler", "ScaledObject":
		default:
			return object, nil
		}
	}
	if annotations := accessor.GetAnnotations(); annotations[lastAppliedAnnotation] != "" {
		if delete(annotations, lastAppliedAnnotation); len(annotations) == 0 {
			annotations = nil // as in an object that never had annotations
		}
		accessor.SetAnnotations(annotations)
	}
	return object, nil
}
