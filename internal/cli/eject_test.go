package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/clitest"
	"github.com/serin-dev/serin/internal/cli/cluster"
)

// TestEject ejects Canary cart, whose Service and route Serin created. In the test data, cluster creates it in a state, run executes
// a command line while a controller does its part, and show prints the objects that clients depend on, or with the argument pods the
// metadata of the pods of Deployment web. With the argument idle, the controller does nothing.
func TestEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *clitest.FakeCluster
		datadriven.RunTest(t, "testdata/eject", func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				w = newEjectCluster(t, d)
				return ""
			case "run":
				return runEject(t, w, strings.Fields(d.Input), !d.HasArg("idle"))
			case "show":
				if d.HasArg("pods") {
					template := w.Deployment("web").Spec.Template
					return fmt.Sprintf("labels %v, annotations %v\n", template.Labels, template.Annotations)
				}
				return showEjected(t, w)
			default:
				d.Fatalf(t, "unknown command")
				return ""
			}
		})
	})
}

func newEjectCluster(t *testing.T, d *datadriven.TestData) *clitest.FakeCluster {
	t.Helper()
	manifest := clitest.FlaggerCart
	if d.HasArg("web") {
		manifest = clitest.WebRollout + webServices
		if d.HasArg("roles") {
			manifest += roleService
		}
	}
	if !d.HasArg("stopped") {
		manifest += clitest.SerinDeployment
	}
	if d.HasArg("flagger") {
		manifest += clitest.FlaggerDeployment
	}
	w := clitest.NewFakeCluster(t, manifest)
	if d.HasArg("web") {
		prepareWeb(t, d, w)
		return w
	}
	c := w.Canary("cart")
	w.Change(c, func() {
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "phase":
				c.Status.Phase = flaggerv1.CanaryPhase(arg.Vals[0])
			case "suspended":
				c.Spec.Suspend = true
			case "reverts":
				c.Spec.RevertOnDeletion = true
				c.Finalizers = []string{"finalizer.flagger.app"}
			case "blocked":
				c.Spec.Service.Port = 0
			case "provider":
				c.Spec.Provider = arg.Vals[0]
			}
		}
	})
	if d.HasArg("image") {
		target := w.Deployment("cart")
		w.Change(target, func() { target.Spec.Template.Spec.Containers[0].Image = "cart:3" })
	}
	for _, arg := range d.CmdArgs {
		if arg.Key == "forbidden" {
			w.Forbid(arg.Vals...)
		}
	}
	return w
}

// webServices are a Service that Serin manages for Rollout web, with its endpoints, and an autoscaler.
const webServices = `
---
apiVersion: v1
kind: Service
metadata: {name: web-stable, namespace: shop, annotations: {argo-rollouts.argoproj.io/managed-by-rollouts: web}}
spec: {selector: {app: web, rollouts-pod-template-hash: new}, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-stable-1, namespace: shop, labels: {kubernetes.io/service-name: web-stable}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}, {addresses: [10.0.0.2], conditions: {ready: true}}, {addresses: [10.0.0.3], conditions: {ready: true}}, {addresses: [10.0.0.4], conditions: {ready: true}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web}}`

// roleService is a Service that selects the stable pods of Rollout web by the metadata of their role, with its endpoints.
const roleService = `
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web, role: stable}, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}, {addresses: [10.0.0.2], conditions: {ready: true}}, {addresses: [10.0.0.3], conditions: {ready: true}}, {addresses: [10.0.0.4], conditions: {ready: true}}]`

// prepareWeb sets the state of Rollout web.
func prepareWeb(t *testing.T, d *datadriven.TestData, w *clitest.FakeCluster) {
	t.Helper()
	r := w.Rollout("web")
	w.Change(r, func() {
		r.Spec.Strategy = argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{StableService: "web-stable"}}
		s := &r.Status
		s.PauseConditions, s.ControllerPause, s.StableRS, s.CurrentStepIndex = nil, false, "new", nil
		s.Phase, s.Message = argov1.RolloutPhaseHealthy, ""
		for _, arg := range d.CmdArgs {
			switch arg.Key {
			case "aborted":
				s.StableRS, s.Phase = "old", argov1.RolloutPhaseDegraded
			case "paused":
				r.Spec.Paused = true
			case "roles":
				r.Spec.Strategy.Canary.StableMetadata = &argov1.PodTemplateMetadata{Labels: map[string]string{"role": "stable"}, Annotations: map[string]string{"team": "shop"}}
			case "referring":
				r.Spec.WorkloadRef = &argov1.ObjectRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
			}
		}
	})
	if d.HasArg("referring") {
		workload := &appsv1.Deployment{}
		workload.Namespace, workload.Name = "shop", "web"
		workload.Spec = appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: r.Spec.Selector, Template: r.Spec.Template}
		if err := w.Admin.Create(t.Context(), workload); err != nil {
			t.Fatal(err)
		}
		w.Change(r, func() { r.Spec.Selector, r.Spec.Template = nil, corev1.PodTemplateSpec{} })
	}
	w.ScaleReplicaSet("web-new", 4, 4)
	if !d.HasArg("draining") {
		w.ScaleReplicaSet("web-old", 0, 0)
	}
	if d.HasArg("unavailable") {
		w.ScaleReplicaSet("web-new", 4, 0)
	}
	if d.HasArg("occupied") {
		other := &appsv1.Deployment{}
		other.Namespace, other.Name = "shop", "web"
		if err := w.Admin.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
}

