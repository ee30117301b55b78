package clitest

import (
	"fmt"
	"strings"
)

// CartPods contains the ReplicaSets and pods of Canary cart, to be appended to other manifests. Deployment cart-primary has an older
// ReplicaSet with a pod that is being replaced, and a pod of another owner has the labels of the target.
const CartPods = `
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: cart-7d47
  namespace: shop
  uid: cart-7d47-uid
  creationTimestamp: "1999-12-31T23:58:00Z"
  labels: {app: cart, pod-template-hash: 7d47}
  annotations: {deployment.kubernetes.io/revision: "2"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: cart, uid: target-uid, controller: true}]
spec: {replicas: 1, selector: {matchLabels: {app: cart, pod-template-hash: 7d47}}, template: {metadata: {labels: {app: cart, pod-template-hash: 7d47}}}}
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: cart-6c11
  namespace: shop
  uid: cart-6c11-uid
  labels: {app: cart, pod-template-hash: 6c11}
  annotations: {deployment.kubernetes.io/revision: "1"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: cart, uid: target-uid, controller: true}]
spec: {replicas: 0, selector: {matchLabels: {app: cart, pod-template-hash: 6c11}}, template: {metadata: {labels: {app: cart, pod-template-hash: 6c11}}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: cart-primary-5b66
  namespace: shop
  uid: cart-primary-5b66-uid
  labels: {app: cart-primary, pod-template-hash: 5b66}
  annotations: {deployment.kubernetes.io/revision: "10"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: cart-primary, uid: primary-uid, controller: true}]
spec: {replicas: 2, selector: {matchLabels: {app: cart-primary, pod-template-hash: 5b66}}, template: {metadata: {labels: {app: cart-primary, pod-template-hash: 5b66}}}}
status: {replicas: 2, readyReplicas: 2, availableReplicas: 2}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: cart-primary-4a55
  namespace: shop
  uid: cart-primary-4a55-uid
  labels: {app: cart-primary, pod-template-hash: 4a55}
  annotations: {deployment.kubernetes.io/revision: "9"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: cart-primary, uid: primary-uid, controller: true}]
spec: {replicas: 0, selector: {matchLabels: {app: cart-primary, pod-template-hash: 4a55}}, template: {metadata: {labels: {app: cart-primary, pod-template-hash: 4a55}}}}
status: {replicas: 1, readyReplicas: 0}
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-7d47-gx2lm
  namespace: shop
  creationTimestamp: "1999-12-31T23:58:00Z"
  labels: {app: cart, pod-template-hash: 7d47}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: cart-7d47, uid: cart-7d47-uid, controller: true}]
status:
  phase: Running
  conditions: [{type: Ready, status: "True"}]
  containerStatuses: [{name: cart, ready: true, restartCount: 1, state: {running: {}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-primary-5b66-8qwvf
  namespace: shop
  creationTimestamp: "1999-12-28T10:00:00Z"
  labels: {app: cart-primary, pod-template-hash: 5b66}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: cart-primary-5b66, uid: cart-primary-5b66-uid, controller: true}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-primary-5b66-zz9rt
  namespace: shop
  creationTimestamp: "1999-12-28T10:00:00Z"
  labels: {app: cart-primary, pod-template-hash: 5b66}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: cart-primary-5b66, uid: cart-primary-5b66-uid, controller: true}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-primary-4a55-last
  namespace: shop
  creationTimestamp: "1999-12-27T10:00:00Z"
  deletionTimestamp: "2000-01-01T00:00:00Z"
  finalizers: [example.com/slow]
  labels: {app: cart-primary, pod-template-hash: 4a55}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: cart-primary-4a55, uid: cart-primary-4a55-uid, controller: true}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: batch-of-another-owner
  namespace: shop
  labels: {app: cart, pod-template-hash: 7d47}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: batch, uid: batch-uid, controller: true}]
status: {phase: Running}`

