package clitest

// FlaggerCart contains the idle Canary cart in namespace shop after a release with the provider gatewayapi:v1, and its objects, in
// the form in which Flagger 1.43 writes them. Serin has written none of its fields.
const FlaggerCart = `
apiVersion: flagger.app/v1beta1
kind: Canary
metadata: {name: cart, namespace: shop, uid: cart-uid, generation: 1}
spec:
  provider: gatewayapi:v1
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: cart}
  service: {port: 80, targetPort: 8080, hosts: [shop.example.com], gatewayRefs: [{name: edge, namespace: infra}]}
  analysis:
    interval: 30s
    threshold: 2
    stepWeights: [20, 40, 60]
    metrics:
    - {name: request-success-rate, thresholdRange: {min: 99}, interval: 1m}
status:
  phase: Succeeded
  canaryWeight: 0
  failedChecks: 0
  iterations: 0
  trackedConfigs: {}
  lastAppliedSpec: 5fcc94f9fb
  lastPromotedSpec: 5fcc94f9fb
  lastTransitionTime: "1999-12-31T23:00:00Z"
  conditions:
  - {type: Promoted, status: "True", reason: Succeeded, message: "Canary analysis completed successfully, promotion finished."}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop, uid: target-uid, generation: 3}
spec:
  replicas: 0
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: server, image: "cart:2", ports: [{name: http, containerPort: 8080}]}]}
status: {observedGeneration: 3}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: cart-primary
  namespace: shop
  uid: primary-uid
  generation: 2
  labels: {app: cart-primary}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec:
  replicas: 2
  selector: {matchLabels: {app: cart-primary}}
  template:
    metadata: {labels: {app: cart-primary}, annotations: {flagger-id: 2d7c1f2e-6f0c-4b6e-9d43-0a5b0c1d2e3f}}
    spec: {containers: [{name: server, image: "cart:2", ports: [{name: http, containerPort: 8080}]}]}
status: {observedGeneration: 2, replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2}
---
apiVersion: v1
kind: Service
metadata:
  name: cart
  namespace: shop
  uid: apex-uid
  labels: {app: cart}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, clusterIP: 10.0.0.1, selector: {app: cart-primary}, ports: [{name: http, port: 80, protocol: TCP, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata:
  name: cart-primary
  namespace: shop
  uid: primary-service-uid
  labels: {app: cart-primary}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, clusterIP: 10.0.0.2, selector: {app: cart-primary}, ports: [{name: http, port: 80, protocol: TCP, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata:
  name: cart-canary
  namespace: shop
  uid: canary-service-uid
  labels: {app: cart-canary}
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec: {type: ClusterIP, clusterIP: 10.0.0.3, selector: {app: cart}, ports: [{name: http, port: 80, protocol: TCP, targetPort: 8080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: cart
  namespace: shop
  uid: route-uid
  generation: 8
  annotations: {helm.toolkit.fluxcd.io/driftDetection: disabled, kustomize.toolkit.fluxcd.io/reconcile: disabled}
  ownerReferences: [{apiVersion: flagger.app/v1beta1, kind: Canary, name: cart, uid: cart-uid, controller: true, blockOwnerDeletion: true}]
spec:
  hostnames: [shop.example.com]
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: edge, namespace: infra}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs:
    - {group: "", kind: Service, name: cart-primary, port: 80, weight: 100}
    - {group: "", kind: Service, name: cart-canary, port: 80, weight: 0}`

// FlaggerDeployment is a Deployment of Flagger with a ready pod, to be appended to other manifests.
const FlaggerDeployment = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: flagger, namespace: flagger-system, labels: {app.kubernetes.io/name: flagger}}
spec:
  selector: {matchLabels: {app: flagger}}
  template:
    metadata: {labels: {app: flagger}}
    spec:
      containers:
      - {name: flagger, image: "registry.test/mirror/flagger:1.43.0", args: [-log-level=info, -mesh-provider=nginx, "-metrics-server=http://prometheus:9090"]}
status: {readyReplicas: 1}`