// actForWeb does what the controllers do for Rollout web that is ejected, step by step.
func actForWeb(ctx context.Context, w *clitest.FakeCluster) error {
	key := client.ObjectKey{Namespace: "shop", Name: "web"}
	var d appsv1.Deployment
	if err := w.Admin.Get(ctx, key, &d); err != nil {
		return client.IgnoreNotFound(err)
	}
	if replicas := ptr.Deref(d.Spec.Replicas, 0); d.Status.AvailableReplicas < replicas {
		d.Status.AvailableReplicas++
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ObservedGeneration = replicas, replicas, d.Generation
		return w.Admin.Status().Update(ctx, &d)
	}
	var service corev1.Service
	if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web-stable"}, &service); err != nil {
		return err
	}
	var r argov1.Rollout
	if err := w.Admin.Get(ctx, key, &r); err != nil {
		return client.IgnoreNotFound(err)
	}
	if r.Spec.Strategy.Canary.StableService == "" && service.Annotations != nil {
		service.Annotations = nil
		delete(service.Spec.Selector, argov1.PodTemplateHashLabel)
		return w.Admin.Update(ctx, &service)
	}
	var slices discoveryv1.EndpointSliceList
	if err := w.Admin.List(ctx, &slices); err != nil {
		return err
	}
	for i := range slices.Items {
		slice := &slices.Items[i]
		if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: slice.Labels[discoveryv1.LabelServiceName]}, &service); err != nil {
			return err
		}
		if labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) && len(slice.Endpoints) < 8 {
			slice.Endpoints = append(slice.Endpoints, slice.Endpoints...)
			return w.Admin.Update(ctx, slice)
		}
	}
	return nil
}

// runEject runs a command line, and optionally the part of the controller.
func runEject(t *testing.T, w *clitest.FakeCluster, args []string, controller bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var acting sync.WaitGroup
	defer acting.Wait()
	defer cancel()
	if controller {
		acting.Go(func() { actAsController(ctx, t, w) })
	}
	root := &cobra.Command{Use: "serin", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(newCommands(func(*connection, controllerFlags) (*cluster.Session, string, error) { return w.Session, "shop", nil })...)
	var out, notes bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&notes)
	code := Run(ctx, root, args, &notes)
	text := out.String()
	for line := range strings.SplitSeq(strings.TrimSuffix(notes.String(), "\n"), "\n") {
		if line != "" {
			text += "! " + line + "\n"
		}
	}
	return text + fmt.Sprintf("exit %d\n", code)
}

// actAsController does what the controller does for a Canary that is ejected, step by step. The playground tests the real one.
func actAsController(ctx context.Context, t *testing.T, w *clitest.FakeCluster) {
	for ctx.Err() == nil {
		time.Sleep(2 * time.Second) // in the synctest bubble
		var c flaggerv1.Canary
		if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &argov1.Rollout{}); err == nil {
			if err := actForWeb(ctx, w); err != nil && ctx.Err() == nil {
				t.Errorf("act as the controllers: %v", err)
			}
			continue
		}
		if err := w.Admin.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "cart"}, &c); err != nil {
			return
		}
		const finalizer = "finalizer.flagger.app"
		hasFinalizer := slices.Contains(c.Finalizers, finalizer)
		switch {
		case c.DeletionTimestamp != nil && c.Status.Phase == flaggerv1.CanaryPhaseTerminating:
			c.Finalizers = nil
		case c.DeletionTimestamp != nil:
			c.Status.Phase = flaggerv1.CanaryPhaseTerminating
			c.Status.Serin.Gates = []flaggerv1.GateStatus{{Name: "target-ready", Verdict: "wait", Message: "Deployment cart.shop not ready: 1 of 2 updated replicas are available"}}
		case c.Spec.Suspend:
			c.Status.Serin = &flaggerv1.SerinStatus{Gates: []flaggerv1.GateStatus{{Name: "suspended", Verdict: "wait"}}}
		case c.Spec.RevertOnDeletion && !hasFinalizer:
			c.Finalizers = append(c.Finalizers, finalizer)
		default:
			continue
		}
		if err := w.Admin.Update(ctx, &c); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
			t.Errorf("act as the controller: %v", err)
		}
	}
}

