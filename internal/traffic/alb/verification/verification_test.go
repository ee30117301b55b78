package verification

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/alb/albtest"
)

const (
	canary = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/canary/c"
	stable = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/stable/s"
)

// shopRegion is a region whose second load balancer, of three, splits requests 20 to 80, on two listeners.
func shopRegion() *albtest.Region {
	shares := map[string]int{canary: 20, stable: 80}
	groups := []string{canary, stable}
	for i := range 25 { // more than one request for tags may name
		groups = slices.Insert(groups, 0, fmt.Sprintf("arn:other-%d", i))
	}
	return &albtest.Region{
		Balancers: []*albtest.Balancer{
			{ARN: "arn:lb/app/first/1", Name: "first", Host: "first.example.com"},
			{
				ARN: "arn:aws:elasticloadbalancing:eu-west-1:1:loadbalancer/app/shop/2", Name: "shop", Host: "Shop-1.eu-west-1.elb.amazonaws.com", Groups: groups,
				Listeners: [][]map[string]int{{{"arn:other-1": 1}, shares}, {shares}},
			},
			{ARN: "arn:lb/app/third/3", Name: "third", Host: "third.example.com"},
		},
		Tags: map[string]string{canary: "web/shop-cart-canary:80", stable: "web/shop-cart-stable:80"},
	}
}

// useRegion configures the process for a region.
func useRegion(t *testing.T, r *albtest.Region) {
	t.Helper()
	for name, value := range r.Serve(t) {
		t.Setenv(name, value)
	}
}

func queryOfWeight20() traffic.LoadBalancerQuery {
	return traffic.LoadBalancerQuery{Namespace: "web", Forwards: []traffic.Forward{{
		Ingress: "shop", Hosts: []string{"dualstack.shop-1.eu-west-1.elb.amazonaws.com"},
		Shares: []traffic.ServiceShare{{Service: "cart-canary", Port: "80", Weight: 20}, {Service: "cart-stable", Port: "80", Weight: 80}},
	}}}
}

var bindingList = schema.GroupVersionKind{Group: "elbv2.k8s.aws", Version: "v1beta1", Kind: "TargetGroupBindingList"}

