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
				t.Error("overlooked by the quick look")
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
		{"nobody", "", nil, nil, false},
		{"one without an id", "", argo(), nil, true},
		{"one with the same id", "a", argo("--instance-id", "a"), nil, true},
		{"one with another id", "a", argo("--instance-id=b"), nil, false},
		{"one of another namespace", "", argo("--namespaced"), nil, false},
		{"one that says it is not", "", argo("--namespaced=false"), nil, true},
		{"its lease alone", "", nil, []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "x_1")}, false},
		{"its lease, held by pods that are going", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "rollouts-7_1")}, true},
		{"its lease, held by nobody of it", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "x_1")}, false},
		{"the lease of another id", "", stopped(), []coordinationv1.Lease{lease("argo-rollouts-controller-lock-b", "rollouts-7_1")}, false},
		{"the lease of one of another namespace", "", argo("--namespaced"), []coordinationv1.Lease{lease("argo-rollouts-controller-lock", "rollouts-7_1")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signs := Scope{}.ArgoRolloutsSigns("shop", tt.id, tt.deployments, tt.leases, now)
			if (len(signs) > 0) != tt.want {
				t.Errorf("got %+v", signs)
			}
		})
	}
}
