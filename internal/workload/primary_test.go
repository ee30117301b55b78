package workload

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

func parseObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	var object map[string]any
	must(t, yaml.Unmarshal([]byte(text), &object))
	object, _ = withIntegers(object).(map[string]any)
	obj := &unstructured.Unstructured{Object: object}
	obj.SetNamespace(namespace)
	return obj
}

func canaryOf(target string) *flaggerv1.Canary {
	return &flaggerv1.Canary{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: target, UID: "canary"},
		Spec: flaggerv1.CanarySpec{
			TargetRef: flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target},
			Service:   flaggerv1.CanaryService{Port: 80},
		},
	}
}

// Each file of testdata/primary contains targets and their primaries.
//
//	create [prefixes=(a,b)] [labels=(x,y)] [tracked=(configmap/a)]   the created primary
//	promote …                                                        the primary that was last created, after a promotion
//	flagger …                                                         the template by Flagger's rules
func TestPrimaries(t *testing.T) {
	datadriven.Walk(t, "testdata/primary", func(t *testing.T, path string) {
		var last *unstructured.Unstructured
		datadriven.RunTest(t, path, func(t *testing.T, data *datadriven.TestData) string {
			target := parseObject(t, data.Input)
			before := target.DeepCopy()
			options := Options{ConfigTracking: true}
			tracked := map[string]bool{}
			for _, arg := range data.CmdArgs {
				switch arg.Key {
				case "prefixes":
					options.IncludePrefixes = arg.Vals
				case "labels":
					options.SelectorLabels = arg.Vals
				case "tracked":
					for _, key := range arg.Vals {
						tracked[key] = true
					}
				}
			}
			d := newTemplateWorkload(&Workloads{Options: options}, deployments{})
			if target.GetKind() == daemonSetKind.Kind {
				d = newTemplateWorkload(d.Workloads, daemonSets{})
			}
			p, problem := findSelectorPair(target, d.displayName(), options.selectorLabels())
			if problem == "" {
				problem = d.templateKind.problem(target)
			}
			if problem != "" {
				return problem + "\n"
			}
			c := canaryOf(target.GetName())
			var out any
			switch data.Cmd {
			case "create":
				last = d.newPrimary(c, target, p, primaryTemplate(d.templateKind.template(target), p, tracked, "id-1", serinRules), TemplateSource{})
				out = last.Object
			case "promote":
				last = d.promotedPrimary(c, last, target, p, primaryTemplate(d.templateKind.template(target), p, tracked, "id-2", serinRules), TemplateSource{})
				out = last.Object
			case "flagger":
				out = primaryTemplate(d.templateKind.template(target), p, tracked, "id-1", d.templateKind.kindNames().flaggerRules)
			default:
				t.Fatalf("unknown command %s", data.Cmd)
			}
			if diff := cmp.Diff(before, target); diff != "" {
				t.Errorf("the target was changed:\n%s", diff)
			}
			text, err := yaml.Marshal(out)
			must(t, err)
			return string(text)
		})
	})
}

func TestConfigRefsAreListedOnceInOrder(t *testing.T) {
	target := parseObject(t, `
spec:
  template:
    spec:
      imagePullSecrets: [{name: pull}]
      volumes:
      - {name: a, configMap: {name: files, optional: true}}
      - {name: b, projected: {sources: [{configMap: {name: env}}, {secret: {name: creds}}, {downwardAPI: {}}]}}
      - {name: c, secret: {secretName: certs, optional: true}}
      - {name: d, csi: {nodePublishSecretRef: {name: csi}}}
      initContainers: [{name: setup, envFrom: [{secretRef: {name: creds}}]}]
      containers:
      - name: server
        envFrom: [{configMapRef: {name: files}}]
        env: [{name: A, valueFrom: {secretKeyRef: {name: key, key: x}}}, {name: B, valueFrom: {configMapKeyRef: {name: opt, key: x, optional: true}}}, {name: C, value: plain}]
      ephemeralContainers: [{name: debug, envFrom: [{secretRef: {name: debug}}]}]
`)
	want := []ConfigRef{
		{Kind: "ConfigMap", Name: "files"}, // one mandatory reference makes it mandatory
		{Kind: "ConfigMap", Name: "env"},
		{Kind: "Secret", Name: "creds"},
		{Kind: "Secret", Name: "certs", Optional: true},
		{Kind: "Secret", Name: "key"},
		{Kind: "ConfigMap", Name: "opt", Optional: true},
	}
	if diff := cmp.Diff(want, ListConfigRefs(podTemplate(target))); diff != "" {
		t.Error(diff)
	}
	if got := ListConfigRefs(nil); len(got) != 0 {
		t.Errorf("a nil template has references %v", got)
	}
}

