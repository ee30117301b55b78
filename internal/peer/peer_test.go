package peer

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func deployment(image string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "flagger-system", Name: "flagger"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{
		{Image: "proxy:v1"},
		{Image: image, Args: args, Env: []corev1.EnvVar{{Name: "NAMESPACE", Value: "shop"}}},
	}
	return d
}

func TestFlaggerAndSerinAreToldApart(t *testing.T) {
	for _, tt := range []struct {
		name           string
		of             *appsv1.Deployment
		flagger, serin bool
	}{
		{"by its image", deployment("registry.test:5000/mirror/flagger:1.44.0@sha256:00", "-log-level=info"), true, false},
		{"by its flags", deployment("registry.test/our-canaries:7", "-mesh-provider=istio"), true, false},
		{"by flags with two dashes and a value of their own", deployment("tools/x", "--enable-config-tracking", "false"), true, false},
		{"Serin, with Flagger's flags", deployment("serin:v1", "controller", "-mesh-provider=istio"), false, true},
		{"Serin under another name", deployment("tools/release", "controller", "-mesh-provider=istio"), false, false},
		{"a load tester", deployment("ghcr.test/flagger-loadtester:0.38", "-log-level=info"), false, false},
		{"a load tester of the same name", deployment("flagger:1.44", "loadtester"), false, false},
		{"a load tester that is Serin", deployment("serin:v1", "loadtester"), false, false},
		{"a tool with the word in its arguments", deployment("tools/x", "mesh-provider"), false, false},
		{"anything else", deployment("nginx:1", "-namespace=x"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tt.of)
			if err != nil {
				t.Fatal(err)
			}
			if containers, _, _ := unstructured.NestedSlice(raw, "spec", "template", "spec", "containers"); tt.flagger && !Possible(containers) {
				t.Error("overlooked by the quick look")
			}
			if _, is := Flagger(tt.of); is != tt.flagger {
				t.Errorf("taken for Flagger: %v, want %v", is, tt.flagger)
			}
			if _, is := Serin(tt.of); is != tt.serin {
				t.Errorf("taken for Serin: %v, want %v", is, tt.serin)
			}
		})
	}
}

func TestAControllerOfOneNamespaceWatchesThatOneOnly(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"-namespace="}, true},
		{[]string{"-namespace=shop"}, true},
		{[]string{"--namespace", "shop"}, true},
		{[]string{"-namespace=$(NAMESPACE)"}, true},
		{[]string{"-namespace=web"}, false},
		{[]string{"-leader-election-namespace=web"}, true},
		{[]string{"-log-level", "info", "-namespace", "web"}, false},
	} {
		c, ok := Flagger(deployment("flagger:1.44", tt.args...))
		if !ok {
			t.Fatalf("%v: not recognised", tt.args)
		}
		if got := c.Watches("shop"); got != tt.want {
			t.Errorf("%v watches namespace shop: %v, want %v", tt.args, got, tt.want)
		}
	}
}

func TestSignsOfALivingPeer(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	controller := func(ready int32, args ...string) Controller {
		return Controller{Namespace: "flagger-system", Name: "flagger", Args: args, Ready: ready}
	}
	lease := func(holder string, ago time.Duration) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "flagger-system", Name: Lease},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(60)), RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
			},
		}
	}
	ready := "Deployment flagger of namespace flagger-system has ready pods"
	held := "Lease flagger-leader-election of namespace flagger-system is held by flagger-7d9f-x2_1"
	for _, tt := range []struct {
		name   string
		seen   []Controller
		leases []coordinationv1.Lease
		want   Sign
	}{
		{name: "nothing"},
		{"ready pods", []Controller{controller(1)}, nil, Sign{Text: ready}},
		{"no ready pods", []Controller{controller(0)}, nil, Sign{}},
		{"ready pods for another namespace", []Controller{controller(1, "-namespace=web")}, nil, Sign{}},
		{"one of two", []Controller{controller(0), controller(1, "-namespace=shop")}, nil, Sign{Text: ready}},
		{"a lease, just renewed", nil, []coordinationv1.Lease{lease("flagger-7d9f-x2_1", 0)}, Sign{held, now.Add(65 * time.Second)}},
		{"a lease, nearly over", nil, []coordinationv1.Lease{lease("flagger-7d9f-x2_1", 64*time.Second)}, Sign{held, now.Add(time.Second)}},
		{"a lease that is over", nil, []coordinationv1.Lease{lease("flagger-7d9f-x2_1", 65*time.Second)}, Sign{}},
		{"a lease that was given back", nil, []coordinationv1.Lease{lease("", 0)}, Sign{}},
		{"a lease of nobody", nil, []coordinationv1.Lease{{}}, Sign{}},
		{
			"a lease of a Deployment that is scaled to zero",
			[]Controller{controller(0)},
			[]coordinationv1.Lease{lease("flagger-7d9f-x2_1", 0)},
			Sign{held, now.Add(65 * time.Second)},
		},
		{
			"a lease of a Deployment for another namespace",
			[]Controller{controller(1, "-namespace=web")},
			[]coordinationv1.Lease{lease("flagger-7d9f-x2_1", 0)},
			Sign{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Acting("shop", tt.seen, tt.leases, now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
