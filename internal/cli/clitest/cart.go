package clitest

import "strings"

// Cart contains Canary cart in namespace shop during a release with the provider gatewayapi:v1, and its objects. Its window starts
// at the beginning of the year 2000, like the clock of a synctest bubble.
const Cart = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart, namespace: shop, uid: cart-uid, generation: 1, labels: {team: shop}}
spec:
  provider: gatewayapi:v1
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 8080, gatewayRefs: [{name: public}]}
  analysis:
    interval: 30s
    threshold: 2
    stepWeights: [20, 40, 60]
    metrics:
    - {name: request-success-rate, thresholdRange: {min: 99}, interval: 1m}
status:
  phase: Progressing
  canaryWeight: 20
  failedChecks: 0
  iterations: 0
  trackedConfigs: {}
  lastAppliedSpec: filled in
  lastPromotedSpec: older
  lastTransitionTime: "1999-12-31T23:59:00Z"
  conditions:
  - {type: Promoted, status: Unknown, reason: Progressing, message: "New revision detected, progressing canary analysis."}
  serin:
    run: 1f2e
    revision: now
    promoted: s1-old
    shape: canary/gatewayapi:v1/Deployment/cart
    started: true
    window: {start: "2000-01-01T00:00:00.000000Z"}
    release: {revision: now, images: ["cart:v2"], start: "1999-12-31T23:59:00Z", maxWeight: 20}
    history:
    - revision: s1-5b2f0a63c1
      images: ["cart:v1.1", "proxy:3"]
      start: "1999-12-30T10:00:00Z"
      end: "1999-12-30T10:01:35Z"
      result: failed
      maxWeight: 20
      cause: {gate: request-success-rate, message: "success rate 91.20% < 99%", value: 91.20%, limit: ">= 99%", query: "sum(rate(x[1m]))"}
    - {revision: s1-77aa0a63c1, images: ["cart:v1.1"], start: "1999-12-29T10:00:00Z", end: "1999-12-29T10:00:20Z", result: failed, maxWeight: 5, command: abort, commandBy: "vera: checkout is slow", cause: {message: the release was aborted by command}}
    - {revision: s1-0c4d11, images: ["cart:v1"], start: "1999-12-28T10:00:00Z", end: "1999-12-28T10:03:00Z", result: promoted, maxWeight: 100}
    gates:
    - {name: request-success-rate, verdict: pass, message: "100.00% is within the limit", value: 100.00%, limit: ">= 99%", query: "sum(rate(x[1m]))", since: "1999-12-31T23:59:30.000000Z"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop, uid: target-uid, generation: 2}
spec:
  replicas: 1
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      containers:
      - name: cart
        image: cart:v2
        ports: [{containerPort: 8080}]
        envFrom: [{secretRef: {name: keys}}]
status: {observedGeneration: 2, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: shop}
data: {key: c2VjcmV0}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cart-primary
  namespace: shop
  uid: primary-uid
  generation: 1
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 2
  selector: {matchLabels: {app: cart-primary}}
  template:
    metadata: {labels: {app: cart-primary}}
    spec: {containers: [{name: cart, image: "cart:v1", ports: [{containerPort: 8080}]}]}
status: {observedGeneration: 1, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-canary-1, namespace: shop, labels: {kubernetes.io/service-name: cart-canary}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: cart-primary-1, namespace: shop, labels: {kubernetes.io/service-name: cart-primary}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.2], conditions: {ready: true}}, {addresses: [10.0.0.3], conditions: {ready: true}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop, generation: 1}
spec:
  parentRefs: [{name: public}]
  rules:
  - backendRefs: [{name: cart-primary, port: 8080, weight: 80}, {name: cart-canary, port: 8080, weight: 20}]
status:
  parents:
  - parentRef: {name: public}
    controllerName: example.com/gateways
    conditions: [{type: Accepted, status: "True", observedGeneration: 1, reason: Accepted, message: "", lastTransitionTime: "2026-01-02T11:00:00Z"}]
---
apiVersion: v1
kind: Event
metadata: {name: cart.1, namespace: shop}
involvedObject: {apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, namespace: shop, uid: cart-uid}
type: Normal
reason: Synced
message: Advance cart.shop canary weight 20
firstTimestamp: "2000-01-01T00:00:00Z"
lastTimestamp: "2000-01-01T00:00:00Z"
count: 1`

// PluginsDeployment is the Deployment of a Serin that runs plugins, and their configuration.
var PluginsDeployment = strings.ReplaceAll(SerinDeployment, "-mesh-provider", "-allow-plugins, -mesh-provider") + `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: argo-rollouts-config, namespace: serin-system}
data:
  stepPlugins: |
    - {name: acme/approve, location: "file:///plugins/approve"}`

// SerinDeployment is a Deployment of Serin with a ready pod, to be appended to other manifests.
const SerinDeployment = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: serin, namespace: serin-system, labels: {app.kubernetes.io/name: serin}}
spec:
  selector: {matchLabels: {app: serin}}
  template:
    metadata: {labels: {app: serin}}
    spec:
      containers:
      - name: serin
        image: registry.test:5000/mirror/serin:v1@sha256:00
        args: [controller, -mesh-provider=gatewayapi:v1, "-min-analysis-interval", 1s, -a-flag-of-tomorrow=x]
status: {readyReplicas: 1}`
