package workload

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// testdata/services contains pod templates with spec.service, and the resulting apex Service; with existing, the updated Service.
// For invalid ports the output is the error, and a line with "warning:" precedes it for changes that Kubernetes does not permit.
func TestServices(t *testing.T) {
	datadriven.Walk(t, "testdata/services", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, data *datadriven.TestData) string {
			var in struct {
				Service  json.RawMessage `json:"service"`
				Template map[string]any  `json:"template"`
				Existing map[string]any  `json:"existing"`
			}
			must(t, yaml.Unmarshal([]byte(data.Input), &in))
			c := canaryOf("cart")
			c.Spec.RevertOnDeletion = data.HasArg("revert")
			must(t, json.Unmarshal(in.Service, &c.Spec.Service))
			template, _ := withIntegers(in.Template).(map[string]any)
			if problem := portProblem(c, "Deployment", template); problem != "" {
				return problem + "\n"
			}
			p := selectorPair{target: "cart", label: "app", value: "basket"}
			apex := desiredServices(c, p, true)[2]
			ports := servicePorts(c, template)
			if in.Existing == nil {
				return marshal(t, newService(c, p, apex, ports))
			}
			existing := &unstructured.Unstructured{Object: withIntegers(in.Existing).(map[string]any)}
			before := existing.DeepCopy()
			desired, warning := renderService(c, p, apex, ports, existing)
			if diff := cmp.Diff(before, existing); diff != "" {
				t.Errorf("the argument was changed:\n%s", diff)
			}
			again, _ := renderService(c, p, apex, ports, desired)
			if diff := cmp.Diff(desired, again); diff != "" {
				t.Errorf("rendering is not idempotent:\n%s", diff)
			}
			if warning != "" {
				warning = "warning: " + warning + "\n"
			}
			if cmp.Equal(existing, desired) {
				return warning + "unchanged\n"
			}
			return warning + marshal(t, desired)
		})
	})
}

func marshal(t *testing.T, obj *unstructured.Unstructured) string {
	t.Helper()
	text, err := yaml.Marshal(obj.Object)
	must(t, err)
	return string(text)
}

