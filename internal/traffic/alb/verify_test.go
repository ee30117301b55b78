package alb_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
	"github.com/serin-dev/serin/internal/traffic/traffictest"
)

const (
	arnCanary = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/canary/c"
	arnTrial  = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/trial/t"
	arnStable = "arn:aws:elasticloadbalancing:eu-west-1:1:targetgroup/stable/s"
)

func shop() alb.Balancer {
	return alb.Balancer{
		ARN: "arn:aws:elasticloadbalancing:eu-west-1:1:loadbalancer/app/shop/b", Name: "shop",
		Groups: []alb.Group{
			{ARN: "arn:other", Resource: "web/intranet-cart-canary:80"}, // another Ingress of the same load balancer
			{ARN: arnCanary, Name: "canary", Resource: "web/shop-cart-canary:80"},
			{ARN: arnTrial, Name: "trial", Resource: "web/shop-cart-trial:80"},
			{ARN: arnStable, Name: "stable", Resource: "web/shop-cart-stable:80"},
		},
		Rules: []alb.Rule{
			{},             // a redirect
			{arnStable: 1}, // a path of its own
			{arnCanary: 1}, // a header route
			{arnCanary: 20, arnTrial: 10, arnStable: 70},
			{arnCanary: 20, arnTrial: 10, arnStable: 70}, // of another listener
		},
	}
}

func wanted(canary, trial, stable int) traffic.Forward {
	return traffic.Forward{Ingress: "shop", Hosts: []string{"shop.example.com"}, Shares: []traffic.ServiceShare{
		{Service: "cart-canary", Port: "80", Weight: canary}, {Service: "cart-trial", Port: "80", Weight: trial}, {Service: "cart-stable", Port: "80", Weight: stable},
	}}
}

func TestAllSharesOfAllRulesAreVerified(t *testing.T) {
	late := shop()
	late.Rules[4] = alb.Rule{arnCanary: 10, arnStable: 90}
	unforwarded := shop()
	unforwarded.Rules = unforwarded.Rules[:3]
	ungrouped := shop()
	ungrouped.Groups = ungrouped.Groups[:3]
	for name, c := range map[string]struct {
		balancer alb.Balancer
		forward  traffic.Forward
		want     string
	}{
		"as wanted":              {shop(), wanted(20, 10, 70), ""},
		"another canary":         {shop(), wanted(40, 10, 50), "load balancer shop gives Service cart-canary weight 20, and 40 is wanted"},
		"another experiment":     {shop(), wanted(20, 0, 80), "load balancer shop gives Service cart-trial weight 10, and 0 is wanted"},
		"one listener is late":   {late, wanted(20, 10, 70), "load balancer shop gives Service cart-canary weight 10, and 20 is wanted"},
		"no rule of the release": {unforwarded, wanted(20, 10, 70), "no rule of load balancer shop forwards to Services cart-canary and cart-stable yet"},
		"no target group":        {ungrouped, wanted(20, 10, 70), "load balancer shop has no target group for web/shop-cart-stable:80 yet"},
		"no action":              {shop(), traffic.Forward{Ingress: "shop"}, "Ingress shop has no action with both Services yet"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.balancer.Unforwarded("web", c.forward); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestStatusHasTheNamesThatMetricsUse(t *testing.T) {
	got := shop().Status("web", wanted(20, 10, 70))
	want := argov1.ALBStatus{
		Ingress:           "shop",
		LoadBalancer:      argov1.AWSResourceRef{Name: "shop", ARN: "arn:aws:elasticloadbalancing:eu-west-1:1:loadbalancer/app/shop/b", FullName: "app/shop/b"},
		CanaryTargetGroup: argov1.AWSResourceRef{Name: "canary", ARN: arnCanary, FullName: "targetgroup/canary/c"},
		StableTargetGroup: argov1.AWSResourceRef{Name: "stable", ARN: arnStable, FullName: "targetgroup/stable/s"},
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func pod(name, ip string, ready bool) corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
		Status:     corev1.PodStatus{PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}},
	}
}

func TestAddressesAreThoseOfReadyPodsAtTheirOwnPort(t *testing.T) {
	terminating := pod("terminating", "10.0.0.3", true)
	terminating.DeletionTimestamp = &metav1.Time{}
	pods := []corev1.Pod{pod("a", "10.0.0.1", true), pod("b", "10.0.0.2", false), terminating}
	service := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "cart"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Name: "named", Port: 80, TargetPort: intstr.FromString("http")},
		{Name: "number", Port: 81, TargetPort: intstr.FromInt32(9090)},
		{Name: "same", Port: 82},
		{Name: "wrong", Port: 83, TargetPort: intstr.FromString("grpc")},
	}}}
	for port, want := range map[string]string{
		"80": "10.0.0.1 port 8080", "named": "10.0.0.1 port 8080", "81": "10.0.0.1 port 9090", "82": "10.0.0.1 port 82",
		"83": "error: pod a has no port grpc, to which Service cart leads", "84": "error: port 84 is none of Service cart",
	} {
		got, err := alb.Addresses(service, intstr.Parse(port), pods)
		switch {
		case err != nil && "error: "+err.Error() != want:
			t.Errorf("port %s: %v", port, err)
		case err == nil && !slices.Equal(got, []string{want}):
			t.Errorf("port %s: got %q, want %q", port, got, want)
		}
	}
}

