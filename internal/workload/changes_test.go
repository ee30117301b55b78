package workload

import (
	"testing"
)

func TestOnlyObservedFieldsCountAsAChange(t *testing.T) {
	const (
		deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, uid: a, resourceVersion: "1", generation: 2, labels: {app: cart}, annotations: {deployment.kubernetes.io/revision: "1", note: mine}, managedFields: [{manager: kubectl}]}
spec: {replicas: 2}
status:
  observedGeneration: 2
  replicas: 2
  updatedReplicas: 2
  readyReplicas: 1
  availableReplicas: 1
  unavailableReplicas: 1
  conditions: [{type: Available, status: "False"}, {type: Progressing, status: "True", reason: ReplicaSetUpdated, message: at work}]
`
		scaler    = `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: cart, resourceVersion: "1"}, spec: {minReplicas: 2}, status: {currentReplicas: 2}}`
		keda      = `{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: cart, resourceVersion: "1"}, spec: {triggers: []}, status: {lastActiveTime: "1"}}`
		agent     = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, generation: 2, annotations: {deprecated.daemonset.template.generation: "1"}}, status: {observedGeneration: 2, desiredNumberScheduled: 3, numberAvailable: 2, numberUnavailable: 1, conditions: []}}`
		revision  = `{apiVersion: serving.knative.dev/v1, kind: Revision, metadata: {name: fn-00001, resourceVersion: "1"}, status: {actualReplicas: 1, conditions: [{type: Ready, status: Unknown}]}}`
		service   = `{apiVersion: v1, kind: Service, metadata: {name: cart, resourceVersion: "1"}, spec: {selector: {app: cart}}, status: {loadBalancer: {}}}`
		route     = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: cart}, status: {parents: []}}`
		condition = `{type: Available, status: "True"}`
	)
	for _, c := range []struct {
		name, object, patch string
		want                bool
	}{
		{"a resync", deployment, `{}`, false},
		{"the version alone", deployment, `{metadata: {resourceVersion: "2"}}`, false},
		{"who wrote it", deployment, `{metadata: {managedFields: []}}`, false},
		{"the count of templates", deployment, `{metadata: {annotations: {deployment.kubernetes.io/revision: "2"}}}`, false},
		{"another condition", deployment, `{status: {conditions: [` + condition + `, {type: Progressing, reason: ReplicaSetUpdated}]}}`, false},
		{"the words of a condition", deployment, `{status: {conditions: [{type: Progressing, reason: ReplicaSetUpdated, message: still}]}}`, false},
		{"unavailable replicas", deployment, `{status: {unavailableReplicas: 3}}`, false},
		{"a new spec", deployment, `{metadata: {generation: 3}, spec: {replicas: 3}}`, true},
		{"a label", deployment, `{metadata: {labels: {app: other}}}`, true},
		{"an annotation", deployment, `{metadata: {annotations: {note: ours}}}`, true},
		{"an owner", deployment, `{metadata: {ownerReferences: [{uid: b}]}}`, true},
		{"a deletion", deployment, `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, true},
		{"another object of the name", deployment, `{metadata: {uid: b}}`, true},
		{"the observed generation", deployment, `{status: {observedGeneration: 3}}`, true},
		{"replicas", deployment, `{status: {replicas: 3}}`, true},
		{"updated replicas", deployment, `{status: {updatedReplicas: 3}}`, true},
		{"ready replicas", deployment, `{status: {readyReplicas: 2}}`, true},
		{"available replicas", deployment, `{status: {availableReplicas: 2}}`, true},
		{"no status", deployment, `{status: null}`, true},
		{"a rollout that is given up", deployment, `{status: {conditions: [{type: Progressing, reason: ProgressDeadlineExceeded}]}}`, true},

		{"what an autoscaler sees", scaler, `{metadata: {resourceVersion: "2"}, status: {currentReplicas: 3}}`, false},
		{"what an autoscaler may do", scaler, `{spec: {minReplicas: 3}}`, true},
		{"when KEDA last looked", keda, `{metadata: {resourceVersion: "2"}, status: {lastActiveTime: "2"}}`, false},
		{"what KEDA asks", keda, `{spec: {triggers: [{type: cron}]}}`, true},
		{"that KEDA is paused", keda, `{metadata: {annotations: {autoscaling.keda.sh/paused-replicas: "0"}}}`, true},
		{"nothing of a DaemonSet", agent, `{metadata: {annotations: {deprecated.daemonset.template.generation: "2"}}, status: {numberUnavailable: 0, conditions: [` + condition + `]}}`, false},
		{"a pod of a DaemonSet", agent, `{status: {numberAvailable: 3}}`, true},
		{"a node for a DaemonSet", agent, `{status: {desiredNumberScheduled: 4}}`, true},
		{"the spec of a DaemonSet", agent, `{metadata: {generation: 3}}`, true},
		{"the pods of a revision", revision, `{metadata: {resourceVersion: "2"}, status: {actualReplicas: 2}}`, false},
		{"that a revision is ready", revision, `{status: {conditions: [{type: Ready, status: "True"}]}}`, true},
		{"the address of a Service", service, `{metadata: {resourceVersion: "2"}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}`, false},
		{"what a Service selects", service, `{spec: {selector: {app: other}}}`, true},
		{"a kind of which everything counts", route, `{status: {parents: [{}]}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, after := parseObject(t, c.object), parseObject(t, c.object)
			applyMergePatch(after.Object, parseObject(t, c.patch).Object)
			if got := Changed(before, after); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// merge applies a merge patch.
func applyMergePatch(object, patch map[string]any) {
	for key, value := range patch {
		inner, isObject := value.(map[string]any)
		was, wasObject := object[key].(map[string]any)
		switch {
		case isObject && wasObject:
			applyMergePatch(was, inner)
		case value == nil:
			delete(object, key)
		default:
			object[key] = value
		}
	}
}