// CartDaemonSets contains the target and the primary of Canary cart as DaemonSets, with a pod of each, to be appended to other
// manifests.
const CartDaemonSets = `
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cart, namespace: shop, uid: target-ds-uid, generation: 1}
spec: {selector: {matchLabels: {app: cart-ds}}, template: {metadata: {labels: {app: cart-ds}}, spec: {containers: [{name: cart, image: "cart:v2"}]}}}
status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberReady: 1, numberAvailable: 1}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: cart-primary
  namespace: shop
  uid: primary-ds-uid
  generation: 1
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec: {selector: {matchLabels: {app: cart-ds-primary}}, template: {metadata: {labels: {app: cart-ds-primary}}, spec: {containers: [{name: cart, image: "cart:v1"}]}}}
status: {observedGeneration: 1, desiredNumberScheduled: 1, currentNumberScheduled: 1, updatedNumberScheduled: 1, numberReady: 1, numberAvailable: 1}
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-x8k2v
  namespace: shop
  creationTimestamp: "1999-12-31T23:58:00Z"
  labels: {app: cart-ds}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: cart, uid: target-ds-uid, controller: true}]
status:
  phase: Running
  containerStatuses: [{name: cart, image: "cart:v2", restartCount: 4, state: {waiting: {reason: CrashLoopBackOff, message: "back-off 1m20s restarting failed container"}}}]
---
apiVersion: v1
kind: Pod
metadata:
  name: cart-primary-q7d4n
  namespace: shop
  creationTimestamp: "1999-12-31T23:58:00Z"
  labels: {app: cart-ds-primary}
  ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: cart-primary, uid: primary-ds-uid, controller: true}]
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`

// WebPods contains pods of Rollout web: one of the new revision, which is not ready, and one of the stable revision, to be appended
// to other manifests. ReplicaSet web-older of an earlier revision still has a pod.
const WebPods = `
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-older
  namespace: shop
  uid: older-uid
  creationTimestamp: "1999-12-31T10:00:00Z"
  labels: {app: web, rollouts-pod-template-hash: older}
  annotations: {rollout.argoproj.io/revision: "0", scale-down-deadline: "2000-01-01T00:05:00Z"}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: web-uid, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 1
  selector: {matchLabels: {app: web, rollouts-pod-template-hash: older}}
  template:
    metadata: {labels: {app: web, rollouts-pod-template-hash: older}}
    spec: {containers: [{name: web, image: "web:v0"}]}
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: web-older-k2x7p, namespace: shop, creationTimestamp: "1999-12-31T10:00:00Z", labels: {app: web, rollouts-pod-template-hash: older}}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-new-2l9sd, namespace: shop, creationTimestamp: "1999-12-31T23:59:40Z", labels: {app: web, rollouts-pod-template-hash: new}}
status: {phase: Running, conditions: [{type: Ready, status: "False"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-old-7hg4c, namespace: shop, creationTimestamp: "1999-12-31T20:00:00Z", labels: {app: web, rollouts-pod-template-hash: old}}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}`

// WebPodWithoutImage is a pod of the new revision of Rollout web whose image cannot be pulled, to be appended to other manifests.
const WebPodWithoutImage = `
---
apiVersion: v1
kind: Pod
metadata: {name: web-new-9d4mz, namespace: shop, creationTimestamp: "1999-12-31T23:58:00Z", labels: {app: web, rollouts-pod-template-hash: new}}
spec: {containers: [{name: web, image: "web:v2"}]}
status:
  phase: Pending
  conditions: [{type: Ready, status: "False"}]
  containerStatuses:
  - {name: web, image: "web:v2", state: {waiting: {reason: ImagePullBackOff, message: "back-off pulling image web:v2: manifest unknown"}}}`

// WebExperiment is an Experiment of Rollout web that is in progress, to be appended to other manifests.
const WebExperiment = `
---
apiVersion: argoproj.io/v1alpha1
kind: Experiment
metadata:
  name: web-new-2-3
  namespace: shop
  creationTimestamp: "1999-12-31T23:59:30Z"
  labels: {rollouts-pod-template-hash: new}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: web-uid, controller: true, blockOwnerDeletion: true}]
spec: {templates: [{name: baseline, selector: {matchLabels: {app: x}}, template: {spec: {containers: [{name: x, image: "web:v1"}]}}}]}
status: {phase: Running}`

// EndedExperiments are an Experiment whose pods are available, and one that was terminated, to be appended to other manifests.
const EndedExperiments = `
---
apiVersion: argoproj.io/v1alpha1
kind: Experiment
metadata: {name: load, namespace: shop, uid: load-uid, creationTimestamp: "1999-12-31T23:50:00Z"}
spec: {duration: 30m, templates: [{name: baseline, selector: {matchLabels: {app: x}}, template: {spec: {containers: [{name: x, image: "web:v1"}]}}}]}
status: {phase: Running, availableAt: "1999-12-31T23:51:00Z"}
---
apiVersion: argoproj.io/v1alpha1
kind: Experiment
metadata: {name: smoke, namespace: shop, uid: smoke-uid, creationTimestamp: "1999-12-31T20:00:00Z"}
spec: {terminate: true, duration: 1h, templates: [{name: baseline, selector: {matchLabels: {app: x}}, template: {spec: {containers: [{name: x, image: "web:v1"}]}}}]}
status: {phase: Successful, availableAt: "1999-12-31T20:01:00Z"}
---
apiVersion: argoproj.io/v1alpha1
kind: AnalysisRun
metadata: {name: smoke, namespace: shop, uid: smoke-run-uid}
spec: {metrics: []}
status: {phase: Failed}`