func verifier(t *testing.T, objects ...client.Object) *Verifier {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(bindingList.GroupVersion().WithKind(bindingKind), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(bindingList, &unstructured.UnstructuredList{})
	return verifierOf(t, fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build())
}

func verifierOf(t *testing.T, cluster client.Reader) *Verifier {
	t.Helper()
	v, err := New(cluster, outbound.New(outbound.Policy{AllowLoopback: true}), Options{Tag: alb.DefaultResourceTag, BindingAPI: alb.DefaultBindingAPI})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func send(t *testing.T, v *Verifier, q traffic.LoadBalancerQuery) (traffic.LoadBalancerAnswer, release.Answer) {
	t.Helper()
	answer := v.Send(t.Context(), queryrunner.Key{}, release.Query{Request: q})
	detail, ok := answer.Detail.(traffic.LoadBalancerAnswer)
	if !ok {
		t.Fatalf("%+v has no detail", answer)
	}
	return detail, answer
}

func eventTexts(a traffic.LoadBalancerAnswer) string {
	var lines []string
	for _, e := range a.Events {
		lines = append(lines, e.Reason+": "+e.Message)
	}
	return strings.Join(lines, "\n")
}

func TestWeightsAreVerifiedAcrossPagesAndListeners(t *testing.T) {
	for _, size := range []int{1, 2, 100} {
		r := shopRegion()
		r.PageSize = size
		useRegion(t, r)
		got, answer := send(t, verifier(t), queryOfWeight20())
		if !got.Verified || answer.Outcome != release.Yes || eventTexts(got) != "TargetGroupVerified: Ingress shop: load balancer has cart-canary=20 cart-stable=80" {
			t.Fatalf("pages of %d: %+v", size, got)
		}
		want := argov1.ALBStatus{
			Ingress:           "shop",
			LoadBalancer:      argov1.AWSResourceRef{Name: "shop", ARN: r.Balancers[1].ARN, FullName: "app/shop/2"},
			CanaryTargetGroup: argov1.AWSResourceRef{Name: "targetgroup/canary/c", ARN: canary, FullName: "targetgroup/canary/c"},
			StableTargetGroup: argov1.AWSResourceRef{Name: "targetgroup/stable/s", ARN: stable, FullName: "targetgroup/stable/s"},
		}
		if !slices.Equal(got.Balancers, []argov1.ALBStatus{want}) {
			t.Errorf("pages of %d: got %+v, want %+v", size, got.Balancers, want)
		}
		if !strings.Contains(r.Signed, "AKIDEXAMPLE") || !strings.Contains(r.Signed, "/eu-west-1/elasticloadbalancing/") {
			t.Errorf("signed as %q", r.Signed)
		}
	}
}

// TestNetworkLoadBalancersAreNotCompared: the load balancer controller may create a network load balancer in front of that of an
// Ingress, and list both in its status.
func TestNetworkLoadBalancersAreNotCompared(t *testing.T) {
	r, q := shopRegion(), queryOfWeight20()
	r.Balancers = append(r.Balancers, &albtest.Balancer{ARN: "arn:lb/net/front/4", Name: "front", Host: "front.example.com", Type: "network", Groups: []string{"arn:front"}, Listeners: [][]map[string]int{{}}})
	useRegion(t, r)
	application := q.Forwards[0].Hosts[0]
	for _, hosts := range [][]string{{application, "front.example.com"}, {"front.example.com", application}} {
		q.Forwards[0].Hosts = hosts
		if got, _ := send(t, verifier(t), q); !got.Verified || len(got.Balancers) != 1 || got.Balancers[0].LoadBalancer.Name != "shop" {
			t.Errorf("hosts %v: %+v", hosts, got)
		}
	}
	q.Forwards[0].Hosts = []string{"front.example.com"}
	got, _ := send(t, verifier(t), q)
	if got.Verified || len(got.Balancers) > 0 || len(got.Events) != 1 || got.Events[0].Reason != reasonMissing || !strings.Contains(got.Reason, "only a network load balancer") {
		t.Errorf("without an application load balancer: %+v", got)
	}
}

func TestDifferencesAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*albtest.Region, *traffic.LoadBalancerQuery)
		want   string
	}{
		"one listener is late": {
			func(r *albtest.Region, _ *traffic.LoadBalancerQuery) {
				r.Balancers[1].Listeners[1] = []map[string]int{{canary: 0, stable: 100}}
			},
			"TargetGroupUnverified: Ingress shop: load balancer shop gives Service cart-canary weight 0, and 20 is wanted",
		},
		"no load balancer yet": {
			func(_ *albtest.Region, q *traffic.LoadBalancerQuery) { q.Forwards[0].Hosts = nil },
			"LoadBalancerNotFound: Ingress shop has no load balancer in its status yet",
		},
		"one of elsewhere": {
			func(_ *albtest.Region, q *traffic.LoadBalancerQuery) {
				q.Forwards[0].Hosts = []string{"elsewhere.example.com"}
			},
			"LoadBalancerNotFound: Ingress shop: AWS knows no load balancer elsewhere.example.com in this region",
		},
		"no right": {
			func(r *albtest.Region, _ *traffic.LoadBalancerQuery) {
				r.Refuse = map[string]string{"DescribeTags": "AccessDenied"}
			},
			"TargetGroupVerifyError: The weights of Ingress shop cannot be verified: AWS refuses DescribeTags (AccessDenied): allow the role of the controller elasticloadbalancing:DescribeTags\nWeightVerifyError: Failed to verify weight: The weights of Ingress shop cannot be verified: AWS refuses DescribeTags (AccessDenied): allow the role of the controller elasticloadbalancing:DescribeTags",
		},
		"too many calls": {
			func(r *albtest.Region, _ *traffic.LoadBalancerQuery) {
				r.Refuse = map[string]string{"DescribeRules": "Throttling"}
			},
			"TargetGroupVerifyError: The weights of Ingress shop cannot be verified: AWS refuses DescribeRules: Throttling\nWeightVerifyError: Failed to verify weight: The weights of Ingress shop cannot be verified: AWS refuses DescribeRules: Throttling",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, q := shopRegion(), queryOfWeight20()
			c.change(r, &q)
			useRegion(t, r)
			got, answer := send(t, verifier(t), q)
			if got.Verified || answer.Outcome != release.No || eventTexts(got) != c.want || !strings.HasSuffix(c.want, got.Reason) {
				t.Errorf("got %+v, want %s", got, c.want)
			}
		})
	}
}

// TestEveryIngressIsVerified: the second Ingress is verified although the first one differs, so that both are reported. A
// call that fails ends the verification.
func TestEveryIngressIsVerified(t *testing.T) {
	r, q := shopRegion(), queryOfWeight20()
	useRegion(t, r)
	first := q.Forwards[0]
	first.Ingress = "intranet"
	q.Forwards = []traffic.Forward{first, q.Forwards[0]}
	got, _ := send(t, verifier(t), q)
	if got.Verified || len(got.Balancers) != 2 || len(got.Events) != 2 || got.Events[0].Reason != reasonUnverified || got.Events[1].Reason != reasonVerified {
		t.Errorf("got %+v", got)
	}
	r.Refuse = map[string]string{"DescribeLoadBalancers": "Throttling"}
	if got, _ = send(t, verifier(t), q); got.Verified || len(got.Events) != 2 || got.Events[1].Reason != reasonWeight || got.Events[1].Message != "Failed to verify weight: "+got.Events[0].Message {
		t.Errorf("got %+v", got)
	}
}