func TestThreeServicesSelectTheirPods(t *testing.T) {
	c := canaryOf("cart")
	c.Spec.Service.Name = "shop"
	got := map[string]string{}
	for _, each := range desiredServices(c, selectorPair{target: "cart", label: "app", value: "basket"}, true) {
		got[each.name] = each.selector["app"]
	}
	want := map[string]string{"shop": "basket-primary", "shop-primary": "basket-primary", "shop-canary": "basket"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnsureServicesWritesNothingTwice(t *testing.T) {
	w := newFakeCluster(t)
	w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
	w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
	for range 3 {
		must(t, w.workload.EnsureServices(t.Context(), w.canary("till"), true))
	}
	if diff := cmp.Diff(map[string]int{"create Service": 3}, w.requests); diff != "" {
		t.Error(diff)
	}
}

// TestObservationsTellWhatTheApexSelects: Serin lets it select the primary, until something else edits it.
func TestObservationsTellWhatTheApexSelects(t *testing.T) {
	w := newCartCluster(t)
	expect := func(when string, target, primary bool) {
		t.Helper()
		o := w.observe()
		if o.ApexSelectsTarget != target || o.ApexSelectsPrimary != primary {
			t.Errorf("%s: the Service selects the target: %t, want %t; the primary: %t, want %t", when, o.ApexSelectsTarget, target, o.ApexSelectsPrimary, primary)
		}
	}
	must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id", true))
	expect("without a Service", false, false)
	must(t, w.workload.EnsureServices(t.Context(), w.canary("cart"), true))
	expect("as Serin creates it", false, true)
	value, _, _ := unstructured.NestedString(podTemplate(w.object(deploymentKind, "cart")), "metadata", "labels", "app")
	for selector, want := range map[string]bool{
		fmt.Sprintf("{app: %s}", value):              true,
		fmt.Sprintf("{app: %s, tier: other}", value): false,
		"null": false, // without pods, or with endpoints that something else writes
	} {
		w.patchYAML(serviceKind, "cart", `{spec: {selector: null}}`)
		w.patchYAML(serviceKind, "cart", fmt.Sprintf("{spec: {selector: %s}}", selector))
		expect(selector, want, false)
	}
}

// TestObservationsTellWhetherServicesSelectOtherPods: with spec.service.name, they select the former primary after a change of
// spec.targetRef, until Serin moves them.
func TestObservationsTellWhetherServicesSelectOtherPods(t *testing.T) {
	w := newCartCluster(t)
	w.patchYAML(canaryGVK, "cart", `{spec: {service: {name: web}}}`)
	w.applyYAML(strings.NewReplacer("name: cart", "name: basket", "app: cart", "app: basket").Replace(cartTarget))
	expect := func(when string, want bool) {
		t.Helper()
		if got := w.observe().ServicesSelectOther; got != want {
			t.Errorf("%s: got %t, want %t", when, got, want)
		}
	}
	expect("without Services", false)
	must(t, w.workload.EnsureServices(t.Context(), w.canary("cart"), true))
	expect("as Serin creates them", false)
	w.patchYAML(canaryGVK, "cart", `{spec: {targetRef: {name: basket}}}`)
	expect("with another target", true)
	w.patchYAML(serviceKind, "web-primary", `{metadata: {ownerReferences: null}}`)
	expect("of the user", true)
	w.patchYAML(serviceKind, "web-primary", `{metadata: {ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: other, uid: u, controller: true}]}}`)
	expect("of another Canary, which blocks this one", false)
	w.patchYAML(serviceKind, "web-primary", `{metadata: {ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: `+string(w.canary("cart").UID)+`, controller: true}]}}`)
	must(t, w.workload.EnsureServices(t.Context(), w.canary("cart"), true))
	expect("moved", false)
}

// TestADeletionObservesWhetherTheServiceOfTheCanarySelectsOtherPods: a user deleted the Service, and another Canary with the same Services
// created it for its own target.
func TestADeletionObservesWhetherTheServiceOfTheCanarySelectsOtherPods(t *testing.T) {
	w := newCartCluster(t)
	expect := func(when string, deleting, want bool) {
		t.Helper()
		c := w.canary("cart")
		if deleting {
			c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		observed, err := w.workload.Observe(t.Context(), c)
		must(t, err)
		if got := observed.CanaryServiceSelectsOther; got != want {
			t.Errorf("%s: got %t, want %t", when, got, want)
		}
	}
	expect("without a Service", true, false)
	must(t, w.workload.EnsureServices(t.Context(), w.canary("cart"), true))
	expect("as Serin creates it", true, false)
	w.patchYAML(serviceKind, "cart-canary", `{spec: {selector: {app: basket}}}`)
	expect("with other pods", true, true)
	expect("with other pods, and no deletion", false, false)
	w.patchYAML(serviceKind, "cart-canary", `{spec: {selector: null}}`)
	expect("without a selector", true, false)
}

func TestServiceOfAnotherControllerIsRefused(t *testing.T) {
	w := newFakeCluster(t)
	w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
	w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
	w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: till-canary, ownerReferences: [{apiVersion: x/v1, kind: Mesh, name: m, uid: u, controller: true}]}, spec: {ports: [{port: 80}]}}`)
	err := w.workload.EnsureServices(t.Context(), w.canary("till"), false)
	expectRefused(t, err, ErrNotOwned, "Service till-canary.shop is controlled by Mesh m, so Serin does not change it: rename or delete it, or choose other names for Canary till")
}

func expectRefused(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !isKind(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("got  %s\nwant %s", err, text)
	}
}

// exceptWarnings returns the error of EnsureServices, unless it consists of warnings.
func exceptWarnings(err error) error {
	if _, ok := err.(*PartialServiceError); ok { //nolint:errorlint // it must not be wrapped
		return nil
	}
	return err
}

func TestHeadlessOfAnExistingServiceIsOnlyAWarning(t *testing.T) {
	w := newFakeCluster(t)
	w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
	w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
	w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: till-canary}, spec: {clusterIP: 10.0.0.1, selector: {app: x}, ports: [{port: 80}]}}`)
	w.patchYAML(flaggerv1.SchemeGroupVersion.WithKind("Canary"), "till", `{spec: {service: {headless: true}}}`)
	err := w.workload.EnsureServices(t.Context(), w.canary("till"), true)
	partial, ok := err.(*PartialServiceError) //nolint:errorlint // it must not be wrapped
	if !ok || len(partial.Messages) != 2 || !strings.Contains(partial.Messages[0], "service till-canary.shop is not headless") {
		t.Fatalf("got %v", err)
	}
	if w.object(serviceKind, "till") == nil {
		t.Error("the apex Service was not created")
	}
	if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till-canary").Object, "spec", "selector", "app"); got != "till" {
		t.Errorf("the selector is still %q", got)
	}
}

