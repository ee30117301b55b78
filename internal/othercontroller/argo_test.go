package othercontroller

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestArgoRolloutsIsRecognised(t *testing.T) {
	for _, tt := range []struct {
		name  string
		image string
		args  []string
		want  bool
	}{
		{"by its image", "quay.test/argoproj/argo-rollouts:v1.9.0@sha256:00", nil, true},
		{"by its flags", "registry.test/our-rollouts:7", []string{"--rollout-resync=300"}, true},
		{"Serin, with the same flags", "serin:v1", []string{"controller", "--rollout-resync=300"}, false},
		{"Serin under another name", "tools/release", []string{"controller", "--rollout-resync=300"}, false},
		{"its dashboard", "quay.test/argoproj/kubectl-argo-rollouts:v1.9.0", []string{"dashboard"}, false},
		{"Flagger", "flagger:1.44", []string{"-mesh-provider=istio"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := deployment(tt.image, tt.args...)
			if _, got := DetectArgoRollouts(d); got != tt.want {
				t.Errorf("got %v", got)
			}
			raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
			if err != nil {
				t.Fatal(err)
			}
			if containers, _, _ := unstructured.NestedSlice(raw, "spec", "template", "spec", "containers"); tt.want && !MayRunArgoRollouts(containers) {
				t.Error("MayRunArgoRollouts must be true")
			}
		})
	}
}

func TestAnArgoRolloutsActsOnItsInstanceOnly(t *testing.T) {
	now := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	lease := func(name, holder string) coordinationv1.Lease {
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "argo", Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now}},
		}
	}
	argo := func(args ...string) []Controller {
		return []Controller{{Namespace: "argo", Name: "rollouts", Args: args, Ready: 1}}
	}
	stopped := func() []Controller { return []Controller{{Namespace: "argo", Name: "rollouts"}} }
	for _, tt := range []struct {
		name        string
		id          string
		deployments []Controller
		leases      []coordinationv1.Lease
		want        bool
	}{
		{"none", "", nil, nil, false},
		{"no ID", "", argo(), nil, true},
		{"the same ID", "a", argo("--instance-id", "a"), nil, true},
		{"another ID", "a", argo("--instance-id=b"), nil, false},
		{"namespaced, of another namespace", "", argo("--namespaced"), nil, false},
		{"explicitly not namespaced", "", argo("--namespaced=false"), nil, true},
		{"a lease without a Deployment", "", nil, []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "x_1")}, false},
		{"its lease, held by terminating pods", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "rollouts-7_1")}, true},
		{"its lease, held by another pod", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "x_1")}, false},
		{"the lease of another ID", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock-b", "rollouts-7_1")}, false},
		{"the lease of a namespaced one of another namespace", "", argo("--namespaced"), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "rollouts-7_1")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signs := Scope{}.ArgoRolloutsSigns("shop", tt.id, tt.deployments, tt.leases, now)
			if (len(signs) > 0) != tt.want {
				t.Errorf("got %+v", signs)
			}
		})
	}
}
