package controller

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/endpoints"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/istio"
	"github.com/serin-dev/serin/internal/traffic/nginx"
)

// clusterAtReleaseStart returns a cluster whose cart begins a release behind two routers, while endpoints are published late.
func clusterAtReleaseStart(t *testing.T, how func(*fakeCluster)) *fakeCluster {
	t.Helper()
	p := newFakeCluster(t, routedObjects...)
	p.configure(func(parts *Parts) {
		parts.Routers = traffic.Registry{Rollout: map[string]traffic.Renderer{"istio": istio.NewRollout(""), "nginx": nginx.NewRollout()}}
	})
	p.settle()
	p.unpublished = true
	how(p)
	p.edit(withImage("cart:2"))
	p.settle()
	return p
}

func TestTheFirstWeightWaitsForPublishedEndpoints(t *testing.T) {
	p := clusterAtReleaseStart(t, func(*fakeCluster) {})
	status := p.rollout().Status
	if status.Phase != argov1.RolloutPhaseProgressing || p.objectsContain("VirtualService", "testers") || p.objectsContain("VirtualService", "weight: 50") || status.Canary.Weights.Canary.Weight != 0 {
		t.Fatalf("the pods of the canary are not published, and it is %s, with weights %+v", status.Phase, status.Canary.Weights)
	}
	p.clock.Step(reconciler.ExplainAfter)
	p.settle()
	waits := slices.ContainsFunc(p.rollout().Status.Serin.Gates, func(g argov1.GateStatus) bool {
		return g.Name == "canary-endpoints" && g.Verdict == "wait" && g.Opener == "cluster" && strings.Contains(g.Message, "Service cart-canary.shop")
	})
	if !waits {
		t.Errorf("the status does not explain it: %+v", p.rollout().Status.Serin.Gates)
	}
	p.unpublished = false
	if !p.publish() {
		t.Fatal("nothing is published")
	}
	p.settle()
	if status := p.rollout().Status; status.Phase != argov1.RolloutPhasePaused || status.Canary.Weights.Canary.Weight != 50 || !p.objectsContain("VirtualService", "testers") {
		t.Errorf("they are published, and it is %s (%s), with weights %+v", status.Phase, status.Message, status.Canary.Weights)
	}
}

// A cache may show endpoints late, and an EndpointSlice may be deleted.
func TestLostEndpointsTakeNoTrafficAway(t *testing.T) {
	p := clusterWithTwoRouters(t)
	for _, name := range []string{"cart", "cart-canary"} {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name + "-abcde"}}
		if err := p.client.Delete(t.Context(), slice); err != nil {
			t.Fatal(err)
		}
	}
	p.unpublished = true
	p.settle()
	if status := p.rollout().Status; status.Canary.Weights.Canary.Weight != 50 || !p.objectsContain("VirtualService", "testers") || !p.objectsContain("Ingress", `canary-weight: "50"`) {
		t.Errorf("weights %+v", status.Canary.Weights)
	}
}

func TestNothingWaitsForEndpointsThatMayNotBeRead(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, "", nil)
	for name, how := range map[string]func(*fakeCluster){
		"found at the start": func(p *fakeCluster) {
			p.configure(func(parts *Parts) {
				parts.EndpointsUnread = "EndpointSlices may not be read, so nothing waits for them"
			})
		},
		"found now": func(p *fakeCluster) {
			p.replaceClient(interceptor.NewClient(p.client, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if _, is := list.(*discoveryv1.EndpointSliceList); is {
						return refused
					}
					return c.List(ctx, list, options...)
				},
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if status := clusterAtReleaseStart(t, how).rollout().Status; status.Phase != argov1.RolloutPhasePaused || status.Canary.Weights.Canary.Weight != 50 {
				t.Errorf("it is %s (%s), with weights %+v", status.Phase, status.Message, status.Canary.Weights)
			}
		})
	}
}

func TestEndpointsBringTheirRolloutBack(t *testing.T) {
	p := clusterWithTwoRouters(t)
	slice := func(pod string) *discoveryv1.EndpointSlice {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: "cart-canary-abcde", Labels: map[string]string{discoveryv1.LabelServiceName: "cart-canary"},
		}}
		slice.Endpoints = []discoveryv1.Endpoint{{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod}}}
		return slice
	}
	for _, tc := range []struct {
		name          string
		before, after string
		want          int
	}{
		{"another pod of the same ReplicaSet", "cart-1-aaaaa", "cart-1-bbbbb", 0},
		{"a pod of another ReplicaSet", "cart-1-aaaaa", "cart-2-aaaaa", 1},
	} {
		if got := p.reconciler.AffectedReleases(t.Context(), endpoints.Kind, slice(tc.before), slice(tc.after)); len(got) != tc.want {
			t.Errorf("%s: brings back %v", tc.name, got)
		}
	}
}
