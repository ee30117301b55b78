package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/canary"
)

// EndpointsKind is the kind of what Kubernetes publishes of the pods behind Services. Its objects are known by the name
// of their Service: one may have several.
var EndpointsKind = schema.GroupKind{Group: discoveryv1.GroupName, Kind: "EndpointSlice"}

// byService is the index of EndpointSlices by their Service.
const byService = "service"

// IndexEndpoints lets caches find the EndpointSlices of one Service without looking at all.
func IndexEndpoints(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &discoveryv1.EndpointSlice{}, byService, func(object client.Object) []string {
		return []string{serviceOf(object)}
	})
	if err != nil {
		return fmt.Errorf("index EndpointSlices by Service: %w", err)
	}
	return nil
}

func serviceOf(slice client.Object) string { return slice.GetLabels()[discoveryv1.LabelServiceName] }

// StripEndpoints keeps of an EndpointSlice only what is read: whose it is, and which endpoints take requests. Caches call
// it, because a cluster may have many thousands of addresses.
func StripEndpoints(object any) (any, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil // what a watch says of an object that it lost
	}
	stripped := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: slice.Name, Namespace: slice.Namespace, UID: slice.UID, ResourceVersion: slice.ResourceVersion,
			Labels: map[string]string{discoveryv1.LabelServiceName: serviceOf(slice)},
		},
		AddressType: slice.AddressType,
		Endpoints:   make([]discoveryv1.Endpoint, len(slice.Endpoints)),
	}
	for i := range slice.Endpoints {
		stripped.Endpoints[i].Conditions.Ready = is(takesRequests(&slice.Endpoints[i]))
	}
	return stripped, nil
}

var yes, no = true, false

// is gives the same two pointers to all.
func is(value bool) *bool {
	if value {
		return &yes
	}
	return &no
}

// takesRequests is true of an endpoint to which routers send requests. One about which nothing is said is such a one.
func takesRequests(e *discoveryv1.Endpoint) bool {
	return ptr.Deref(e.Conditions.Ready, true) && !ptr.Deref(e.Conditions.Terminating, false)
}

// published is how many endpoints of a slice take requests; none of one that is not there.
func published(object client.Object) int32 {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return 0
	}
	var n int32
	for i := range slice.Endpoints {
		if takesRequests(&slice.Endpoints[i]) {
			n++
		}
	}
	return n
}

// endpoints looks at what is published of both copies.
func (o *Observer) endpoints(ctx context.Context, s *seen) error {
	w, plan := &s.snapshot.Workload, s.snapshot.Plan
	if plan.Knative {
		w.Target.Endpoints.Unknown = "Knative knows the pods of a revision, and brings them up for a request"
		w.Primary.Endpoints.Unknown = w.Target.Endpoints.Unknown
		return nil
	}
	for _, of := range []struct {
		copy    *canary.Copy
		service string
	}{{&w.Target, plan.Apex + "-canary"}, {&w.Primary, plan.Apex + "-primary"}} {
		var err error
		if of.copy.Endpoints, err = o.endpointsOf(ctx, plan.Namespace, of.service); err != nil {
			return fmt.Errorf("look at the endpoints of Service %s.%s: %w", of.service, plan.Namespace, err)
		}
	}
	return nil
}

// endpointsOf counts the endpoints of one Service. A pod of two address families is in two slices; each router uses one.
func (o *Observer) endpointsOf(ctx context.Context, namespace, service string) (canary.Endpoints, error) {
	if o.EndpointsUnread != "" {
		return canary.Endpoints{Unknown: o.EndpointsUnread}, nil
	}
	options := []client.ListOption{client.InNamespace(namespace)}
	if o.Indexed {
		// They are read here and now, and never written: neither copies nor our own latest writes are needed.
		options = append(options, client.MatchingFields{byService: service}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency)
	} else {
		options = append(options, client.MatchingLabels{discoveryv1.LabelServiceName: service})
	}
	var slices discoveryv1.EndpointSliceList
	switch err := o.Client.List(ctx, &slices, options...); {
	case apierrors.IsForbidden(err):
		return canary.Endpoints{Unknown: "EndpointSlices may not be read"}, nil
	case err != nil:
		return canary.Endpoints{}, err
	}
	families := map[discoveryv1.AddressType]int32{}
	var seen canary.Endpoints
	for i := range slices.Items {
		slice := &slices.Items[i]
		families[slice.AddressType] += published(slice)
		seen.Ready = max(seen.Ready, families[slice.AddressType])
	}
	if seen.Ready > 0 {
		return seen, nil
	}
	return o.withoutEndpoints(ctx, namespace, service)
}

// withoutEndpoints is about a Service that has none: not yet, or because it is of a type that never has any.
func (o *Observer) withoutEndpoints(ctx context.Context, namespace, service string) (canary.Endpoints, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	err := o.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, object, client.UnsafeDisableDeepCopy) // one field is read
	switch {
	case apierrors.IsNotFound(err):
		return canary.Endpoints{NoService: true}, nil
	case apierrors.IsForbidden(err):
		return canary.Endpoints{}, nil // that it has no endpoints is known all the same
	case err != nil:
		return canary.Endpoints{}, err
	}
	if of, _, _ := unstructured.NestedString(object.Object, "spec", "type"); of == string(corev1.ServiceTypeExternalName) {
		return canary.Endpoints{Unknown: fmt.Sprintf("Service %s.%s is an alias of another name and has no endpoints", service, namespace)}, nil
	}
	return canary.Endpoints{Made: object.GetCreationTimestamp().Time}, nil
}
