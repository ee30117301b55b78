package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/watching"
)

// sliceOf is an EndpointSlice of a Service. Each letter is an endpoint: r takes requests, u does not, t is on its way
// out although it answers, and nothing is said about ?.
func sliceOf(name, service, endpoints string, of discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: "uid", ResourceVersion: "7", Annotations: map[string]string{"a": "b"},
			Labels: map[string]string{discoveryv1.LabelServiceName: service, "more": "labels"},
		},
		AddressType: of,
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

func serviceNamed(name string, of corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: corev1.ServiceSpec{Type: of, ExternalName: "elsewhere"}}
}

func reading(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range objects {
		object.SetResourceVersion("") // the store gives its own
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&discoveryv1.EndpointSlice{}, byService, func(o client.Object) []string { return []string{serviceOf(o)} }).Build()
}

func TestEndpointsAreCounted(t *testing.T) {
	v4, v6 := discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	existing := serviceNamed("cart-canary", corev1.ServiceTypeClusterIP)
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	existing.CreationTimestamp = metav1.NewTime(made)
	for _, tc := range []struct {
		name    string
		objects []client.Object
		want    canary.Endpoints
	}{
		{"of all its slices", []client.Object{sliceOf("a", "cart-canary", "rru", v4), sliceOf("b", "cart-canary", "?t", v4)}, canary.Endpoints{Ready: 3}},
		{"once for both families", []client.Object{sliceOf("a", "cart-canary", "rr", v4), sliceOf("b", "cart-canary", "rr", v6)}, canary.Endpoints{Ready: 2}},
		{"of that Service only", []client.Object{sliceOf("a", "cart-primary", "rr", v4), existing}, canary.Endpoints{Made: made}},
		{"none is ready", []client.Object{sliceOf("a", "cart-canary", "uut", v4), existing}, canary.Endpoints{Made: made}},
		{"no slice yet", []client.Object{existing}, canary.Endpoints{Made: made}},
		{"no Service", nil, canary.Endpoints{NoService: true}},
		{
			"a Service that has none",
			[]client.Object{serviceNamed("cart-canary", corev1.ServiceTypeExternalName)},
			canary.Endpoints{Unknown: "Service cart-canary.shop is an alias of another name and has no endpoints"},
		},
	} {
		for _, indexed := range []bool{true, false} {
			t.Run(tc.name, func(t *testing.T) {
				o := Observer{Client: reading(t, tc.objects...), Indexed: indexed}
				got, err := o.endpointsOf(t.Context(), "shop", "cart-canary")
				if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
					t.Errorf("endpoints (-want +got), error %v:\n%s", err, diff)
				}
			})
		}
	}
}

func TestEndpointsThatMayNotBeReadAreUnknown(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil)
	for _, tc := range []struct {
		name     string
		observer Observer
		err      error
		want     canary.Endpoints
	}{
		{name: "said at the start", observer: Observer{EndpointsUnread: "no rights"}, err: errors.New("must not be asked"), want: canary.Endpoints{Unknown: "no rights"}},
		{name: "said now", err: refused, want: canary.Endpoints{Unknown: "EndpointSlices may not be read"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.observer.Client = interceptor.NewClient(reading(t), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return tc.err },
			})
			got, err := tc.observer.endpointsOf(t.Context(), "shop", "cart-canary")
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("endpoints (-want +got), error %v:\n%s", err, diff)
			}
		})
	}
}

func TestCachesKeepOfEndpointsWhatIsRead(t *testing.T) {
	full := sliceOf("a", "cart-canary", "rut?", discoveryv1.AddressTypeIPv4)
	stripped, err := StripEndpoints(full)
	if err != nil {
		t.Fatal(err)
	}
	want := sliceOf("a", "cart-canary", "ruur", discoveryv1.AddressTypeIPv4)
	want.Annotations = nil
	delete(want.Labels, "more")
	for i := range want.Endpoints {
		want.Endpoints[i].Addresses, want.Endpoints[i].NodeName = nil, nil
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if len(full.Endpoints[0].Addresses) == 0 {
		t.Error("the slice that was handed in was changed")
	}
}

func TestOnlyAnotherNumberOfEndpointsBringsAReleaseBack(t *testing.T) {
	of := func(endpoints string) client.Object {
		return sliceOf("a", "cart-canary", endpoints, discoveryv1.AddressTypeIPv4)
	}
	r := New(Parts{})
	cart := types.NamespacedName{Namespace: of("").GetNamespace(), Name: "cart"}
	r.dependents.Set(cart, []watching.Thing{{Kind: EndpointsKind, Namespace: cart.Namespace, Name: "cart-canary"}})
	for name, tc := range map[string]struct {
		before, after client.Object
		want          bool
	}{
		"ready":                      {of("ru"), of("rr"), true},
		"unready":                    {of("rr"), of("ru"), true},
		"another one is ready":       {of("ru"), of("ur"), false},
		"one more that is not ready": {of("r"), of("ru"), false},
		"one more that ends":         {of("r"), of("rt"), false},
		"made, empty":                {nil, of(""), false},
		"made, unready":              {nil, of("u"), false},
		"made, ready":                {nil, of("ur"), true},
		"gone, unready":              {of("u"), nil, false},
		"gone, ready":                {of("ur"), nil, true},
	} {
		if got := len(r.Touched(t.Context(), EndpointsKind, tc.before, tc.after)) > 0; got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
