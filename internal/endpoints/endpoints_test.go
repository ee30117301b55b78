package endpoints

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/serin-dev/serin/internal/release"
)

// sliceOf returns an EndpointSlice of a Service. Each letter is an endpoint: r is ready, u is not ready, t is ready but
// terminating, and ? has no conditions.
func sliceOf(name, service, endpoints string, addressType discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{"a": "b"},
			Labels: map[string]string{discoveryv1.LabelServiceName: service, "more": "labels"},
		},
		AddressType: addressType,
	}
	for _, letter := range endpoints {
		endpoint := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: new("node")}
		switch letter {
		case 'r':
			endpoint.Conditions.Ready = new(true)
		case 'u':
			endpoint.Conditions.Ready = new(false)
		case 't':
			endpoint.Conditions.Ready, endpoint.Conditions.Terminating = new(true), new(true)
		}
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

func serviceNamed(name string, serviceType corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: corev1.ServiceSpec{Type: serviceType, ExternalName: "elsewhere"}}
}

func newClient(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range objects {
		object.SetResourceVersion("") // the fake client sets its own
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&discoveryv1.EndpointSlice{}, serviceIndex, func(o client.Object) []string { return []string{ServiceOf(o)} }).Build()
}

func TestEndpointsAreCounted(t *testing.T) {
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	existing := serviceNamed("cart-canary", corev1.ServiceTypeClusterIP)
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	existing.CreationTimestamp = metav1.NewTime(created)
	for _, tc := range []struct {
		name    string
		objects []client.Object
		want    release.Endpoints
	}{
		{"in all slices", []client.Object{sliceOf("a", "cart-canary", "rru", v4), sliceOf("b", "cart-canary", "?t", v4)}, release.Endpoints{Ready: 3}},
		{"once for two address families", []client.Object{sliceOf("a", "cart-canary", "rr", v4), sliceOf("b", "cart-canary", "rr", v6)}, release.Endpoints{Ready: 2}},
		{"of another Service", []client.Object{sliceOf("a", "cart-primary", "rr", v4), existing}, release.Endpoints{ServiceCreated: created}},
		{"none is ready", []client.Object{sliceOf("a", "cart-canary", "uut", v4), existing}, release.Endpoints{ServiceCreated: created}},
		{"no slice yet", []client.Object{existing}, release.Endpoints{ServiceCreated: created}},
		{"no Service", nil, release.Endpoints{NoService: true}},
		{
			"a Service without endpoints",
			[]client.Object{serviceNamed("cart-canary", corev1.ServiceTypeExternalName)},
			release.Endpoints{Unknown: "Service cart-canary.shop is an alias of another name and has no endpoints"},
		},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(tc.name, func(t *testing.T) {
				r := Reader{Client: newClient(t, tc.objects...), Indexed: indexed}
				got, err := r.Of(t.Context(), "shop", "cart-canary")
				if diff := cmp.Diff(tc.want, got.Endpoints); diff != "" || err != nil {
					t.Errorf("endpoints (-want +got), error %v:\n%s", err, diff)
				}
			})
		}
	}
}

