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
	"github.com/serin-dev/serin/internal/peer"
)

// lastApplied is where kubectl keeps the whole object once more, data and all.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// leasesOfPeers are all leases that are looked at: a cluster has one for each node, and more.
var leasesOfPeers = fields.OneTermEqualSelector("metadata.name", peer.Lease)

// cache holds what is watched, without what nobody reads.
func (f *Flags) cache() cache.Options {
	options := cache.Options{
		DefaultTransform: trimmed,
		ByObject:         map[client.Object]cache.ByObject{&coordinationv1.Lease{}: {Field: leasesOfPeers}},
	}
	if f.Namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{f.Namespace: {}}
	}
	return options
}

// trimmed is an object without what nobody reads. What was last applied is read of Services and of routes, to give them
// back as they were; of anything else it would only cost memory, and for ConfigMaps and Secrets hold their content. No
// write takes it away: each sends the difference from what was read.
func trimmed(object any) (any, error) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object, nil //nolint:nilerr // not an object: the note of one that is gone
	}
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		return endpoints.Strip(slice)
	}
	accessor.SetManagedFields(nil)
	if generic, ok := object.(*unstructured.Unstructured); ok {
		switch generic.GetKind() {
		case "Revision": // of Knative: whether it is ready is all that is asked
			delete(generic.Object, "spec")
		case "Deployment", "DaemonSet", "HorizontalPodAutoscaler", "ScaledObject":
		default:
			return object, nil
		}
	}
	if annotations := accessor.GetAnnotations(); annotations[lastApplied] != "" {
		if delete(annotations, lastApplied); len(annotations) == 0 {
			annotations = nil // as in an object that never had any
		}
		accessor.SetAnnotations(annotations)
	}
	return object, nil
}