func TestOnlyAHealthyAddressIsReached(t *testing.T) {
	binding := alb.Binding{Name: "cart"}
	address := alb.Address("10.0.0.1", 8080)
	for _, c := range []struct {
		target alb.Target
		want   string
	}{
		{alb.Target{Address: address, State: "healthy"}, ""},
		{alb.Target{Address: address, State: "unavailable", Why: "Target.HealthCheckDisabled"}, ""},
		{alb.Target{Address: address, State: "initial", Why: "Elb.RegistrationInProgress"}, "in the target group of TargetGroupBinding cart, 10.0.0.1 port 8080 is initial (Elb.RegistrationInProgress) and not healthy"},
		{alb.Target{Address: address, State: "draining"}, "in the target group of TargetGroupBinding cart, 10.0.0.1 port 8080 is draining and not healthy"},
		{alb.Target{Address: alb.Address("10.0.0.1", 8081), State: "healthy"}, "the target group of TargetGroupBinding cart does not have 10.0.0.1 port 8080 yet"},
	} {
		if got := alb.Unreached(binding, []string{address}, []alb.Target{c.target}); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.target, got, c.want)
		}
	}
}

func TestBindingsAreThoseOfPodsOfTheService(t *testing.T) {
	binding := func(name, service, kind string, port any) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"serviceRef": map[string]any{"name": service, "port": port}, "targetGroupARN": "arn:" + name, "targetType": kind,
		}}}
	}
	got := alb.BindingsOf("cart", []unstructured.Unstructured{
		binding("number", "cart", "ip", int64(80)), binding("name", "cart", "ip", "http"), binding("other", "basket", "ip", int64(80)),
		binding("nodes", "cart", "instance", int64(80)),
		{Object: map[string]any{}},
	})
	want := []alb.Binding{{Name: "number", ARN: "arn:number", Port: intstr.FromInt32(80)}, {Name: "name", ARN: "arn:name", Port: intstr.FromString("http")}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestReadReturnsTheSharesToVerify of the Ingresses, but only if verification is enabled.
func TestReadReturnsTheSharesToVerify(t *testing.T) {
	for _, verify := range []bool{false, true} {
		rollout := &argov1.Rollout{ObjectMeta: metav1.ObjectMeta{Name: "cart", Namespace: "web"}}
		rollout.Spec.Strategy.Canary = &argov1.CanaryStrategy{CanaryService: "cart-canary", StableService: "cart-stable", TrafficRouting: &argov1.RolloutTrafficRouting{
			ALB: &argov1.ALBTrafficRouting{Ingresses: []string{"shop"}, ServicePort: 80},
		}}
		router := traffic.Router{Name: "alb", Renderer: alb.NewRollout(alb.Options{VerifyTargetGroups: verify})}
		target := router.Target(rollout, "c", "s")
		ingress := traffictest.UsersIngress("web", "shop", "cart-stable", map[string]any{"name": "use-annotation"}, nil)
		ingress.Object["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"hostname": "shop.example.com"}}}}
		refs := router.Renderer.Refs(target, release.Route{}, nil)
		written, err := router.Renderer.Render(target, release.Route{Canary: 20, Others: []release.Destination{{Service: "cart-trial", Weight: 10}}}, traffic.Objects{{Ref: refs[0], Object: ingress}})
		if err != nil {
			t.Fatal(err)
		}
		seen, err := router.Renderer.Read(target, traffic.Objects{{Ref: refs[0], Object: written[0]}})
		if err != nil {
			t.Fatal(err)
		}
		if !verify {
			if seen.Forwards != nil {
				t.Errorf("shares to verify: %+v", seen.Forwards)
			}
			continue
		}
		if len(seen.Forwards) != 1 || seen.Forwards[0].Ingress != "shop" || !slices.Equal(seen.Forwards[0].Hosts, []string{"shop.example.com"}) ||
			!slices.Equal(seen.Forwards[0].Shares, wanted(20, 10, 70).Shares) {
			t.Errorf("shares to verify: %+v", seen.Forwards)
		}
	}
}