func TestCallsThatFail(t *testing.T) {
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for name, c := range map[string]struct{ variable, value, want string }{
		"no server":      {"AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2", dead.URL, "AWS does not answer DescribeLoadBalancers: "},
		"no region":      {"AWS_REGION", "", "set AWS_REGION in the environment of the controller"},
		"no credentials": {"AWS_ACCESS_KEY_ID", "", "no credentials of the controller"},
	} {
		t.Run(name, func(t *testing.T) {
			useRegion(t, shopRegion())
			t.Setenv("AWS_DEFAULT_REGION", "")
			t.Setenv(c.variable, c.value)
			got, _ := send(t, verifier(t), queryOfWeight20())
			if got.Verified || got.Events[0].Reason != reasonError || !strings.Contains(got.Reason, c.want) {
				t.Errorf("got %+v", got)
			}
			if strings.Contains(got.Reason, "hush") || strings.Contains(got.Reason, "AKID") {
				t.Errorf("the reason contains a secret: %s", got.Reason)
			}
		})
	}
}

func queryOfPods() traffic.LoadBalancerQuery {
	return traffic.LoadBalancerQuery{Namespace: "web", Targets: []traffic.BackendTarget{{Service: "cart", Hash: "new", Pods: 1}}}
}

func boundObjects() []client.Object {
	pod := func(name, hash, ip string) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{"app": "cart", argov1.PodTemplateHashLabel: hash}},
			Status:     corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
	}
	binding := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"serviceRef": map[string]any{"name": "cart", "port": int64(80)}, "targetGroupARN": stable, "targetType": "ip",
	}}}
	binding.SetGroupVersionKind(bindingList.GroupVersion().WithKind(bindingKind))
	binding.SetNamespace("web")
	binding.SetName("k8s-cart")
	return []client.Object{
		pod("cart-new-1", "new", "10.0.0.1"), pod("cart-old-1", "old", "10.0.0.2"), binding,
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "cart"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "cart", argov1.PodTemplateHashLabel: "old"}, // as it was before
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		}},
	}
}

func TestTargetGroupsHaveThePodsOfTheNewRevision(t *testing.T) {
	for name, c := range map[string]struct {
		targets []albtest.Target
		want    string
	}{
		"healthy": {[]albtest.Target{{IP: "10.0.0.1", Port: 8080, State: "healthy"}}, "TargetGroupVerified: Service cart: its target groups have the pods of new"},
		"not yet": {[]albtest.Target{{IP: "10.0.0.2", Port: 8080, State: "healthy"}}, "TargetGroupUnverified: Service cart: the target group of TargetGroupBinding k8s-cart does not have 10.0.0.1 port 8080 yet"},
		"unhealthy": {
			[]albtest.Target{{IP: "10.0.0.1", Port: 8080, State: "unhealthy", Why: "Target.Timeout"}},
			"TargetGroupUnverified: Service cart: in the target group of TargetGroupBinding k8s-cart, 10.0.0.1 port 8080 is unhealthy (Target.Timeout) and not healthy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			useRegion(t, &albtest.Region{Targets: map[string][]albtest.Target{stable: c.targets}})
			if got, _ := send(t, verifier(t, boundObjects()...), queryOfPods()); eventTexts(got) != c.want {
				t.Errorf("got %s, want %s", eventTexts(got), c.want)
			}
		})
	}
}

func TestAServiceWithoutBindingsIsNotVerified(t *testing.T) {
	r := &albtest.Region{}
	useRegion(t, r)
	for name, objects := range map[string][]client.Object{"no binding": nil, "of nodes": boundObjects()} {
		if name == "of nodes" {
			objects[2].(*unstructured.Unstructured).Object["spec"].(map[string]any)["targetType"] = "instance"
		}
		if got, _ := send(t, verifier(t, objects...), queryOfPods()); !got.Verified || len(r.Calls) > 0 {
			t.Errorf("%s: got %+v, and AWS received %v", name, got, r.Calls)
		}
	}
}

func TestNoPodIsReady(t *testing.T) {
	useRegion(t, &albtest.Region{})
	objects := boundObjects()[1:]
	if got, _ := send(t, verifier(t, objects...), queryOfPods()); got.Verified || got.Reason != "Service cart: no pod of new is ready" {
		t.Errorf("got %+v", got)
	}
	none := queryOfPods()
	none.Targets[0].Pods = 0
	if got, _ := send(t, verifier(t, objects...), none); !got.Verified {
		t.Errorf("no pods are desired, but it waits for some: %+v", got)
	}
}

// failingReader fails all lists.
type failingReader struct {
	client.Reader
	err error
}

func (r failingReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return r.err
}

func TestBindingsThatCannotBeRead(t *testing.T) {
	useRegion(t, &albtest.Region{})
	resource := schema.GroupResource{Group: "elbv2.k8s.aws", Resource: "targetgroupbindings"}
	got, _ := send(t, verifierOf(t, failingReader{err: apierrors.NewForbidden(resource, "", nil)}), queryOfPods())
	if got.Verified || got.Reason != "The target groups of Service cart cannot be verified: the controller may not list TargetGroupBindings: give it that right" {
		t.Errorf("got %+v", got)
	}
	if got, _ = send(t, verifierOf(t, failingReader{err: apierrors.NewNotFound(resource, "")}), queryOfPods()); !got.Verified {
		t.Errorf("the cluster does not know the kind, but it waits: %+v", got)
	}
}
