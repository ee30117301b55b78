package othercontroller

import (
	"fmt"
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

func TestFlaggerAndSerinAreDistinguished(t *testing.T) {
	for _, tt := range []struct {
		name           string
		deployment     *appsv1.Deployment
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
		{"a dashboard", deployment("serin:v1", "dashboard", "--auth=token"), false, false},
		{"a demo", deployment("serin:v1", "/ko-app/serin", "demo-app"), false, false},
		{"a program with its path", deployment("serin:v1", "/ko-app/serin", "controller"), false, true},
		{"a tool with the word in its arguments", deployment("tools/x", "mesh-provider"), false, false},
		{"anything else", deployment("nginx:1", "-namespace=x"), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(tt.deployment)
			if err != nil {
				t.Fatal(err)
			}
			if containers, _, _ := unstructured.NestedSlice(raw, "spec", "template", "spec", "containers"); tt.flagger && !MayRunFlagger(containers) {
				t.Error("MayRunFlagger must be true")
			}
			if _, detected := DetectFlagger(tt.deployment); detected != tt.flagger {
				t.Errorf("detected as Flagger: %v, want %v", detected, tt.flagger)
			}
			if _, detected := DetectSerin(tt.deployment); detected != tt.serin {
				t.Errorf("detected as Serin: %v, want %v", detected, tt.serin)
			}
		})
	}
}

func TestAControllerOfOneNamespaceWatchesOnlyThatNamespace(t *testing.T) {
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
		c, ok := DetectFlagger(deployment("flagger:1.44", tt.args...))
		if !ok {
			t.Fatalf("%v: not recognised", tt.args)
		}
		if got := c.WatchesNamespace("shop"); got != tt.want {
			t.Errorf("%v watches namespace shop: %v, want %v", tt.args, got, tt.want)
		}
	}
}

func TestSignsOfARunningController(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	controller := func(ready int32, args ...string) Controller {
		return Controller{Namespace: "flagger-system", Name: "flagger", ServiceAccount: "flagger", Args: args, Ready: ready}
	}
	const holder = "flagger-7d9f-x2_1"
	lease := func(holder string, ago time.Duration, seconds int32) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "flagger-system", Name: FlaggerLeaseName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: now.Add(-ago)},
			},
		}
	}
	leases := func(all ...coordinationv1.Lease) []coordinationv1.Lease { return all }
	otherNamespace := lease(holder, 0, 60)
	otherNamespace.Namespace = "web"
	ready := Sign{Text: "Deployment flagger of namespace flagger-system has ready pods"}
	heldFor := func(remaining time.Duration) Sign {
		return Sign{Text: "Lease flagger-leader-election of namespace flagger-system is held by " + holder, Until: now.Add(remaining)}
	}
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name        string
		scope       []string
		controllers []Controller
		leases      []coordinationv1.Lease
		want        Sign
	}{
		{name: "nothing"},
		{"ready pods, without a lease", nil, []Controller{controller(1)}, nil, ready},
		{"no ready pods", nil, []Controller{controller(0)}, nil, Sign{}},
		{"ready pods for another namespace", nil, []Controller{controller(1, "-namespace=web")}, nil, Sign{}},
		{"one of two", nil, []Controller{controller(0), controller(1, "-namespace=shop")}, nil, ready},
		{"a lease without a Deployment", nil, nil, leases(lease(holder, 0, 60)), Sign{}},
		{"a lease of terminating pods, just renewed", nil, []Controller{controller(0)}, leases(lease(holder, 0, 60)), heldFor(65 * time.Second)},
		{"shortly before its expiry", nil, []Controller{controller(0)}, leases(lease(holder, 64*time.Second, 60)), heldFor(time.Second)},
		{"expired", nil, []Controller{controller(0)}, leases(lease(holder, 65*time.Second, 60)), Sign{}},
		{"released", nil, []Controller{controller(0)}, leases(lease("", 0, 60)), Sign{}},
		{"without a holder", nil, []Controller{controller(0)}, leases(coordinationv1.Lease{}), Sign{}},
		{"held by another pod", nil, []Controller{controller(0)}, leases(lease("mallory", 0, 60)), Sign{}},
		{"in another namespace than its Deployment", nil, []Controller{controller(0)}, leases(otherNamespace), Sign{}},
		{"of a Deployment for another namespace", nil, []Controller{controller(0, "-namespace=web")}, leases(lease(holder, 0, 60)), Sign{}},
		{"for seventy years", nil, []Controller{controller(0)}, leases(lease(holder, 0, 1<<31-1)), heldFor(125 * time.Second)},
		{"for seventy years, an hour ago", nil, []Controller{controller(0)}, leases(lease(holder, time.Hour, 1<<31-1)), Sign{}},
		{"renewed two hundred years from now", nil, []Controller{controller(0)}, leases(lease(holder, -200*year, 60)), Sign{}},
		{"renewed by a clock that is a little ahead", nil, []Controller{controller(0)}, leases(lease(holder, -30*time.Second, 60)), heldFor(95 * time.Second)},
		{"with a negative duration", nil, []Controller{controller(0)}, leases(lease(holder, 0, -60)), Sign{}},
		{"a configured namespace", []string{"flagger-system"}, []Controller{controller(1)}, nil, ready},
		{"not a configured namespace", []string{"istio-system"}, []Controller{controller(1)}, leases(lease(holder, 0, 60)), Sign{}},
		{"a lease without a Deployment in a configured namespace", []string{"flagger-system"}, nil, leases(lease(holder, 0, 60)), heldFor(65 * time.Second)},
		{"a lease in a configured namespace, of a Deployment for another", []string{"flagger-system"}, []Controller{controller(1, "-namespace=web")}, leases(lease(holder, 0, 60)), Sign{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			scope := Scope{Namespaces: tt.scope}
			var got Sign
			if all := scope.FlaggerSigns("shop", tt.controllers, tt.leases, now); len(all) > 0 {
				got = all[0].Sign
				if scope.IsTrusted(all[0]) != (len(tt.scope) > 0) {
					t.Errorf("trusted: %v", scope.IsTrusted(all[0]))
				}
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestTheAccountsOfOneNamespaceAreLimited(t *testing.T) {
	var controllers []Controller
	for i := range 1000 {
		controllers = append(controllers, Controller{Namespace: "mallory", Name: fmt.Sprintf("flagger-%d", i), ServiceAccount: fmt.Sprintf("a-%d", i%500), Ready: 1})
	}
	controllers = append(controllers, Controller{Namespace: "zz-flagger", Name: "flagger", ServiceAccount: "flagger", Ready: 1})
	all := Scope{}.FlaggerSigns("shop", controllers, nil, time.Now())
	if len(all) != maxAccountsPerNamespace+1 || all[maxAccountsPerNamespace].Account != (Account{"zz-flagger", "flagger"}) {
		t.Errorf("got %+v", all)
	}
}
