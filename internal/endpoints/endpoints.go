// Package endpoints observes what Kubernetes has published of the pods behind a Service.
//
// It knows EndpointSlices and Services. It must not know Canaries or Rollouts, nor what follows from what it observes: that
// is a gate of their state machines.
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

// Kind is the kind of what Kubernetes publishes of the pods behind Services. Its objects are known by the name of their
// Service: one may have several.
var Kind = schema.GroupKind{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}

// Of is what depends on the endpoints of a Service depends on.
func Of(namespace, service string) watching.Object {
	return watching.Object{Kind: Kind, Namespace: namespace, Name: service}
}

// byService is the index of EndpointSlices by their Service.
const byService = "service"

// Index lets caches find the EndpointSlices of one Service without looking at all.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, byService, func(object client.Object) []string {
		return []string{ServiceOf(object)}
	})
	if err != nil {
		return fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return nil
}

// ServiceOf is the name of the Service of an EndpointSlice.
func ServiceOf(slice client.Object) string { return slice.GetLabels()[discoveryv1.LabelServiceName] }

// Strip keeps of an EndpointSlice only what is read: whose it is, which endpoints take requests, and who made their pods.
// Caches call it, because a cluster may have many thousands of addresses.
func Strip(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil // what a watch says of an object that it lost
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

// internReference gives the pods of one ReplicaSet the reference to the first of them: only the part of the name is read that they have
// in common.
func internReference(references map[string]*corev1.ObjectReference, to *corev1.ObjectReference) *corev1.ObjectReference {
	name := podNamePrefix(to)
	if name == "" {
		return nil
	}
	if references[name] == nil {
		references[name] = &corev1.ObjectReference{Kind: to.Kind, Name: strings.Clone(to.Name)} // not a part of what is dropped
	}
	return references[name]
}

var yes, no = true, false

// sharedBool gives the same two pointers to all.
func sharedBool(value bool) *bool {
	if value {
		return &yes
	}
	return &no
}

// takesRequests is true of an endpoint to which routers send requests. One about which nothing is said is such a one.
func takesRequests(e *discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Ready, true) && !ptr.Deref(e.Conditions.Terminating, false)
}

// How the API server names a pod that a ReplicaSet makes: after the ReplicaSet, cut where that is too long, and with a random
// end.
const (
	randomLength = 5
	longestName  = 63 - randomLength
)

// podNamePrefix is what the names of the pods have in common that were made together with the one of a reference; empty: it is
// none.
func podNamePrefix(to *corev1.ObjectReference) string {
	if to == nil || to.Kind != "Pod" {
		return ""
	}
	return to.Name[:max(len(to.Name)-randomLength, 0)]
}

// replicaSetPodPrefix is what the names of the pods of a ReplicaSet have in common. Two ReplicaSets with names that are too long may
// have that in common: then the pods of either count.
func replicaSetPodPrefix(name string) string {
	name += "-"
	return name[:min(len(name), longestName)]
}

// counts are numbers of endpoints that take requests, by what the names of their pods have in common; of those that name no
// pod it is empty.
type counts map[string]int32

// countReady is about one EndpointSlice; none of one that is not there.
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

// Changed is false for versions of an EndpointSlice in which as many pods of the same ReplicaSets take requests. One that is
// not there has none.
func Changed(before, after client.Object) bool {
	return !maps.Equal(countReady(before), countReady(after))
}

// Reader observes endpoints.
type Reader struct {
	Client client.Client
	// Indexed is true where the client has the index; else it is asked by label.
	Indexed bool
	// Unread is why endpoints cannot be observed, as a sentence; empty: they can.
	Unread string
}

// Published are the endpoints of one Service.
type Published struct {
	// Endpoints are all of them.
	release.Endpoints

	by counts
}

// OfSet are those of the pods of a ReplicaSet. Endpoints that name no pod may belong to any.
func (p Published) OfSet(name string) release.Endpoints {
	of := p.Endpoints
	of.Ready = p.by[replicaSetPodPrefix(name)] + p.by[""]
	return of
}

// Of counts the endpoints of one Service. A pod of two address families is in two slices; each router uses one.
func (r Reader) Of(ctx context.Context, namespace, service string) (Published, error) {
	if r.Unread != "" {
		return Published{Endpoints: release.Endpoints{Unknown: r.Unread}}, nil
	}
	options := []client.ListOption{client.InNamespace(namespace)}
	if r.Indexed {
		// They are read here and now, and never written: neither copies nor our own latest writes are needed.
		options = append(options, client.MatchingFields{byService: service}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
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
		of := slices.Items[i].AddressType
		if families[of] == nil {
			families[of] = counts{}
		}
		families[of].add(countReady(&slices.Items[i]))
	}
	seen := Published{by: counts{}}
	for _, family := range families {
		seen.Ready = max(seen.Ready, family.sum())
		for pods, n := range family {
			seen.by[pods] = max(seen.by[pods], n)
		}
	}
	if seen.Ready > 0 {
		return seen, nil
	}
	none, err := r.serviceWithoutEndpoints(ctx, namespace, service)
	return Published{Endpoints: none}, err
}

func (c counts) add(more counts) {
	for pods, n := range more {
		c[pods] += n
	}
}

func (c counts) sum() int32 {
	var all int32
	for _, n := range c {
		all += n
	}
	return all
}

// serviceWithoutEndpoints is about a Service that has none: not yet, or because it is of a type that never has any.
func (r Reader) serviceWithoutEndpoints(ctx context.Context, namespace, service string) (release.Endpoints, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, object, client.UnsafeDisableDeepCopy) // one field is read
	switch {
	case apierrors.IsNotFound(err):
		return release.Endpoints{NoService: true}, nil
	case apierrors.IsForbidden(err):
		return release.Endpoints{}, nil // that it has no endpoints is known all the same
	case err != nil:
		return release.Endpoints{}, fmt.Errorf("get Service %s.%s, which has no endpoints: %w", service, namespace, err)
	}
	if of, _, _ := unstructured.NestedString(object.Object, "spec", "type"); of == string(corev1.ServiceTypeExternalName) {
		return release.Endpoints{Unknown: fmt.Sprintf("Service %s.%s is an alias of another name and has no endpoints", service, namespace)}, nil
	}
	return release.Endpoints{ServiceCreated: object.GetCreationTimestamp().Time}, nil
}