// showEjected prints what determines whether cart serves after the deletion of the Canary.
func showEjected(t *testing.T, w *clitest.FakeCluster) string {
	t.Helper()
	out := "Canary: deleted\n"
	var canaries flaggerv1.CanaryList
	if err := w.Admin.List(t.Context(), &canaries); err != nil {
		t.Fatal(err)
	}
	for _, c := range canaries.Items {
		out = fmt.Sprintf("Canary: revertOnDeletion %v, suspend %v\n", c.Spec.RevertOnDeletion, c.Spec.Suspend)
	}
	out += "Deployment: image " + w.Deployment("cart").Spec.Template.Spec.Containers[0].Image + "\n"
	key := client.ObjectKey{Namespace: "shop", Name: "cart"}
	for _, object := range []client.Object{&corev1.Service{}, &gatewayv1.HTTPRoute{}} {
		if err := w.Admin.Get(t.Context(), key, object); err != nil {
			t.Fatal(err)
		}
		out += fmt.Sprintf("%T: %d owners", object, len(object.GetOwnerReferences()))
		if original := object.GetAnnotations()["serin.dev/original"]; original != "" {
			text, err := yaml.JSONToYAML([]byte(original))
			if err != nil {
				t.Fatal(err)
			}
			out += ", original:\n  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ")
		}
		out += "\n"
	}
	return out
}

// An ejection that ends at any of its writes continues when it is run again.
func TestAnInterruptedEjectionContinues(t *testing.T) {
	const writes = 6
	for failing := range writes {
		synctest.Test(t, func(t *testing.T) {
			w := clitest.NewFakeCluster(t, clitest.FlaggerCart+clitest.SerinDeployment)
			target, c := w.Deployment("cart"), w.Canary("cart")
			w.Change(target, func() { target.Spec.Template.Spec.Containers[0].Image = "cart:3" })
			w.Change(c, func() { c.Status.Phase = flaggerv1.CanaryPhaseFailed })
			ctx, cancel := context.WithCancel(t.Context())
			var acting sync.WaitGroup
			defer acting.Wait()
			defer cancel()
			acting.Go(func() { actAsController(ctx, t, w) })
			number := 0
			count := func() error {
				number++
				if number == failing+1 {
					return errors.New("connection lost")
				}
				return nil
			}
			w.Session.Client = interceptor.NewClient(w.Session.Client, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
					return errors.Join(count(), c.Patch(ctx, object, patch, options...)) // written, but its response is lost
				},
				Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
					if err := count(); err != nil {
						return err
					}
					return c.Delete(ctx, object, options...)
				},
			})
			if got := runEject(t, w, []string{"eject", "cart", "--yes"}, false); !strings.Contains(got, "run the command again to continue\nexit 6") {
				t.Errorf("write %d: %s", failing+1, got)
			}
			if got := runEject(t, w, []string{"eject", "cart", "--yes"}, false); !strings.HasSuffix(got, "exit 0\n") {
				t.Errorf("after write %d: %s", failing+1, got)
			}
			if got := showEjected(t, w); !strings.HasPrefix(got, "Canary: deleted\nDeployment: image cart:2\n*v1.Service: 0 owners, original:") {
				t.Errorf("after write %d: %s", failing+1, got)
			}
			if number < writes {
				t.Errorf("an ejection has %d writes, the test expects %d", number, writes)
			}
		})
	}
}

func TestEjectAsksForConfirmation(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "": false, "\n": false} {
		w := clitest.NewFakeCluster(t, clitest.FlaggerCart+clitest.SerinDeployment)
		ejection, err := w.Session.Eject(t.Context(), "shop", cluster.Name{Name: "cart"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		e := ejectCommand{ejection: ejection, session: w.Session, out: &out}
		proceed, err := e.confirm(t.Context(), strings.NewReader(answer), false, false)
		if proceed != want || want != (err == nil) {
			t.Errorf("answer %q: proceed %v, error %v", answer, proceed, err)
		}
		if !strings.HasSuffix(out.String(), "Continue? [y/N] ") {
			t.Errorf("got %s", out.String())
		}
	}
}

// A tool that applies the Canary again must not let the ejection look complete.
func TestACanaryThatIsCreatedAgainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := clitest.NewFakeCluster(t, clitest.FlaggerCart+clitest.SerinDeployment)
		ejection, err := w.Session.Eject(t.Context(), "shop", cluster.Name{Name: "cart"})
		if err != nil {
			t.Fatal(err)
		}
		c := w.Canary("cart")
		if err := w.Admin.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		c.UID, c.ResourceVersion = "another", ""
		if err := w.Admin.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		e := ejectCommand{ejection: ejection, session: w.Session, out: &bytes.Buffer{}}
		if err := e.run(t.Context(), 0); ExitCode(err) != ExitUserAction || !strings.Contains(err.Error(), "it was created again after its deletion") {
			t.Errorf("got %v", err)
		}
	})
}