func TestPromotionKeepsReplicas(t *testing.T) {
	target := parseObject(t, `{metadata: {name: cart}, spec: {replicas: 0, selector: {matchLabels: {app: cart}}, template: {}}}`)
	primary := parseObject(t, `{metadata: {name: cart-primary}, spec: {replicas: 5, template: {}}}`)
	p, _ := findSelectorPair(target, "deployment", Options{}.selectorLabels())
	for _, test := range []struct {
		name     string
		replicas int64
		scaler   bool
		want     int64
	}{
		{"a target without pods", 0, false, 5},
		{"a target with pods", 3, false, 3},
		{"a target with an autoscaler", 3, true, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := canaryOf("cart")
			if test.scaler {
				c.Spec.AutoscalerRef = &flaggerv1.AutoscalerReference{Kind: "HorizontalPodAutoscaler", Name: "cart"}
			}
			mustSet(target.Object, test.replicas, "spec", "replicas")
			got := newTemplateWorkload(&Workloads{}, deployments{}).promotedPrimary(c, primary, target, p, map[string]any{}, TemplateSource{})
			if replicas := intOrDefault(got.Object, -1, "spec", "replicas"); replicas != test.want {
				t.Errorf("got %d, want %d", replicas, test.want)
			}
		})
	}
}

func TestSelectorLabel(t *testing.T) {
	target := parseObject(t, `{metadata: {name: cart}, spec: {selector: {matchLabels: {tier: web, name: basket, app.kubernetes.io/name: k}}}}`)
	p, problem := findSelectorPair(target, "deployment", Options{}.selectorLabels())
	if p.label != "name" || p.value != "basket" || problem != "" {
		t.Errorf("got %+v, %q", p, problem)
	}
	_, problem = findSelectorPair(parseObject(t, `{metadata: {name: cart}, spec: {selector: {matchLabels: {tier: web}}}}`), "deployment", Options{}.selectorLabels())
	if want := "getSelectorLabel failed: deployment cart.shop spec.selector.matchLabels must contain one of [app name app.kubernetes.io/name]: " +
		"add one of these labels to the selector and to the pods, or add a label of the selector to the controller's flag -selector-labels"; problem != want {
		t.Errorf("got  %s\nwant %s", problem, want)
	}
}

func TestKeysOfToolsAreNotCopied(t *testing.T) {
	source := map[string]string{}
	for key := range strings.FieldsSeq(`kustomize.toolkit.fluxcd.io/name argocd.argoproj.io/tracking-id meta.helm.sh/release-name
		kubectl.kubernetes.io/last-applied-configuration deployment.kubernetes.io/revision flagger.app/config-tracking
		serin.dev/original kapp.k14s.io/identity flagger-id`) {
		source[key] = "x"
	}
	source["reloader.stakater.com/auto"], source["note"] = "true", "mine"
	want := map[string]string{"reloader.stakater.com/auto": "true", "note": "mine"}
	if diff := cmp.Diff(want, copiedAnnotations(source)); diff != "" {
		t.Error(diff)
	}
	for prefixes, want := range map[string]int{"": 0, "note": 1, "*": 2, "argocd": 0} {
		if got := (Options{IncludePrefixes: strings.Split(prefixes, ",")}).copiedLabels(source); len(got) != want {
			t.Errorf("prefix %q: got %v, want %d", prefixes, got, want)
		}
	}
}