func TestEndpointsThatMayNotBeReadAreUnknown(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil)
	for _, tc := range []struct {
		name   string
		reader Reader
		err    error
		want   release.Endpoints
	}{
		{name: "known at the start", reader: Reader{Unread: "no permission"}, err: errors.New("must not be called"), want: release.Endpoints{Unknown: "no permission"}},
		{name: "refused by the API server", err: refused, want: release.Endpoints{Unknown: "EndpointSlices may not be read"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.reader.Client = interceptor.NewClient(newClient(t), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return tc.err },
			})
			got, err := tc.reader.Of(t.Context(), "shop", "cart-canary")
			if diff := cmp.Diff(tc.want, got.Endpoints); diff != "" || err != nil {
				t.Errorf("endpoints (-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

func TestStripRetainsOnlyTheFieldsThatAreRead(t *testing.T) {
	full := withPod("cart-1-abcde", sliceOf("a", "cart-canary", "rut?", discoveryv1.AddressTypeIPv4))
	stripped, err := Strip(full)
	if err != nil {
		t.Fatal(err)
	}
	want := sliceOf("a", "cart-canary", "ruur", discoveryv1.AddressTypeIPv4)
	want.Annotations = nil
	delete(want.Labels, "more")
	for i := range want.Endpoints {
		want.Endpoints[i].Addresses, want.Endpoints[i].NodeName = nil, nil
		want.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "cart-1-abcde"}
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("stripped (-want +got):\n%s", diff)
	}
	if len(full.Endpoints[0].Addresses) == 0 {
		t.Error("the argument was changed")
	}
}

func TestOnlyAnotherNumberOfEndpointsIsAChange(t *testing.T) {
	slice := func(endpoints string) client.Object {
		return sliceOf("a", "cart-canary", endpoints, discoveryv1.AddressTypeIPv4)
	}
	sliceOfPod := func(pod, endpoints string) client.Object {
		return withPod(pod, sliceOf("a", "cart-canary", endpoints, discoveryv1.AddressTypeIPv4))
	}
	for name, tc := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"ready":                         {slice("ru"), slice("rr"), true},
		"unready":                       {slice("rr"), slice("ru"), true},
		"another one is ready":          {slice("ru"), slice("ur"), false},
		"one more that is not ready":    {slice("r"), slice("ru"), false},
		"one more that terminates":      {slice("r"), slice("rt"), false},
		"created, empty":                {nil, slice(""), false},
		"created, unready":              {nil, slice("u"), false},
		"created, ready":                {nil, slice("ur"), true},
		"deleted, unready":              {slice("u"), nil, false},
		"deleted, ready":                {slice("ur"), nil, true},
		"another pod of the same":       {sliceOfPod("cart-1-aaaaa", "r"), sliceOfPod("cart-1-bbbbb", "r"), false},
		"a pod of another ReplicaSet":   {sliceOfPod("cart-1-aaaaa", "r"), sliceOfPod("cart-2-aaaaa", "r"), true},
		"a name that is too short":      {sliceOfPod("a", "r"), sliceOfPod("b", "r"), false},
		"unready of another ReplicaSet": {sliceOfPod("cart-1-aaaaa", "u"), sliceOfPod("cart-2-aaaaa", "u"), false},
	} {
		if got := Changed(tc.before, tc.after); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

// withPod sets the pod of all endpoints of a slice.
func withPod(pod string, slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	for i := range slice.Endpoints {
		slice.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: slice.Namespace, Name: pod}
	}
	return slice
}

// A Service whose selector has just changed still publishes the pods of the previous revision.
func TestEndpointsAreCountedByTheReplicaSetOfTheirPods(t *testing.T) {
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	long := strings.Repeat("x", 60) + "-6d4b"
	objects := []client.Object{
		withPod("cart-6d4b-abcde", sliceOf("a", "canary", "rru", v4)), withPod("cart-6d4b-abcde", sliceOf("b", "canary", "rr", v6)),
		withPod("cart-77f8-abcde", sliceOf("c", "canary", "ut", v4)), withPod("cart-6d4b-2-abcde", sliceOf("d", "canary", "r", v4)),
		withPod(long[:58]+"abcde", sliceOf("e", "canary", "rrr", v4)),
	}
	for _, stripped := range []bool{false, true} {
		for _, more := range []client.Object{nil, sliceOf("f", "canary", "rr", v4)} {
			var all []client.Object
			for _, object := range append(slices.Clone(objects), more) {
				if object == nil {
					continue
				}
				object, _ = object.DeepCopyObject().(client.Object)
				if stripped {
					result, err := Strip(object)
					if err != nil {
						t.Fatal(err)
					}
					object, _ = result.(client.Object)
				}
				all = append(all, object)
			}
			var unnamed int32
			if more != nil {
				unnamed = 2 // endpoints without a pod, which count for every ReplicaSet
			}
			published, err := Reader{Client: newClient(t, all...)}.Of(t.Context(), "shop", "canary")
			if err != nil {
				t.Fatal(err)
			}
			for set, want := range map[string]int32{"cart-6d4b": 2, "cart-77f8": 0, "cart-6d4b-2": 1, "cart": 0, "cart-6d": 0, long: 3} {
				if got := published.OfSet(set); got.Ready != want+unnamed {
					t.Errorf("stripped %v, %d endpoints without a pod: ReplicaSet %s has %d, want %d", stripped, unnamed, set, got.Ready, want+unnamed)
				}
			}
		}
	}
}

func TestEndpointsOfAWorkload(t *testing.T) {
	long := strings.Repeat("cart", 13) + "-car" // names of its pods are truncated within the name of its primary
	var all []client.Object
	for i, pod := range []string{
		"cart-6d4b-aaaaa", "cart-6d4b-bbbbb", "cart-77f8-aaaaa", "cart-primary-77f8-bbbbb", // of Deployments
		"mail-aaaaa", "mail-primary-aaaaa", "mail-primary-bbbbb", // of DaemonSets
		"cart-other-77f8-aaaaa", "cartier-77f8-aaaaa",
		long + "-6" + "aaaaa", long + "-p" + "aaaaa", long + "-p" + "bbbbb",
	} {
		all = append(all, withPod(pod, sliceOf(fmt.Sprint("slice-", i), "any", "r", discoveryv1.AddressTypeIPv4)))
	}
	published, err := Reader{Client: newClient(t, all...)}.Of(t.Context(), "shop", "any")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, except string
		want         int32
	}{
		{"cart", "cart-primary", 3},
		{"cart-primary", "", 1},
		{"mail", "mail-primary", 1},
		{"mail-primary", "", 2},
		{long, long + "-primary", 1},
		{long + "-primary", "", 0},
		{"absent", "absent-primary", 0},
	} {
		if got := published.OfWorkload(test.name, test.except); got != test.want {
			t.Errorf("%s without %q: got %d, want %d", test.name, test.except, got, test.want)
		}
	}
}