// TestReplacedSelectorsOfOtherPodsAreReportedOnce: not those of the target, which a release takes over by design.
func TestReplacedSelectorsOfOtherPodsAreReportedOnce(t *testing.T) {
	w := newFakeCluster(t)
	w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
	w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
	w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: till}, spec: {selector: {tier: other, app: shop}, ports: [{port: 80}]}}`)
	w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: till-canary}, spec: {selector: {app: till}, ports: [{port: 8080}]}}`)
	err := w.workload.EnsureServices(t.Context(), w.canary("till"), true)
	want := "took over service till.shop, which selected other pods: its selector was app=shop,tier=other, and is app=till-primary"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := w.workload.EnsureServices(t.Context(), w.canary("till"), true); err != nil {
		t.Errorf("reported again: %v", err)
	}
}

func TestPortsThatNoContainerDeclaresAreFound(t *testing.T) {
	template := parseObject(t, `{spec: {containers: [{name: app, ports: [{containerPort: 8080}, {containerPort: 8081}]}, {name: proxy, ports: [{containerPort: 9000}]}]}}`).Object
	undeclared := parseObject(t, `{spec: {containers: [{name: app}]}}`).Object
	const suffix = " is 9898, which is not a containerPort of Deployment cart (8080, 8081, 9000): check on which port the application listens"
	for _, test := range []struct {
		name     string
		port     int32
		target   *intstr.IntOrString
		template map[string]any
		want     string
	}{
		{"declared", 8081, nil, template, ""},
		{"of another container", 80, new(intstr.FromInt32(9000)), template, ""},
		{"by name", 80, new(intstr.FromString("http")), template, ""},
		{"nothing is declared", 9898, nil, undeclared, ""},
		{"port", 9898, nil, template, "spec.service.port" + suffix},
		{"target port", 80, new(intstr.FromInt32(9898)), template, "spec.service.targetPort" + suffix},
	} {
		c := canaryOf("cart")
		c.Spec.TargetRef.Kind = "Deployment"
		c.Spec.Service.Port, c.Spec.Service.TargetPort = test.port, test.target
		if got := portWarning(c, test.template); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestServicesAreRestored(t *testing.T) {
	const user = `{apiVersion: v1, kind: Service, metadata: {name: till, annotations: {note: mine}}, spec: {type: NodePort, selector: {app: till, tier: web}, ports: [{name: web, port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}, {name: old, port: 81, targetPort: 8081, nodePort: 30081, protocol: TCP}]}}`
	setup := func(t *testing.T, service string, revert bool) *fakeCluster {
		w := newFakeCluster(t)
		w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
		w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
		w.applyYAML(service)
		if revert {
			w.patchYAML(flaggerv1.SchemeGroupVersion.WithKind("Canary"), "till", `{spec: {revertOnDeletion: true}}`)
		}
		must(t, exceptWarnings(w.workload.EnsureServices(t.Context(), w.canary("till"), true)))
		if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till").Object, "spec", "selector", "app"); got != "till-primary" {
			t.Fatalf("the Service was not taken over: it selects %q", got)
		}
		return w
	}
	restore := func(t *testing.T, w *fakeCluster) {
		for range 2 { // every reconciliation repeats it until the Canary is gone
			must(t, w.workload.RestoreServices(t.Context(), w.canary("till")))
		}
	}
	t.Run("from the stored original", func(t *testing.T) {
		w := setup(t, user, true)
		must(t, exceptWarnings(w.workload.EnsureServices(t.Context(), w.canary("till"), true))) // must not replace the stored original
		restore(t, w)
		versions := w.versionsOf("Service/till")
		if diff := cmp.Diff(versions[0], versions[len(versions)-1]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("from kubectl's annotation", func(t *testing.T) {
		w := setup(t, strings.Replace(user, "note: mine", `kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"selector":{"app":"till","tier":"web"}}}'`, 1), false)
		restore(t, w)
		got, _, _ := unstructured.NestedStringMap(w.object(serviceKind, "till").Object, "spec", "selector")
		if diff := cmp.Diff(map[string]string{"app": "till", "tier": "web"}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("to the target, without a stored original", func(t *testing.T) {
		w := setup(t, user, false)
		restore(t, w)
		got, _, _ := unstructured.NestedStringMap(w.object(serviceKind, "till").Object, "spec", "selector")
		if diff := cmp.Diff(map[string]string{"app": "till"}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("not those of the Canary", func(t *testing.T) {
		w := setup(t, user, false)
		before := w.requests["patch Service"]
		restore(t, w)
		if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till-primary").Object, "spec", "selector", "app"); got != "till-primary" {
			t.Errorf("till-primary selects %q", got)
		}
		if got := w.requests["patch Service"] - before; got != 1 {
			t.Errorf("got %d patches, want 1", got)
		}
	})
}

// TestOnlyServicesThatWereTakenOverAreRestored: a Service may have other selectors, and kubectl's annotation an outdated one.
func TestOnlyServicesThatWereTakenOverAreRestored(t *testing.T) {
	const outdated = `annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"selector":{"app":"olddb"}}}'}`
	for name, test := range map[string]struct {
		service, selector, annotations string
		takenOver                      bool
	}{
		"a target with the suffix of a primary":    {"db-primary", "{app: db-primary}", "annotations: {}", true},
		"after an edit without kubectl apply":      {"db-primary", "{app: db-primary}", outdated, true},
		"the canary's, which selected the target":  {"db-primary-canary", "{app: db-primary}", outdated, true},
		"before the takeover":                      {"db-primary", "{app: db-primary}", "annotations: {}", false},
		"before the takeover, with outdated state": {"db-primary", "{app: db-primary}", outdated, false},
		"of other pods":                            {"db-primary", "{app: other-primary}", "annotations: {}", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFakeCluster(t)
			w.applyYAML(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: db-primary}, spec: {replicas: 1, selector: {matchLabels: {app: db-primary}}, template: {metadata: {labels: {app: db-primary}}, spec: {containers: [{name: s, image: "s:1"}]}}}}`)
			w.applyYAML(`{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: db}, spec: {revertOnDeletion: true, targetRef: {apiVersion: apps/v1, kind: Deployment, name: db-primary}, service: {port: 80}}}`)
			w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: ` + test.service + `, ` + test.annotations + `}, spec: {type: ClusterIP, selector: ` + test.selector + `, ports: [{name: web, port: 80, targetPort: 80, protocol: TCP}]}}`)
			if test.takenOver {
				must(t, exceptWarnings(w.workload.EnsureServices(t.Context(), w.canary("db"), true)))
			}
			for i := range 2 {
				must(t, w.workload.RestoreServices(t.Context(), w.canary("db")))
				versions := w.versionsOf("Service/" + test.service)
				if diff := cmp.Diff(versions[0], versions[len(versions)-1]); diff != "" {
					t.Errorf("after call %d:\n%s", i+1, diff)
				}
			}
		})
	}
}

func TestNamedTargetPortMustExist(t *testing.T) {
	c := canaryOf("cart")
	named := intstr.FromString("web")
	c.Spec.Service.TargetPort = &named
	template := podTemplate(parseObject(t, `{spec: {template: {spec: {containers: [{name: a, ports: [{name: http, containerPort: 1}]}]}}}}`))
	want := `spec.service.targetPort is "web", and no container of Deployment cart.shop has a port of that name: set the name of the port there, or its number in spec.service.targetPort`
	if got := portProblem(c, "Deployment", template); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestServicesOfOthersAreNotRestored: a Canary that another one or a conflict blocked, or that was deleted before its initialization,
// restores nothing that it has not changed.
func TestServicesOfOthersAreNotRestored(t *testing.T) {
	newShop := func(t *testing.T, selector string) *fakeCluster {
		w := newFakeCluster(t)
		w.apply(documentsOf(t, "testdata/cases/own-config/input/1-workload.yaml")[0])
		w.apply(documentsOf(t, "testdata/cases/own-config/input/9-canary.yaml")[0])
		w.patchYAML(flaggerv1.SchemeGroupVersion.WithKind("Canary"), "till", `{spec: {revertOnDeletion: true}}`)
		w.applyYAML(`{apiVersion: v1, kind: Service, metadata: {name: till}, spec: {type: ClusterIP, selector: {app: ` + selector + `}, ports: [{name: web, port: 80, targetPort: 80, protocol: TCP}]}}`)
		return w
	}
	expectUnchanged := func(t *testing.T, w *fakeCluster, c *flaggerv1.Canary) {
		t.Helper()
		before := w.object(serviceKind, "till")
		must(t, w.workload.RestoreServices(t.Context(), c))
		if diff := cmp.Diff(before, w.object(serviceKind, "till")); diff != "" {
			t.Error(diff)
		}
	}
	kiosk := func(w *fakeCluster) *flaggerv1.Canary { // names the Service of the other Canary
		w.applyYAML(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: kiosk}, spec: {replicas: 1, selector: {matchLabels: {app: kiosk}}, template: {metadata: {labels: {app: kiosk}}, spec: {containers: [{name: s, image: "s:1"}]}}}}`)
		w.applyYAML(`{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {name: kiosk}, spec: {revertOnDeletion: true, targetRef: {apiVersion: apps/v1, kind: Deployment, name: kiosk}, service: {name: till, port: 80}}}`)
		return w.canary("kiosk")
	}
	takeOver := func(t *testing.T, w *fakeCluster) {
		t.Helper()
		must(t, exceptWarnings(w.workload.EnsureServices(t.Context(), w.canary("till"), true)))
	}
	t.Run("taken over by another Canary", func(t *testing.T) {
		w := newShop(t, "till")
		takeOver(t, w)
		expectUnchanged(t, w, kiosk(w))
		must(t, w.workload.RestoreServices(t.Context(), w.canary("till")))
		if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till").Object, "spec", "selector", "app"); got != "till" {
			t.Errorf("its own Canary restored the selector %q", got)
		}
	})
	t.Run("taken over by another Canary of an earlier version", func(t *testing.T) {
		w := newShop(t, "till")
		takeOver(t, w)
		w.patchYAML(serviceKind, "till", `{metadata: {annotations: {serin.dev/original: '{"spec":{"selector":{"app":"till"}}}'}}}`)
		expectUnchanged(t, w, kiosk(w))
	})
	t.Run("selects a Deployment of the user with the name of the primary", func(t *testing.T) {
		w := newShop(t, "till-primary")
		w.applyYAML(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: till-primary}, spec: {replicas: 1, selector: {matchLabels: {app: till-primary}}, template: {metadata: {labels: {app: till-primary}}, spec: {containers: [{name: s, image: "s:1"}]}}}}`)
		expectUnchanged(t, w, w.canary("till"))
	})
	t.Run("selects the primary, as Flagger or its user left it", func(t *testing.T) {
		w := newShop(t, "till-primary")
		w.applyYAML(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: till-primary, ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: till, controller: true, uid: ` + string(w.canary("till").UID) + `}]}, spec: {replicas: 1, selector: {matchLabels: {app: till-primary}}, template: {metadata: {labels: {app: till-primary}}, spec: {containers: [{name: s, image: "s:1"}]}}}}`)
		must(t, w.workload.RestoreServices(t.Context(), w.canary("till")))
		if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till").Object, "spec", "selector", "app"); got != "till" {
			t.Errorf("it selects %q", got)
		}
	})
	t.Run("edited after the takeover", func(t *testing.T) {
		w := newShop(t, "till")
		takeOver(t, w)
		w.patchYAML(serviceKind, "till", `{spec: {selector: {app: typo}}}`)
		must(t, w.workload.RestoreServices(t.Context(), w.canary("till")))
		if got, _, _ := unstructured.NestedString(w.object(serviceKind, "till").Object, "spec", "selector", "app"); got != "till" {
			t.Errorf("it selects %q", got)
		}
	})
}
