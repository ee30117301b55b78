package clitest

// WebRollout contains Rollout web in namespace shop during a release without a traffic router, and its objects. The current step,
// the second, is a pause without a duration. The third step is an analysis of success-rate.
const WebRollout = `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web, namespace: shop, uid: web-uid, generation: 2, labels: {team: shop}, annotations: {rollout.argoproj.io/revision: "2"}}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:v2"}]}
  strategy:
    canary:
      steps: [{setWeight: 25}, {pause: {}}, {analysis: {templates: [{templateName: success}]}}, {setWeight: 50}, {pause: {duration: 10m}}]
status:
  phase: Paused
  message: CanaryPauseStep
  observedGeneration: "2"
  currentPodHash: new
  stableRS: old
  currentStepIndex: 1
  currentStepHash: STEPS
  controllerPause: true
  pauseConditions: [{reason: CanaryPauseStep, startTime: "1999-12-31T23:59:00Z"}]
  replicas: 4
  updatedReplicas: 1
  readyReplicas: 4
  availableReplicas: 4
  HPAReplicas: 4
  selector: app=web
  serin: {gates: [{name: pause, verdict: wait, message: until the user promotes the rollout, opener: person}]}
  conditions:
  - {type: Progressing, status: Unknown, reason: RolloutPaused, message: "Rollout is paused", lastUpdateTime: "1999-12-31T23:59:00Z", lastTransitionTime: "1999-12-31T23:59:00Z"}
  - {type: Healthy, status: "False", reason: RolloutHealthy, message: "Rollout is not healthy", lastUpdateTime: "1999-12-31T23:58:00Z", lastTransitionTime: "1999-12-31T23:58:00Z"}
  - {type: Paused, status: "True", reason: RolloutPaused, message: "Rollout is paused", lastUpdateTime: "1999-12-31T23:59:00Z", lastTransitionTime: "1999-12-31T23:59:00Z"}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-old
  namespace: shop
  uid: old-uid
  creationTimestamp: "1999-12-31T20:00:00Z"
  generation: 2
  labels: {app: web, rollouts-pod-template-hash: old}
  annotations: {rollout.argoproj.io/revision: "1", rollout.argoproj.io/desired-replicas: "4"}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: web-uid, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 3
  selector: {matchLabels: {app: web, rollouts-pod-template-hash: old}}
  template:
    metadata: {labels: {app: web, rollouts-pod-template-hash: old}}
    spec: {containers: [{name: web, image: "web:v1"}]}
status: {replicas: 3, readyReplicas: 3, availableReplicas: 3, observedGeneration: 2}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  name: web-new
  namespace: shop
  uid: new-uid
  creationTimestamp: "1999-12-31T23:58:00Z"
  generation: 1
  labels: {app: web, rollouts-pod-template-hash: new}
  annotations: {rollout.argoproj.io/revision: "2", rollout.argoproj.io/desired-replicas: "4"}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: web-uid, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 1
  selector: {matchLabels: {app: web, rollouts-pod-template-hash: new}}
  template:
    metadata: {labels: {app: web, rollouts-pod-template-hash: new}}
    spec: {containers: [{name: web, image: "web:v2"}]}
status: {replicas: 1, readyReplicas: 1, availableReplicas: 1, observedGeneration: 1}
---
apiVersion: argoproj.io/v1alpha1
kind: AnalysisTemplate
metadata: {name: success, namespace: shop}
spec:
  metrics:
  - name: success-rate
    interval: 30s
    count: 5
    failureLimit: 2
    successCondition: result[0] >= 0.95
    provider: {prometheus: {address: "http://prometheus:9090", query: "sum(rate(x[1m]))"}}
---
apiVersion: argoproj.io/v1alpha1
kind: AnalysisRun
metadata:
  name: web-new-2-2
  namespace: shop
  creationTimestamp: "1999-12-31T23:59:30Z"
  labels: {rollouts-pod-template-hash: new, rollout-type: Step, step-index: "2"}
  ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, uid: web-uid, controller: true, blockOwnerDeletion: true}]
spec:
  metrics:
  - name: success-rate
    interval: 30s
    count: 5
    failureLimit: 2
    successCondition: result[0] >= 0.95
    provider: {prometheus: {address: "http://prometheus:9090", query: "sum(rate(x[1m]))"}}
status:
  phase: Running
  metricResults:
  - name: success-rate
    phase: Running
    count: 2
    successful: 1
    failed: 1
    metadata: {ResolvedPrometheusQuery: "sum(rate(x[1m]))"}
    measurements:
    - {phase: Successful, value: "[0.99]", finishedAt: "1999-12-31T23:59:31Z"}
    - {phase: Failed, value: "[0.91]", finishedAt: "2000-01-01T00:00:01Z"}
---
apiVersion: v1
kind: Event
metadata: {name: web.1, namespace: shop}
involvedObject: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: web, namespace: shop, uid: web-uid}
type: Normal
reason: RolloutPaused
message: Rollout is paused (CanaryPauseStep)
firstTimestamp: "1999-12-31T23:59:00Z"
lastTimestamp: "1999-12-31T23:59:00Z"
count: 1`

// ArgoRolloutsDeployment is a Deployment of Argo Rollouts with a ready pod, to be appended to other manifests.
const ArgoRolloutsDeployment = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: argo-rollouts, namespace: argo-rollouts, labels: {app.kubernetes.io/name: argo-rollouts}}
spec:
  selector: {matchLabels: {app: argo-rollouts}}
  template:
    metadata: {labels: {app: argo-rollouts}}
    spec: {containers: [{name: argo-rollouts, image: "registry.test/mirror/argo-rollouts:v1.8.3"}]}
status: {readyReplicas: 1}`

// PodsWithoutImage are the pods of the new revisions of Canary cart and Rollout web, whose images cannot be pulled, to be appended
// to other manifests.
const PodsWithoutImage = `
---
apiVersion: v1
kind: Pod
metadata: {name: cart-7d47-vvd8m, namespace: shop, labels: {app: cart, pod-template-hash: 7d47}}
status:
  phase: Pending
  containerStatuses:
  - {name: cart, image: "cart:v2", state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"cart:v2\": ErrImagePull: not found"}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web-new-vvd8m, namespace: shop, labels: {app: web, rollouts-pod-template-hash: new}}
status:
  phase: Pending
  containerStatuses:
  - {name: web, image: "web:v2", state: {waiting: {reason: ErrImagePull, message: "failed to pull image \"web:v2\": unauthorized"}}}`