// HostilePod is a pod of Canary cart whose message moves the cursor and changes colours, to be appended to other manifests.
const HostilePod = `
---
apiVersion: v1
kind: Pod
metadata: {name: cart-7d47-evil, namespace: shop, labels: {app: cart, pod-template-hash: 7d47}}
status:
  phase: Pending
  containerStatuses:
  - {name: cart, image: "cart:v2", state: {waiting: {reason: "Err\e[31mImage", message: "not found\r\n\e[2J\ball is\u202e well\a"}}}`

// ManyPods returns pods of the stable revision of Rollout web, of which the last one is not scheduled, to be appended to other
// manifests.
func ManyPods(n int) string {
	var b strings.Builder
	for i := range n {
		status := `{phase: Running, conditions: [{type: Ready, status: "True"}]}`
		if i == n-1 {
			status = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/3 nodes are available"}]}`
		}
		fmt.Fprintf(&b, `
---
apiVersion: v1
kind: Pod
metadata: {name: web-old-%03d, namespace: shop, creationTimestamp: "1999-12-31T20:00:00Z", labels: {app: web, rollouts-pod-template-hash: old}}
status: %s`, i, status)
	}
	return b.String()
}

// RoutedWeb returns the manifests of Rollout web with weights in HTTPRoute web.
func RoutedWeb() string {
	rollout := strings.Replace(WebRollout, "    canary:\n", `    canary:
      stableService: web-stable
      canaryService: web-canary
      trafficRouting: {plugins: {argoproj-labs/gatewayAPI: {httpRoute: web, namespace: shop}}}
`, 1)
	return strings.Replace(rollout, "  serin: {gates", `  canary:
    weights:
      canary: {weight: 20, serviceName: web-canary, podTemplateHash: new}
      stable: {weight: 80, serviceName: web-stable, podTemplateHash: old}
  serin: {gates`, 1) + `
---
apiVersion: v1
kind: Service
metadata: {name: web-stable, namespace: shop, annotations: {argo-rollouts.argoproj.io/managed-by-rollouts: web}}
spec: {selector: {app: web, rollouts-pod-template-hash: old}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-canary, namespace: shop, annotations: {argo-rollouts.argoproj.io/managed-by-rollouts: web}}
spec: {selector: {app: web, rollouts-pod-template-hash: new}, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop, generation: 1}
spec:
  parentRefs: [{name: public}]
  rules:
  - backendRefs: [{name: web-stable, port: 80, weight: 80}, {name: web-canary, port: 80, weight: 20}]
status:
  parents:
  - parentRef: {name: public}
    controllerName: example.com/gateways
    conditions: [{type: Accepted, status: "True", observedGeneration: 1, reason: Accepted, message: "", lastTransitionTime: "2026-01-02T11:00:00Z"}]`
}

// BlueGreenWeb returns the manifests of Rollout web with the strategy blue-green, whose preview waits for its promotion.
func BlueGreenWeb() string {
	head, rest, _ := strings.Cut(WebRollout, "    canary:\n")
	_, rest, _ = strings.Cut(rest, "status:\n")
	rollout := head + "    blueGreen: {activeService: web-active, previewService: web-preview, autoPromotionEnabled: false}\nstatus:\n" + rest
	rollout = strings.Replace(rollout, "  currentStepIndex: 1\n  currentStepHash: STEPS\n", "  blueGreen: {activeSelector: old, previewSelector: new}\n", 1)
	rollout = strings.NewReplacer("CanaryPauseStep", "BlueGreenPause", "replicas: 3", "replicas: 4", "readyReplicas: 3, availableReplicas: 3", "readyReplicas: 4, availableReplicas: 4",
		"spec:\n  replicas: 1\n", "spec:\n  replicas: 4\n", "{replicas: 1, readyReplicas: 1, availableReplicas: 1, observedGeneration: 1}", "{replicas: 4, readyReplicas: 4, availableReplicas: 4, observedGeneration: 1}").Replace(rollout)
	return rollout + `
---
apiVersion: v1
kind: Service
metadata: {name: web-active, namespace: shop, annotations: {argo-rollouts.argoproj.io/managed-by-rollouts: web}}
spec: {selector: {app: web, rollouts-pod-template-hash: old}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-preview, namespace: shop, annotations: {argo-rollouts.argoproj.io/managed-by-rollouts: web}}
spec: {selector: {app: web, rollouts-pod-template-hash: new}, ports: [{port: 80}]}`
}
