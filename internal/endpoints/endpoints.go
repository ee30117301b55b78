// Package endpoints observes the endpoints that Kubernetes has published for a Service.
//
// It knows EndpointSlices and Services. It must not know Canaries or Rollouts, nor the consequences of an observation: those
// are gates of their state machines.
package endpoints

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/watching"
)

// Kind is the kind of EndpointSlices. As a dependency, an EndpointSlice is identified by the name of its Service, which may have
// several.
var Kind = schema.GroupKind{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}

// Of returns the dependency on the endpoints of a Service.
func Of(namespace, service string) watching.Object {
	return watching.Object{Kind: Kind, Namespace: namespace, Name: service}
}

// serviceIndex is the index of EndpointSlices by their Service.
const serviceIndex = "service"

// Index adds an index to a cache that finds the EndpointSlices of one Service without reading all.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, serviceIndex, func(object client.Object) []string {
		return []string{ServiceOf(object)}
	})
	if err != nil {
		return fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return nil
}

// ServiceOf returns the name of the Service of an EndpointSlice.
func ServiceOf(slice client.Object) string { return slice.GetLabels()[discoveryv1.LabelServiceName] }

// Strip reduces an EndpointSlice to the data that this package reads: its Service, the readiness of its endpoints, and the
// ReplicaSets of their pods. It is a transform function for caches, because a cluster may have many thousands of addresses.
func Strip(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil // a tombstone, for an object whose deletion the watch missed
	}
	stripped := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: slice.Name, Namespace: slice.Namespace, UID: slice.UID, ResourceVersion: slice.ResourceVersion,
			Labels: map[string]string{discoveryv1.LabelServiceName: ServiceOf(slice)},
		},
		AddressType: slice.AddressType,
		Endpoints:   make([]discoveryv1.Endpoint, len(slice.Endpoints)),
	}
	references := map[string]*corev1.ObjectReference{}
	for i := range slice.Endpoints {
		stripped.Endpoints[i].Conditions.Ready = sharedBool(takesRequests(&slice.Endpoints[i]))
		stripped.Endpoints[i].TargetRef = internReference(references, slice.Endpoints[i].TargetRef)
	}
	return stripped, nil
}

// internReference returns the same reference for all pods of a ReplicaSet, that to the first of them: only the common prefix of
// their names is read.
func internReference(references map[string]*corev1.ObjectReference, to *corev1.ObjectReference) *corev1.ObjectReference {
	name := podNamePrefix(to)
	if name == "" {
		return nil
	}
	if references[name] == nil {
		references[name] = &corev1.ObjectReference{Kind: to.Kind, Name: strings.Clone(to.Name)} // a substring would retain the dropped object
	}
	return references[name]
}

var sharedTrue, sharedFalse = true, false

// sharedBool returns one of two pointers that all endpoints share, to save memory.
func sharedBool(value bool) *bool {
	if value {
		return &sharedTrue
	}
	return &sharedFalse
}

// takesRequests reports whether routers send requests to an endpoint. An endpoint without conditions takes requests.
func takesRequests(e *discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Ready, true) && !ptr.Deref(e.Conditions.Terminating, false)
}

// The API server generates the name of a ReplicaSet's pod from the name of the ReplicaSet, truncated if it is too long, and a
// random suffix.
const (
	randomSuffixLength = 5
	maxPrefixLength    = 63 - randomSuffixLength
)

// podNamePrefix returns the common prefix of the names of all pods of a ReplicaSet, from a reference to one of them; empty if the
// reference is not to a pod.
func podNamePrefix(to *corev1.ObjectReference) string {
	if to == nil || to.Kind != "Pod" {
		return ""
	}
	return to.Name[:max(len(to.Name)-randomSuffixLength, 0)]
}

// replicaSetPodPrefix returns the common prefix of the names of a ReplicaSet's pods. Two ReplicaSets whose long names are
// truncated may have the same prefix; then the pods of both count.
func replicaSetPodPrefix(name string) string {
	name += "-"
	return name[:min(len(name), maxPrefixLength)]
}

// counts are the numbers of endpoints that take requests, by the common prefix of the names of their pods; the prefix is empty
// for endpoints without a pod.
type counts map[string]int32

// countReady returns the counts of an EndpointSlice; nil if it does not exist.
func countReady(object client.Object) counts {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	var n counts
	for i := range slice.Endpoints {
		if takesRequests(&slice.Endpoints[i]) {
			if n == nil {
				n = counts{}
			}
			n[podNamePrefix(slice.Endpoints[i].TargetRef)]++
		}
	}
	return n
}

// Changed reports whether the number of pods that take requests differs for any ReplicaSet between two versions of an
// EndpointSlice. One that does not exist has no pods.
func Changed(before, after client.Object) bool {
	return !maps.Equal(countReady(before), countReady(after))
}

