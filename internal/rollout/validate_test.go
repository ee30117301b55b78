package rollout

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// specOf returns a valid spec with changes in YAML.
func specOf(t *testing.T, text string) argov1.RolloutSpec {
	t.Helper()
	var spec argov1.RolloutSpec
	for _, part := range []string{`
selector: {matchLabels: {app: a}}
template: {metadata: {labels: {app: a}}, spec: {containers: [{name: a}]}}
`, text} {
		if err := yaml.UnmarshalStrict([]byte(part), &spec); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
	}
	return spec
}

func firstError(all field.ErrorList) string {
	if len(all) == 0 {
		return ""
	}
	return all[0].Error()
}

func TestValidate(t *testing.T) {
	for _, test := range []struct{ name, spec, want string }{
		{"fine", `strategy: {canary: {}}`, ""},
		{"replicas", `{replicas: -1, strategy: {canary: {}}}`, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
		{"minReadySeconds", `{minReadySeconds: -1, strategy: {canary: {}}}`, "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"history", `{revisionHistoryLimit: -1, strategy: {canary: {}}}`, "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"},
		{"deadline", `{progressDeadlineSeconds: -1, strategy: {canary: {}}}`, "spec.progressDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"deadline before ready", `{minReadySeconds: 600, strategy: {canary: {}}}`, "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"},
		{"no selector", `{selector: null, strategy: {canary: {}}}`, "spec.selector: Required value: Rollout has missing field '.spec.selector'"},
		{"empty selector", `{selector: {matchLabels: null}, strategy: {canary: {}}}`, "spec.selector: Invalid value: {}: empty selector is invalid for deployment"},
		{"bad selector", `{selector: {matchExpressions: [{key: a, operator: Near}]}, strategy: {canary: {}}}`, `spec.selector: Invalid value: {"matchLabels":{"app":"a"},"matchExpressions":[{"key":"a","operator":"Near"}]}: invalid label selector`},
		{"selector of others", `{selector: {matchLabels: {app: b}}, strategy: {canary: {}}}`, "spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"no pod", `{template: {spec: {containers: []}}, strategy: {canary: {}}}`, "spec.template.spec.containers: Required value"},
		{"no strategy", `{}`, "spec.strategy.strategy: Required value: Rollout has missing field '.spec.strategy.canary or .spec.strategy.blueGreen'"},
		{"nothing moves", `strategy: {canary: {maxSurge: 0, maxUnavailable: "0%"}}`, `spec.strategy.maxSurge: Invalid value: "0": MaxSurge and MaxUnavailable both can not be zero`},
		{"a default moves", `strategy: {canary: {maxSurge: 0}}`, ""},
		{"the other default moves", `strategy: {canary: {maxUnavailable: 0}}`, ""},
		{"one service", `strategy: {canary: {canaryService: a, stableService: a}}`, `spec.strategy.stableService: Invalid value: "a": This rollout uses the same service for the stable and canary services, but two different services are required.`},
		{"no stable service", `strategy: {canary: {canaryService: a, trafficRouting: {nginx: {}}}}`, `spec.strategy.stableService: Invalid value: "": Canary service and Stable service must to be set to use Traffic Routing`},
		{"no canary service", `strategy: {canary: {stableService: a, trafficRouting: {istio: {}}}}`, `spec.strategy.canaryService: Invalid value: "": Canary service and Stable service must to be set to use Traffic Routing`},
		{"subsets need no services", `strategy: {canary: {trafficRouting: {istio: {destinationRule: {name: a, canarySubsetName: b, stableSubsetName: c}}}}}`, ""},
		{"plugins need no services", `strategy: {canary: {trafficRouting: {plugins: {a: {}}}}}`, ""},
		{"ping-pong without ping", `strategy: {canary: {pingPong: {pingService: "", pongService: b}, trafficRouting: {istio: {}}}}`, `spec.strategy.pingPong.pingService: Invalid value: "": Ping service and Pong service must to be set to use Ping-Pong feature`},
		{"ping-pong without pong", `strategy: {canary: {pingPong: {pingService: a, pongService: ""}, trafficRouting: {istio: {}}}}`, `spec.strategy.pingPong.pongService: Invalid value: "": Ping service and Pong service must to be set to use Ping-Pong feature`},
		{"ping-pong with itself", `strategy: {canary: {pingPong: {pingService: a, pongService: a}, trafficRouting: {istio: {}}}}`, `spec.strategy.pingPong.pingService: Invalid value: "a": This rollout uses the same service for the ping and pong services, but two different services are required.`},
		{"ping-pong without a router", `strategy: {canary: {pingPong: {pingService: a, pongService: b}}}`, `spec.strategy.pingPong: Invalid value: "a": Ping-pong feature works with the ALB, Istio, and plugin-based traffic routers only`},
		{"ping-pong without a root", `strategy: {canary: {pingPong: {pingService: a, pongService: b}, trafficRouting: {alb: {servicePort: 80}}}}`, `spec.strategy.pingPong: Invalid value: "a": Root service field is required for the configuration with ALB and ping-pong feature enabled`},
		{"ping-pong", `strategy: {canary: {pingPong: {pingService: a, pongService: b}, trafficRouting: {alb: {servicePort: 80, rootService: c}}}}`, ""},
		{"delay without a router", `strategy: {canary: {scaleDownDelaySeconds: 5}}`, "spec.strategy.scaleDownDelaySeconds: Invalid value: 5: Canary scaleDownDelaySeconds can only be used with traffic routing"},
		{"dynamic without a router", `strategy: {canary: {dynamicStableScale: true}}`, "spec.strategy.dynamicStableScale: Invalid value: true: Canary dynamicStableScale can only be used with traffic routing"},
		{"dynamic with a delay", `strategy: {canary: {dynamicStableScale: true, scaleDownDelaySeconds: 0, trafficRouting: {plugins: {a: {}}}}}`, "spec.strategy.dynamicStableScale: Invalid value: true: Canary dynamicStableScale cannot be used with scaleDownDelaySeconds"},
		{"another total", `strategy: {canary: {canaryService: a, stableService: b, trafficRouting: {maxTrafficWeight: 1000, smi: {}}}}`, "spec.strategy.trafficRouting.maxTrafficWeight: Invalid value: 1000: Canary maxTrafficWeight in traffic routing only supported in Nginx and Plugins"},
		{"another total of a plugin", `strategy: {canary: {trafficRouting: {maxTrafficWeight: 1000, plugins: {a: {}}}, steps: [{setWeight: 1000}]}}`, ""},
		{"a total of nothing", `strategy: {canary: {trafficRouting: {maxTrafficWeight: 0, plugins: {a: {}}}}}`, "spec.strategy.trafficRouting.maxTrafficWeight: Invalid value: 0: must be at least 1: it is the sum of all weights"},
		{"many steps", `strategy: {canary: {steps: [` + strings.Repeat("{pause: {}}, ", 999) + `{pause: {}}]}}`, ""},
		{"too many steps", `strategy: {canary: {steps: [` + strings.Repeat("{pause: {}}, ", 1000) + `{pause: {}}]}}`, "spec.strategy.steps: Too many: 1001: must have at most 1000 items"},
		{"a step that is none", `strategy: {canary: {steps: [{setWeight: 1}, {}]}}`, `spec.strategy.steps[1]: Invalid value: "invalid": Step must have one of the following set: experiment, setWeight, setCanaryScale, plugin or pause`},
		{"a step that is two", `strategy: {canary: {steps: [{setWeight: 1, pause: {}}]}}`, `spec.strategy.steps[0]: Invalid value: "setWeight: 1": Step must have one of the following set: experiment, setWeight, setCanaryScale, plugin or pause`},
		{"a step that is two, one of which was never counted", `strategy: {canary: {steps: [{setWeight: 1, plugin: {name: a}}]}}`, ""},
		{"a weight below", `strategy: {canary: {steps: [{setWeight: -1}]}}`, "spec.strategy.steps[0].setWeight: Invalid value: -1: SetWeight needs to be between 0 and 100"},
		{"a weight above", `strategy: {canary: {steps: [{setWeight: 101}]}}`, "spec.strategy.steps[0].setWeight: Invalid value: 101: SetWeight needs to be between 0 and 100"},
		{"a pause of nothing", `strategy: {canary: {steps: [{pause: {duration: 0}}]}}`, ""},
		{"a pause below", `strategy: {canary: {steps: [{pause: {duration: -1}}]}}`, `spec.strategy.steps[0].pause.duration: Invalid value: "-1": Duration needs to be greater than 0`},
		{"a pause that cannot be read", `strategy: {canary: {steps: [{pause: {duration: soon}}]}}`, `spec.strategy.steps[0].pause.duration: Invalid value: "soon": Duration needs to be greater than 0`},
		{"scale without a router", `strategy: {canary: {steps: [{setCanaryScale: {replicas: 1}}]}}`, "spec.strategy.trafficRouting: Required value: SetCanaryScale requires TrafficRouting to be set"},
		{"header without a router", `strategy: {canary: {steps: [{setHeaderRoute: {name: a}}]}}`, `spec.strategy.steps[0].setHeaderRoute: Invalid value: "a": SetHeaderRoute requires TrafficRouting, supports Istio and ALB and Apisix`},
		{"header without routes", `strategy: {canary: {trafficRouting: {plugins: {a: {}}}, steps: [{setHeaderRoute: {name: a}}]}}`, "spec.strategy.trafficRouting.managedRoutes: Required value: Rollout has missing field 'spec.strategy.canary.trafficRouting.managedRoutes'"},
		{"header of another route", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: b}], plugins: {a: {}}}, steps: [{setHeaderRoute: {name: a}}]}}`, `spec.strategy.steps[0].setHeaderRoute.name: Invalid value: "a": Steps define a route that does not exist in spec.strategy.canary.trafficRouting.managedRoutes`},
		{"header taken away", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: a}], plugins: {a: {}}}, steps: [{setHeaderRoute: {name: a}}]}}`, ""},
		{"header of nothing", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: a}], plugins: {a: {}}}, steps: [{setHeaderRoute: {name: a, match: [{headerName: x, headerValue: {}}]}}]}}`, `spec.strategy.steps[0].setHeaderRoute.match[0].headerValue: Invalid value: {}: StringMatch value missed, match value must have one of the following: exact, regex, prefix`},
		{"header of two", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: a}], plugins: {a: {}}}, steps: [{setHeaderRoute: {name: a, match: [{headerName: x, headerValue: {exact: a, prefix: b}}]}}]}}`, `spec.strategy.steps[0].setHeaderRoute.match[0].headerValue: Invalid value: {"exact":"a","prefix":"b"}: StringMatch match value must have exactly one of the following: exact, regex, prefix`},
		{"header of ALB", `strategy: {canary: {canaryService: a, stableService: b, trafficRouting: {managedRoutes: [{name: a}], alb: {servicePort: 80}}, steps: [{setHeaderRoute: {name: a, match: [{headerName: x, headerValue: {prefix: b}}]}}]}}`, `spec.strategy.steps[0].setHeaderRoute.match[0].headerValue: Invalid value: {"prefix":"b"}: SetHeaderRoute match value invalid. ALB supports 'exact' value only`},
		{"mirror of ALB", `strategy: {canary: {canaryService: a, stableService: b, trafficRouting: {managedRoutes: [{name: a}], alb: {servicePort: 80}}, steps: [{setMirrorRoute: {name: a}}]}}`, `spec.strategy.steps[0].setMirrorRoute: Invalid value: "a": SetMirrorRoute requires TrafficRouting, supports Istio and Plugins`},
		{"mirror of no method", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: a}], plugins: {a: {}}}, steps: [{setMirrorRoute: {name: a, match: [{method: {}}]}}]}}`, `spec.strategy.steps[0].setMirrorRoute.match[0].method: Invalid value: {}: StringMatch value missed, match value must have one of the following: exact, regex, prefix`},
		{"mirror of two paths", `strategy: {canary: {trafficRouting: {managedRoutes: [{name: a}], plugins: {a: {}}}, steps: [{setMirrorRoute: {name: a, match: [{path: {exact: a, regex: b}}]}}]}}`, `spec.strategy.steps[0].setMirrorRoute.match[0].path: Invalid value: {"exact":"a","regex":"b"}: StringMatch match value must have exactly one of the following: exact, regex, prefix`},
		{"experiment with weight, no router", `strategy: {canary: {steps: [{experiment: {templates: [{name: a, specRef: canary, weight: 5}]}}]}}`, "spec.strategy.steps[0].experiment.templates[0].weight: Invalid value: 5: Experiment template weight cannot be set unless TrafficRouting is enabled"},
		{"experiment with weight, another router", `strategy: {canary: {canaryService: a, stableService: b, trafficRouting: {nginx: {}}, steps: [{experiment: {templates: [{name: a, specRef: canary, weight: 5}]}}]}}`, "spec.strategy.steps[0].experiment.templates[0].weight: Invalid value: 5: Experiment template weight is only available for TrafficRouting with SMI, ALB, Istio and Plugins at this time"},
		{"arguments of a step", `strategy: {canary: {steps: [{analysis: {args: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.spec}}}]}}]}}`, `spec.strategy.steps[0].analysis.args[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.spec": Analyses arguments must refer to valid object metadata supported by downwardAPI`},
		{"arguments beside the steps", `strategy: {canary: {analysis: {args: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.labels['']"}}}]}}}`, `spec.strategy.analysis.args[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.labels['']": Analyses arguments must refer to valid object metadata supported by downwardAPI`},
		{"arguments of metadata", `strategy: {canary: {analysis: {args: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a']"}}}, {name: b, valueFrom: {fieldRef: {fieldPath: status.phase}}}]}}}`, ""},
		{"two affinities", `strategy: {canary: {antiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: {weight: 1}, requiredDuringSchedulingIgnoredDuringExecution: {}}}}`, `spec.strategy.antiAffinity: Invalid value: {"preferredDuringSchedulingIgnoredDuringExecution":{"weight":1},"requiredDuringSchedulingIgnoredDuringExecution":{}}: AntiAffinity must have exactly one strategy listed`},
		{"no affinity", `strategy: {canary: {antiAffinity: {}}}`, `spec.strategy.antiAffinity: Invalid value: {}: AntiAffinity must have exactly one strategy listed`},
		{"weight of an affinity", `strategy: {blueGreen: {activeService: a, antiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: {weight: 101}}}}`, "spec.strategy.antiAffinity.preferredDuringSchedulingIgnoredDuringExecution.weight: Invalid value: 101: AntiAffinity weight must be between 1-100"},
		{"one service for both", `strategy: {blueGreen: {activeService: a, previewService: a}}`, `spec.strategy.activeService: Invalid value: "a": This rollout uses the same service for the active and preview services, but two different services are required.`},
		{"delays beyond history", `strategy: {blueGreen: {activeService: a, scaleDownDelayRevisionLimit: 11}}`, "spec.strategy.scaleDownDelayRevisionLimit: Invalid value: 11: This rollout's revision history limit can not be smaller than the rollout's scale down limit"},
		{"the first of many", `{replicas: -1, selector: null}`, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := firstError(Validate(specOf(t, test.spec), ReferencedWorkload{})); got != test.want {
				t.Errorf("\ngot  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestValidateTakesOneStrategyOnly(t *testing.T) {
	got := Validate(specOf(t, `strategy: {canary: {}, blueGreen: {activeService: a}}`), ReferencedWorkload{})
	if len(got) != 1 || got[0].Field != "spec.strategy.strategy" || got[0].Detail != "Multiple Strategies can not be listed" {
		t.Errorf("got %v", got)
	}
}

func TestValidateUsesTheTemplateOfTheReferencedWorkload(t *testing.T) {
	good := specOf(t, "")
	workload := ReferencedWorkload{Template: good.Template, Selector: good.Selector}
	ref := `{workloadRef: {apiVersion: apps/v1, kind: Deployment, name: app}, strategy: {canary: {}}`
	for _, test := range []struct {
		name, spec string
		workload   ReferencedWorkload
		want       string
	}{
		{"fine", ref + `, selector: null, template: {metadata: {labels: null}}}`, workload, ""},
		{"the user's own selector", ref + `, template: {metadata: {labels: null}}}`, workload, ""},
		{"a template as well", ref + `}`, workload, `spec.workloadRef: Invalid value: "app": template must be empty for workload reference rollout`},
		{
			"not found", ref + `, template: {metadata: {labels: null}}}`,
			ReferencedWorkload{Problem: `deployments.apps "shop/app" not found`},
			`spec.workloadRef: Invalid value: "app": deployments.apps "shop/app" not found`,
		},
		{
			"pods of others", ref + `, selector: {matchLabels: {app: b}}, template: {metadata: {labels: null}}}`, workload,
			"spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`",
		},
		{"no selector anywhere", ref + `, selector: null, template: {metadata: {labels: null}}}`, ReferencedWorkload{Template: workload.Template}, "spec.selector: Required value: Rollout has missing field '.spec.selector'"},
	} {
		if got := firstError(Validate(specOf(t, test.spec), test.workload)); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestValidateIsTotal(t *testing.T) {
	for _, spec := range []argov1.RolloutSpec{
		{},
		{Selector: &metav1.LabelSelector{}, Template: corev1.PodTemplateSpec{}},
		{Strategy: argov1.RolloutStrategy{Canary: &argov1.CanaryStrategy{Steps: []argov1.CanaryStep{{
			SetHeaderRoute: &argov1.SetHeaderRoute{Match: []argov1.HeaderRoutingMatch{{}}},
			SetMirrorRoute: &argov1.SetMirrorRoute{Match: []argov1.RouteMatch{{}}},
		}}, TrafficRouting: &argov1.RolloutTrafficRouting{Istio: &argov1.IstioTrafficRouting{}}}}},
	} {
		if got := Validate(spec, ReferencedWorkload{}); len(got) == 0 {
			t.Errorf("%+v is valid", spec)
		}
	}
}

func TestValidateServices(t *testing.T) {
	var strategy argov1.RolloutStrategy
	if err := yaml.UnmarshalStrict([]byte(`canary: {stableService: stable, canaryService: canary}`), &strategy); err != nil {
		t.Fatal(err)
	}
	fine := Service{Found: true, Selector: map[string]string{"app": "a", argov1.PodTemplateHashLabel: "x"}, ManagedBy: "cart"}
	for _, test := range []struct {
		name           string
		stable, canary Service
		want           string
	}{
		{"fine", fine, fine, ""},
		{"not there", Service{}, fine, `spec.strategy.canary.stableService: Invalid value: "stable": service "stable" not found`},
		{"of other pods", fine, Service{Found: true, Selector: map[string]string{"app": "b"}}, `spec.strategy.canary.canaryService: Invalid value: "canary": Service "canary" has unmatch label "app" in rollout`},
		{"of a label that pods lack", fine, Service{Found: true, Selector: map[string]string{"tier": ""}}, `spec.strategy.canary.canaryService: Invalid value: "canary": Service "canary" has unmatch label "tier" in rollout`},
		{"of another Rollout", Service{Found: true, ManagedBy: "other"}, fine, `spec.strategy.canary.stableService: Invalid value: "stable": Service "stable" is managed by another Rollout: other`},
	} {
		got := firstError(ValidateServices("cart", strategy, map[string]string{"app": "a"}, map[string]Service{"stable": test.stable, "canary": test.canary}))
		if got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestDurationsOfPauses(t *testing.T) {
	for text, want := range map[string]int64{"10": 10, `"10"`: 10, "10s": 10, "10m": 600, "10h": 36000, "1h30m": 5400, "1500ms": 1, "0": 0, "-5": -5, "-1s": -1} {
		if got, err := parsePauseSeconds(*amount(text)); err != nil || got != want {
			t.Errorf("%s: %d seconds (%v), want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"soon", `""`, "10d", "1e9"} {
		if got, err := parsePauseSeconds(*amount(text)); err == nil {
			t.Errorf("%s: %d seconds, want an error", text, got)
		}
	}
}

func TestTextsOfSteps(t *testing.T) {
	var steps []argov1.CanaryStep
	if err := yaml.UnmarshalStrict([]byte(`
- setWeight: 10
- pause: {}
- pause: {duration: 10}
- pause: {duration: 1h30m}
- experiment: {templates: []}
- analysis: {}
- setCanaryScale: {weight: 5}
- setCanaryScale: {matchTrafficWeight: true}
- setCanaryScale: {replicas: 3}
- plugin: {name: a}
- setHeaderRoute: {name: a}
- setMirrorRoute: {name: a}
- {}
`), &steps); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range steps {
		got = append(got, DescribeStep(step))
	}
	want := []string{
		"setWeight: 10", "pause", "pause: 10", "pause: 1h30m", "experiment", "analysis", "setCanaryScale{weight: 5}",
		"setCanaryScale{matchTrafficWeight: true}", "setCanaryScale{replicas: 3}", "plugin: a", "setHeaderRoute: a", "setMirrorRoute: a", "invalid",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}
