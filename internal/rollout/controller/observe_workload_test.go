package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

const lender = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart-app, generation: 1, annotations: {owner: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: cart}}
  template: {metadata: {labels: {app: cart}}, spec: {containers: [{name: cart, image: "cart:1"}]}}
`

var lentCart = strings.NewReplacer(`  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: "cart:1"}]}
`, "  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: cart-app, scaleDown: onsuccess}\n").Replace(cart)

func lentCartWith(scaleDown argov1.ScaleDown) string {
	return strings.ReplaceAll(lentCart, string(argov1.ScaleDownOnSuccess), string(scaleDown))
}

func (p *fakeCluster) lender() (replicas int64, annotations map[string]string) {
	p.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(deploymentKind)
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "cart-app"}, found); err != nil {
		p.Fatal(err)
	}
	replicas, _, _ = unstructured.NestedInt64(found.Object, "spec", "replicas")
	return replicas, found.GetAnnotations()
}

// TestTheReplicasOfADeploymentAreRestored when the Rollout with its template is deleted, even if no process runs, or no longer
// refers to it; and the Deployment is scaled down again when a tool applies its manifest again. Whether all its replicas are removed
// at once or as the pods of the Rollout become ready makes no difference.
func TestTheReplicasOfADeploymentAreRestored(t *testing.T) {
	for name, leave := range map[string]func(*fakeCluster){
		"deleted": func(p *fakeCluster) {
			was := p.rollout()
			p.deleteRollout()
			p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
		},
		"deleted while no process runs": func(p *fakeCluster) { p.deleteRollout(); p.restart() },
		"the reference removed": func(p *fakeCluster) {
			p.edit(func(o *argov1.Rollout) {
				o.Spec.WorkloadRef = nil
				o.Spec.Template = corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "cart", Image: "cart:1"}}}}
				o.Spec.Template.Labels = map[string]string{"app": "cart"}
				o.Spec.Selector = selectorFor("cart")
			})
		},
	} {
		for _, scaleDown := range []argov1.ScaleDown{argov1.ScaleDownOnSuccess, argov1.ScaleDownProgressively} {
			t.Run(name+", "+string(scaleDown), func(t *testing.T) {
				p := newFakeCluster(t, lentCartWith(scaleDown), lender, cartService)
				p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
				p.settle()
				if replicas, _ := p.lender(); replicas != 0 {
					t.Fatalf("the Deployment has %d replicas", replicas)
				}
				p.changeImage("cart:2")
				for range 3 {
					p.settle()
				}
				p.promoteFully()
				p.settle()
				p.applyWorkload(3)
				p.settle()
				if replicas, _ := p.lender(); replicas != 0 {
					t.Fatalf("applied again at a later revision, the Deployment has %d replicas in addition to the Rollout", replicas)
				}
				leave(p)
				p.verifyLenderRestored(3)
			})
		}
	}
}

// TestAPartOfTheReplicasOfADeploymentIsRestored: the Rollout is deleted while only a part of its pods is ready. The Deployment, which
// lost as many replicas, gets them back.
func TestAPartOfTheReplicasOfADeploymentIsRestored(t *testing.T) {
	p := newFakeCluster(t, lentCartWith(argov1.ScaleDownProgressively), lender, cartService)
	p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
	p.edit(func(o *argov1.Rollout) { o.Spec.Replicas = new(int32(3)) })
	for ready := range int32(3) {
		for range 3 {
			if _, err := p.reconcile(); err != nil {
				t.Fatal(err)
			}
		}
		if replicas, _ := p.lender(); replicas != int64(3-ready) {
			t.Fatalf("next to %d of 3 pods of the Rollout, the Deployment has %d replicas", ready, replicas)
		}
		if ready < 2 {
			p.makeReady(ready + 1)
		}
	}
	was := p.rollout()
	p.deleteRollout()
	p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
	p.verifyLenderRestored(3)
}

// TestADeploymentIsRestoredToTheLargerNumberOfReplicas: to its own, although the Rollout has fewer by now, or to those of the Rollout.
// Its own are the most that it had while the Rollout referred to it: a user may have scaled it up before Serin scaled it down again.
func TestADeploymentIsRestoredToTheLargerNumberOfReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		rollout       int32
		applied, want int64
	}{
		"the Rollout has fewer":                            {rollout: 2, applied: 3, want: 3},
		"the Rollout has none":                             {rollout: 0, applied: 3, want: 3},
		"the Rollout has more":                             {rollout: 5, applied: 3, want: 5},
		"the Rollout has fewer, the Deployment applied 4":  {rollout: 2, applied: 4, want: 4},
		"the Rollout has fewer, the Deployment applied 1":  {rollout: 2, applied: 1, want: 3},
		"the Rollout has more than the Deployment applied": {rollout: 5, applied: 4, want: 5},
	} {
		for _, scaleDown := range []argov1.ScaleDown{argov1.ScaleDownOnSuccess, argov1.ScaleDownProgressively} {
			t.Run(name+", "+string(scaleDown), func(t *testing.T) {
				p := newFakeCluster(t, lentCartWith(scaleDown), lender, cartService)
				p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
				p.settle()
				p.edit(func(o *argov1.Rollout) { o.Spec.Replicas = &test.rollout })
				p.applyWorkload(test.applied)
				p.settle()
				if replicas, _ := p.lender(); replicas != 0 {
					t.Fatalf("the Deployment has %d replicas", replicas)
				}
				was := p.rollout()
				p.deleteRollout()
				p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
				p.verifyLenderRestored(test.want)
			})
		}
	}
}

// makeReady makes that many pods of the only ReplicaSet ready.
func (p *fakeCluster) makeReady(ready int32) {
	p.Helper()
	var all appsv1.ReplicaSetList
	if err := p.client.List(p.Context(), &all); err != nil {
		p.Fatal(err)
	}
	if len(all.Items) != 1 {
		p.Fatalf("there are %d ReplicaSets", len(all.Items))
	}
	rs := &all.Items[0]
	rs.Status = appsv1.ReplicaSetStatus{Replicas: *rs.Spec.Replicas, ReadyReplicas: ready, AvailableReplicas: ready, ObservedGeneration: rs.Generation}
	if err := p.client.Status().Update(p.Context(), rs); err != nil {
		p.Fatal(err)
	}
}

// verifyLenderRestored reconciles, and verifies that the Deployment has the wanted replicas and no trace of the Rollout.
func (p *fakeCluster) verifyLenderRestored(want int64) {
	p.Helper()
	for range 5 {
		if _, err := p.reconcile(); err != nil {
			p.Fatal(err)
		}
		p.startPods()
	}
	replicas, annotations := p.lender()
	if replicas != want || annotations[argov1.ManagedByAnnotation] != "" || annotations[argov1.ReplicasBeforeAnnotation] != "" || annotations["owner"] != "web" {
		p.Errorf("the Deployment has %d replicas and not %d, %v", replicas, want, annotations)
	}
}

// TestDeploymentsOfOthersAreNotVisited: a reconciliation lists the Deployments that carry the mark of its Rollout, by an index,
// however many others the namespace has.
func TestDeploymentsOfOthersAreNotVisited(t *testing.T) {
	p := newFakeCluster(t, lentCart, lender, cartService)
	p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
	var selected []string
	counting := interceptor.NewClient(p.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind().Kind == "DeploymentList" {
				given := (&client.ListOptions{}).ApplyOptions(options)
				selected = append(selected, fmt.Sprint(given.FieldSelector))
			}
			return c.List(ctx, list, options...)
		},
	})
	p.replaceClient(counting)
	p.reconciler.Applier.Client = counting
	p.settle()
	if len(selected) == 0 || slices.ContainsFunc(selected, func(s string) bool { return s != byManager+"=cart" }) {
		t.Errorf("lists of Deployments select %q", selected)
	}
}

// TestScaleDownNeverLeavesADeploymentAlone: with scaleDown never, Serin neither restores the replicas of the Deployment, which
// would serve in addition to those of the Rollout, nor removes those that its user adds. It restores them when the reference is
// removed.
func TestScaleDownNeverLeavesADeploymentAlone(t *testing.T) {
	for name, test := range map[string]struct{ applied, want int64 }{
		"the user does nothing": {0, 3}, "the user scales it up": {4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			p := newFakeCluster(t, lentCart, lender, cartService)
			p.configure(func(parts *Parts) { parts.MarkedKinds = parts.Routers.MarkedKinds() })
			p.settle()
			if replicas, _ := p.lender(); replicas != 0 {
				t.Fatalf("the Deployment has %d replicas", replicas)
			}
			p.edit(func(o *argov1.Rollout) { o.Spec.WorkloadRef.ScaleDown = argov1.ScaleDownNever })
			p.settle()
			if test.applied > 0 {
				p.applyWorkload(test.applied)
			}
			p.settle()
			if replicas, annotations := p.lender(); replicas != test.applied || annotations[argov1.ReplicasBeforeAnnotation] != "3" {
				t.Errorf("the Deployment has %d replicas, %v", replicas, annotations)
			}
			was := p.rollout()
			p.deleteRollout()
			p.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}, was, nil)
			for range 5 {
				if _, err := p.reconcile(); err != nil {
					t.Fatal(err)
				}
				p.startPods()
			}
			if replicas, annotations := p.lender(); replicas != test.want || annotations[argov1.ManagedByAnnotation] != "" || annotations[argov1.ReplicasBeforeAnnotation] != "" {
				t.Errorf("without the Rollout, the Deployment has %d replicas, %v", replicas, annotations)
			}
		})
	}
}

func selectorFor(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (p *fakeCluster) changeWorkload(how func(content map[string]any)) {
	p.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(deploymentKind)
	if err := p.client.Get(p.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "cart-app"}, found); err != nil {
		p.Fatal(err)
	}
	how(found.Object)
	found.SetGeneration(found.GetGeneration() + 1)
	if err := p.client.Update(p.Context(), found); err != nil {
		p.Fatal(err)
	}
}

func (p *fakeCluster) applyWorkload(replicas int64) {
	p.Helper()
	p.changeWorkload(func(content map[string]any) { _ = unstructured.SetNestedField(content, replicas, "spec", "replicas") })
}

func (p *fakeCluster) changeImage(image string) {
	p.Helper()
	p.changeWorkload(func(content map[string]any) {
		_ = unstructured.SetNestedSlice(content, []any{map[string]any{"name": "cart", "image": image}}, "spec", "template", "spec", "containers")
	})
}

// promoteFully skips what remains of a release.
func (p *fakeCluster) promoteFully() {
	p.Helper()
	object := p.rollout()
	object.Status.PromoteFull = true
	if err := p.client.Status().Update(p.Context(), object); err != nil {
		p.Fatal(err)
	}
}