// Reader observes endpoints.
type Reader struct {
	Client client.Client
	// Indexed is true if the client has the index; otherwise EndpointSlices are listed by label.
	Indexed bool
	// Unread is the reason why endpoints cannot be observed, for users; empty means that they can.
	Unread string
}

// Published are the endpoints of one Service.
type Published struct {
	// Endpoints counts all endpoints.
	release.Endpoints

	byPodPrefix counts
}

// OfSet returns the endpoints of the pods of a ReplicaSet. Endpoints without a pod count for every ReplicaSet.
func (p Published) OfSet(name string) release.Endpoints {
	endpoints := p.Endpoints
	endpoints.Ready = p.byPodPrefix[replicaSetPodPrefix(name)] + p.byPodPrefix[""]
	return endpoints
}

// OfWorkload returns the number of these endpoints whose pods belong to a workload, by their names, but not to another workload
// whose name begins with the name of the first one; empty: there is none. Pods whose truncated names could belong to both do not
// count.
func (p Published) OfWorkload(name, except string) int32 {
	var count int32
	for prefix, n := range p.byPodPrefix {
		hash, isOfWorkload := strings.CutPrefix(prefix, name+"-") // empty for a DaemonSet
		isExcepted := except != "" && (strings.HasPrefix(prefix, except+"-") || len(prefix) == maxPrefixLength && strings.HasPrefix(except+"-", prefix))
		if isOfWorkload && !isExcepted && !strings.Contains(strings.TrimSuffix(hash, "-"), "-") {
			count += n
		}
	}
	return count
}

// Of counts the endpoints of one Service. A pod with two address families is in two slices, of which each router uses one.
func (r Reader) Of(ctx context.Context, namespace, service string) (Published, error) {
	if r.Unread != "" {
		return Published{Endpoints: release.Endpoints{Unknown: r.Unread}}, nil
	}
	options := []client.ListOption{client.InNamespace(namespace)}
	if r.Indexed {
		// Serin only reads these objects and does not retain them: it needs neither copies nor its own latest writes.
		options = append(options, client.MatchingFields{serviceIndex: service}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	} else {
		options = append(options, client.MatchingLabels{discoveryv1.LabelServiceName: service})
	}
	var slices discoveryv1.EndpointSliceList
	switch err := r.Client.List(ctx, &slices, options...); {
	case apierrors.IsForbidden(err):
		return Published{Endpoints: release.Endpoints{Unknown: "EndpointSlices may not be read"}}, nil
	case err != nil:
		return Published{}, fmt.Errorf("list the EndpointSlices of Service %s.%s: %w", service, namespace, err)
	}
	families := map[discoveryv1.AddressType]counts{}
	for i := range slices.Items {
		addressType := slices.Items[i].AddressType
		if families[addressType] == nil {
			families[addressType] = counts{}
		}
		families[addressType].add(countReady(&slices.Items[i]))
	}
	published := Published{byPodPrefix: counts{}}
	for _, family := range families {
		published.Ready = max(published.Ready, family.sum())
		for prefix, n := range family {
			published.byPodPrefix[prefix] = max(published.byPodPrefix[prefix], n)
		}
	}
	if published.Ready > 0 {
		return published, nil
	}
	none, err := r.serviceWithoutEndpoints(ctx, namespace, service)
	return Published{Endpoints: none}, err
}

func (c counts) add(more counts) {
	for prefix, n := range more {
		c[prefix] += n
	}
}

func (c counts) sum() int32 {
	var total int32
	for _, n := range c {
		total += n
	}
	return total
}

// serviceWithoutEndpoints describes a Service without endpoints: it has none yet, or its type never has any.
func (r Reader) serviceWithoutEndpoints(ctx context.Context, namespace, service string) (release.Endpoints, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, object, client.UnsafeDisableDeepCopy) // one field is read
	switch {
	case apierrors.IsNotFound(err):
		return release.Endpoints{NoService: true}, nil
	case apierrors.IsForbidden(err):
		return release.Endpoints{}, nil // the Service has no endpoints in any case
	case err != nil:
		return release.Endpoints{}, fmt.Errorf("get Service %s.%s, which has no endpoints: %w", service, namespace, err)
	}
	if serviceType, _, _ := unstructured.NestedString(object.Object, "spec", "type"); serviceType == string(corev1.ServiceTypeExternalName) {
		return release.Endpoints{Unknown: fmt.Sprintf("Service %s.%s is an alias of another name and has no endpoints", service, namespace)}, nil
	}
	return release.Endpoints{ServiceCreated: object.GetCreationTimestamp().Time}, nil
}
