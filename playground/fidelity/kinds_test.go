//go:build linux

package fidelity_test

import "k8s.io/apimachinery/pkg/runtime/schema"

// kind contains the inputs for one kind. The manifests have no names. Patches change objects, status patches their status
// subresource.
type kind struct {
	gvk                        schema.GroupVersionKind
	manifests, patches, status []string
	scale                      bool
}

// commonPatches are patches for every kind.
var commonPatches = []string{
	`{metadata: {labels: {a: b}}}`,
	`{metadata: {labels: {a: null}}}`,
	`{metadata: {labels: {a: "b c"}}}`,
	`{metadata: {annotations: {a: b}}}`,
	`{metadata: {annotations: {}}}`,
	`{metadata: {annotations: null}}`,
	`{metadata: {annotations: {"not a key": b}}}`,
	`{metadata: {labels: {a: 1}}}`,
	`{metadata: {finalizers: [a.test/one]}}`,
	`{metadata: {finalizers: [a.test/one, a.test/two]}}`,
	`{metadata: {finalizers: null}}`,
	`{metadata: {finalizers: []}}`,
	`{metadata: {finalizers: null}}`,
	`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: "22222222-2222-4222-8222-222222222222"}]}}`,
	`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: "22222222-2222-4222-8222-222222222222", controller: true, blockOwnerDeletion: true}]}}`,
	`{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x}]}}`,
	`{metadata: {ownerReferences: null}}`,
	`{metadata: {uid: "33333333-3333-4333-8333-333333333333"}}`,
	`{metadata: {generation: 99}}`,
	`{metadata: {creationTimestamp: null}}`,
	`{metadata: {creationTimestamp: "2020-01-01T00:00:00Z"}}`,
	`{metadata: {deletionTimestamp: "2020-01-01T00:00:00Z"}}`,
	`{metadata: {name: other}}`,
	`{metadata: {namespace: other}}`,
	`{metadata: {unknown: 1}}`,
	`{unknown: 1}`,
	`{status: null}`,
	`{}`,
}

func withCommon(patches ...string) []string { return append(patches, commonPatches...) }

var kinds = []kind{
	{
		gvk: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, scale: true,
		manifests: []string{
			`{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: app, image: one}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {labels: {x: y}, annotations: {}}, spec: {replicas: 0, unknown: 1, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a, b: c}, annotations: {d: e}},
			  spec: {serviceAccountName: me, initContainers: [{name: init, image: "one:latest"}], containers: [{name: app, image: "registry:5000/one", command: [run], args: [],
			  ports: [{name: http, containerPort: 8080}, {containerPort: 9090, protocol: UDP}],
			  env: [{name: A, value: ""}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: C, valueFrom: {configMapKeyRef: {name: c, key: d}}}], envFrom: [{secretRef: {name: s}}],
			  readinessProbe: {httpGet: {port: http}}, livenessProbe: {exec: {command: [check]}, periodSeconds: 3}, startupProbe: {tcpSocket: {port: 8080}}, lifecycle: {preStop: {sleep: {seconds: 5}}},
			  resources: {requests: {cpu: "0.5", memory: 128Mi}, limits: {cpu: 1000m}}, volumeMounts: [{name: v, mountPath: /v}], securityContext: {}}],
			  volumes: [{name: v, configMap: {name: c}}, {name: w, secret: {secretName: s}}, {name: x}, {name: y, projected: {sources: [{configMap: {name: c}}]}}]}}}, status: {replicas: 3}}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 2, paused: true, minReadySeconds: 5, strategy: {rollingUpdate: {maxSurge: 1}}, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: app, image: one@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}], terminationGracePeriodSeconds: 0}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: {containers: [{name: app, image: one}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {template: {metadata: {labels: {app: b}}, spec: {containers: [{name: app, image: one}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: []}}}}`,
			`{apiVersion: apps/v1, kind: Deployment}`,
			`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: many}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {resourceVersion: "7"}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: app, image: one}]}}}}`,
		},
		patches: withCommon(
			`{spec: {replicas: 3}}`, `{spec: {replicas: 3}}`, `{spec: {replicas: 0}}`, `{spec: {replicas: null}}`, `{spec: {replicas: -1}}`, `{spec: {replicas: many}}`,
			`{spec: {template: {spec: {containers: [{name: app, image: two}]}}}}`,
			`{spec: {template: {spec: {containers: [{name: app, image: ""}]}}}}`,
			`{spec: {template: {spec: {containers: [{name: app, image: two}, {name: app, image: three}]}}}}`,
			`{spec: {template: {spec: {containers: null}}}}`,
			`{spec: {template: {metadata: {annotations: {flagger-id: x}}}}}`,
			`{spec: {template: {metadata: {labels: null}}}}`, `{spec: {template: {metadata: {labels: {more: z}}}}}`,
			`{spec: {selector: {matchLabels: {more: z}}}}`,
			`{spec: {strategy: {type: Recreate, rollingUpdate: null}}}`, `{spec: {strategy: {type: Recreate}}}`, `{spec: {strategy: null}}`, `{spec: {strategy: {type: Other}}}`,
			`{spec: {strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}}}`, `{spec: {strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}}}`,
			`{spec: {minReadySeconds: 700}}`, `{spec: {progressDeadlineSeconds: 900}}`, `{spec: {revisionHistoryLimit: 0}}`, `{spec: {paused: true}}`, `{spec: {paused: false}}`,
			`{spec: null}`, `{spec: {unknown: 1}}`, `{spec: {template: {spec: {unknown: 1, hostNetwork: false, nodeSelector: {}}}}}`,
			`{spec: {template: {spec: {volumes: [{name: v, emptyDir: {}}]}}}}`, `{spec: {template: {spec: {volumes: null}}}}`,
			`{spec: {template: {spec: {containers: [{name: app, image: two, resources: {limits: {cpu: "2", memory: "1073741824"}}, env: [{name: A, value: b}]}]}}}}`,
			`{status: {replicas: 5}}`,
		),
		status: []string{
			`{status: {replicas: 3, readyReplicas: 2, updatedReplicas: 3, availableReplicas: 2, observedGeneration: 2}}`,
			`{status: {replicas: 3, conditions: [{type: Available, status: "True", reason: R, message: m, lastUpdateTime: "2026-01-01T00:00:00Z", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`,
			`{status: {replicas: 1, readyReplicas: 2}}`, `{status: {replicas: -1}}`, `{status: {}}`, `{status: {unknown: 1}}`,
			`{spec: {replicas: 9}, metadata: {labels: {from: status}}}`, `{metadata: {annotations: {from: status}}}`,
		},
	},
	{
		gvk: schema.GroupVersionKind{Version: "v1", Kind: "Service"},
		manifests: []string{
			`{apiVersion: v1, kind: Service, spec: {selector: {app: a}, ports: [{port: 80}]}}`,
			`{apiVersion: v1, kind: Service, spec: {type: ClusterIP, selector: {app: a}, ports: [{name: http, port: 80, targetPort: http, protocol: TCP}, {name: metrics, port: 9797, targetPort: 9797, appProtocol: http}]}}`,
			`{apiVersion: v1, kind: Service, spec: {clusterIP: None, selector: {app: a}, ports: [{name: http, port: 80}]}}`,
			`{apiVersion: v1, kind: Service, spec: {clusterIP: None}}`,
			`{apiVersion: v1, kind: Service, spec: {type: NodePort, selector: {app: a}, ports: [{name: http, port: 80}]}}`,
			`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, sessionAffinity: ClientIP, selector: {app: a}, ports: [{name: http, port: 80}]}}`,
			`{apiVersion: v1, kind: Service, spec: {type: ExternalName, externalName: a.test}}`,
			`{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}]}}`,
			`{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}, {port: 81}]}}`,
			`{apiVersion: v1, kind: Service, spec: {ports: [{port: 0}]}}`,
			`{apiVersion: v1, kind: Service, spec: {selector: {app: a}}}`,
			`{apiVersion: v1, kind: Service}`,
		},
		patches: withCommon(
			`{spec: {selector: {app: b}}}`, `{spec: {selector: {app: null}}}`, `{spec: {selector: null}}`, `{spec: {selector: {app: "b c"}}}`,
			`{spec: {ports: [{name: http, port: 80, targetPort: 8080}]}}`, `{spec: {ports: [{name: http, port: 80, targetPort: 0}]}}`,
			`{spec: {ports: [{name: twice, port: 80}, {name: twice, port: 81}]}}`, `{spec: {ports: [{name: a, port: 80}, {name: b, port: 80}]}}`,
			`{spec: {ports: [{port: 80}]}}`, `{spec: {ports: null}}`, `{spec: {ports: []}}`, `{spec: {ports: [{name: Bad Name, port: 80}]}}`, `{spec: {ports: [{name: http, port: 99999}]}}`,
			`{spec: {ports: [{name: http, port: 80, protocol: PIGEON}]}}`,
			`{spec: {clusterIP: null, clusterIPs: null}}`, `{spec: {clusterIP: None}}`, `{spec: {clusterIP: null}}`, `{spec: {clusterIP: ""}}`, `{spec: {type: null}}`,
			`{spec: {type: NodePort}}`, `{spec: {type: ClusterIP}}`, `{spec: {type: LoadBalancer}}`, `{spec: {type: Other}}`,
			`{spec: {sessionAffinity: ClientIP}}`, `{spec: {sessionAffinity: None}}`, `{spec: {trafficDistribution: PreferClose}}`, `{spec: {trafficDistribution: null}}`,
			`{spec: {ipFamilies: null, ipFamilyPolicy: null}}`, `{spec: {internalTrafficPolicy: null}}`, `{spec: null}`, `{spec: {unknown: 1}}`, `{status: {loadBalancer: {ingress: [{ip: 10.1.2.3}]}}}`,
		),
		status: []string{
			`{status: {conditions: [{type: A, status: "True", reason: R, message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, `{spec: {selector: {app: z}}}`, `{status: null}`,
		},
	},
	{
		gvk: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		manifests: []string{
			`{apiVersion: v1, kind: ConfigMap, data: {a: b}}`, `{apiVersion: v1, kind: ConfigMap, data: {a: b}, binaryData: {c: ZGQ=}, immutable: true}`, `{apiVersion: v1, kind: ConfigMap, unknown: 1}`,
			`{apiVersion: v1, kind: ConfigMap, data: {"bad key": b}}`, `{apiVersion: v1, kind: ConfigMap, data: {a: 1}}`, `{apiVersion: v1, kind: ConfigMap, immutable: false, data: {}}`,
		},
		patches: withCommon(
			`{data: {a: c}}`, `{data: {a: null}}`, `{data: null}`, `{data: {}}`, `{data: {b: ""}}`, `{data: {"bad key": b}}`, `{data: {a: 1}}`, `{immutable: true}`, `{immutable: false}`, `{immutable: null}`,
			`{binaryData: {c: ZGQ=}}`, `{binaryData: {c: "not base64!"}}`, `{status: {a: b}}`, `{spec: {a: b}}`,
		),
	},
	{
		gvk: schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
		manifests: []string{
			`{apiVersion: v1, kind: Secret, data: {a: Yg==}}`, `{apiVersion: v1, kind: Secret, stringData: {a: b}, immutable: true}`, `{apiVersion: v1, kind: Secret, type: example.test/x, data: {a: Yg==}, stringData: {a: c}}`,
		},
		patches: withCommon(`{data: {a: Yw==}}`, `{data: {a: null}}`, `{data: null}`, `{stringData: {z: "1"}}`, `{type: other}`, `{immutable: true}`, `{immutable: null}`, `{data: {"bad key": Yg==}}`),
	},
	{
		gvk: schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
		manifests: []string{
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`,
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {minReplicas: 2, maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, metrics: [{type: Resource, resource: {name: memory, target: {type: AverageValue, averageValue: 0.5Gi}}}], behavior: {scaleDown: {stabilizationWindowSeconds: 60}}}}`,
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {minReplicas: 4, maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`,
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 3, scaleTargetRef: {}}}`, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {scaleTargetRef: {kind: Deployment, name: a}}}`,
		},
		patches: withCommon(
			`{spec: {minReplicas: 2}}`, `{spec: {minReplicas: null}}`, `{spec: {minReplicas: 0}}`, `{spec: {maxReplicas: 9}}`, `{spec: {maxReplicas: 1}}`, `{spec: {maxReplicas: 0}}`,
			`{spec: {scaleTargetRef: {name: b}}}`, `{spec: {scaleTargetRef: {name: ""}}}`, `{spec: {metrics: null}}`,
			`{spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: "5"}}}]}}`, `{spec: {metrics: [{type: Pods}]}}`, `{spec: {metrics: [{type: Wrong}]}}`,
			`{spec: {behavior: {scaleUp: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}}}`, `{spec: {behavior: null}}`, `{spec: {unknown: 1}}`,
		),
		status: []string{`{status: {currentReplicas: 2, desiredReplicas: 3}}`, `{status: {currentReplicas: 2, desiredReplicas: 3, currentMetrics: [], conditions: []}}`, `{spec: {maxReplicas: 7}}`},
	},
	{
		gvk: schema.GroupVersionKind{Group: "flagger.app", Version: "v1beta1", Kind: "Canary"},
		manifests: []string{
			`{apiVersion: flagger.app/v1beta1, kind: Canary, spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: a}, service: {port: 80}, analysis: {interval: 10s, threshold: 2, stepWeight: 10, maxWeight: 50}}}`,
			`{apiVersion: flagger.app/v1beta1, kind: Canary, spec: {provider: istio, progressDeadlineSeconds: 60, unknown: 1, targetRef: {kind: Deployment, name: a}, service: {port: 80, targetPort: http, gatewayRefs: [{name: g}], match: [{uri: {prefix: /}}], retries: {attempts: 2}, headers: {request: {add: {a: b}}}},
			  analysis: {interval: 10s, threshold: 2, stepWeights: [1, 5], stepWeightPromotion: 50, sessionAffinity: {cookieName: c}, metrics: [{name: m, interval: 1m, thresholdRange: {min: 99.5, max: 100}, templateRef: {name: t}}], webhooks: [{name: w, url: "http://a.test", type: rollout, metadata: {a: b}}], match: [{headers: {x: {exact: z}}}]}}, status: {phase: Failed}}`,
			`{apiVersion: flagger.app/v1beta1, kind: Canary, spec: {targetRef: {kind: Deployment, name: a}, service: {port: eighty}}}`, `{apiVersion: flagger.app/v1beta1, kind: Canary, spec: {}}`, `{apiVersion: flagger.app/v1beta1, kind: Canary}`,
			`{apiVersion: flagger.app/v1beta1, kind: Canary, metadata: {resourceVersion: "7"}, spec: {targetRef: {kind: Deployment, name: a}, service: {port: 80}, analysis: {interval: 10s}}}`,
		},
		patches: withCommon(
			`{spec: {suspend: true}}`, `{spec: {suspend: false}}`, `{spec: {suspend: null}}`, `{spec: {analysis: {threshold: 3}}}`, `{spec: {analysis: {threshold: 3.5}}}`, `{spec: {analysis: {threshold: many}}}`,
			`{spec: {analysis: {interval: "ten seconds"}}}`, `{spec: {analysis: null}}`, `{spec: {service: {port: 81}}}`, `{spec: {service: {port: null}}}`, `{spec: {service: null}}`, `{spec: null}`, `{spec: {provider: null}}`, `{spec: {provider: kubernetes}}`,
			`{spec: {analysis: {webhooks: [{name: w, url: "http://b.test", type: wrong}]}}}`, `{spec: {analysis: {webhooks: [{name: w, url: "http://b.test"}]}}}`, `{spec: {analysis: {webhooks: null}}}`,
			`{spec: {analysis: {metrics: [{name: m, thresholdRange: {min: 1e2}}]}}}`, `{spec: {analysis: {metrics: [{unknown: 1}]}}}`, `{spec: {analysis: {sessionAffinity: {cookieName: d}}}}`, `{spec: {analysis: {sessionAffinity: null}}}`,
			`{spec: {service: {gatewayRefs: [{name: g, unknown: 1}, {name: h, namespace: n}]}}}`, `{spec: {service: {apex: {annotations: {a: b}}}}}`, `{spec: {targetRef: {name: null}}}`, `{spec: {unknown: {deep: 1}}}`, `{status: {phase: Failed}}`,
		),
		status: []string{
			`{status: {phase: Progressing, canaryWeight: 10, failedChecks: 0, iterations: 0, lastTransitionTime: "2026-01-01T00:00:00Z"}}`, `{status: {phase: Wrong}}`, `{status: {phase: Failed, canaryWeight: 0}}`, `{status: null}`, `{status: {}}`, `{status: {unknown: 1}}`,
			`{status: {canaryWeight: "ten"}}`, `{status: {trackedConfigs: {a: b}, lastAppliedSpec: x}}`, `{status: {trackedConfigs: null}}`, `{status: {trackedConfigs: {a: null, c: d}}}`,
			`{status: {conditions: [{type: Promoted, status: "True", reason: R, message: m, lastUpdateTime: "2026-01-01T00:00:00Z", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`, `{status: {conditions: [{type: Promoted}]}}`,
			`{status: {lastTransitionTime: yesterday}}`, `{status: {serin: {gates: [{name: window, verdict: Wait, since: "2026-01-01T00:00:00.000001Z", unknown: 1}]}}}`, `{status: {serin: null}}`,
			`{spec: {suspend: true}}`, `{metadata: {annotations: {from: status}}}`,
		},
	},
	{
		gvk: schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"},
		manifests: []string{
			`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {parentRefs: [{name: g}], hostnames: [a.test], rules: [{backendRefs: [{name: p, port: 80, weight: 100}, {name: c, port: 80, weight: 0}]}]}}`,
			`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {rules: [{matches: [{headers: [{name: x, value: z}]}, {path: {value: /a}}], filters: [{type: RequestMirror, requestMirror: {backendRef: {name: c, port: 80}}}], backendRefs: [{name: p, port: 80}], timeouts: {request: 1s}}]}}`,
			`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {}}`, `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute}`,
			`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {rules: [{matches: [{path: {type: PathPrefix, value: a}}]}]}}`,
			`{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, spec: {rules: [{backendRefs: [{name: p}]}]}}`,
		},
		patches: withCommon(
			`{spec: {rules: [{backendRefs: [{name: p, port: 80, weight: 90}, {name: c, port: 80, weight: 10}]}]}}`, `{spec: {rules: [{backendRefs: [{name: p, port: 80, weight: -1}]}]}}`, `{spec: {rules: [{backendRefs: [{name: p, port: 80, weight: half}]}]}}`,
			`{spec: {rules: []}}`, `{spec: {rules: null}}`, `{spec: {hostnames: ["*.test"]}}`, `{spec: {hostnames: ["not a host"]}}`, `{spec: {hostnames: null}}`, `{spec: {parentRefs: [{name: g, namespace: n, sectionName: s}]}}`, `{spec: {parentRefs: [{name: g}, {name: g}]}}`,
			`{spec: {rules: [{filters: [{type: RequestMirror}]}]}}`, `{spec: {rules: [{filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: a, value: b}]}}], backendRefs: [{name: p, port: 80}]}]}}`,
			`{spec: {rules: [{matches: [{path: {type: Exact, value: /a}, method: GET}], backendRefs: [{name: p, port: 80}]}]}}`, `{spec: {rules: [{matches: [{path: {type: Exact, value: "/a/../b"}}]}]}}`, `{spec: {rules: [{unknown: 1, backendRefs: [{name: p, port: 80, unknown: 2}]}]}}`, `{spec: null}`,
		),
		status: []string{
			`{status: {parents: [{controllerName: a.test/c, parentRef: {name: g}, conditions: [{type: Accepted, status: "True", reason: R, message: m, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}]}]}}`, `{status: {parents: [{controllerName: wrong, parentRef: {name: g}}]}}`, `{status: {parents: []}}`, `{status: null}`,
		},
	},
	{
		gvk: schema.GroupVersionKind{Group: "networking.istio.io", Version: "v1", Kind: "VirtualService"},
		manifests: []string{
			`{apiVersion: networking.istio.io/v1, kind: VirtualService, spec: {hosts: [a], gateways: [mesh], http: [{route: [{destination: {host: p}, weight: 100}, {destination: {host: c}, weight: 0}]}]}}`,
			`{apiVersion: networking.istio.io/v1, kind: VirtualService, spec: {hosts: [a], http: [{match: [{uri: {prefix: /}, headers: {x: {exact: z}}}], retries: {attempts: 3, perTryTimeout: 1s}, timeout: 10s, mirror: {host: c}, mirrorPercentage: {value: 50.5}, route: [{destination: {host: p, port: {number: 80}}, weight: 100}]}]}}`,
			`{apiVersion: networking.istio.io/v1, kind: VirtualService, spec: {hosts: [a], http: [{match: [{uri: {prefix: /, exact: /}}], route: [{destination: {host: p}}]}]}}`, `{apiVersion: networking.istio.io/v1, kind: VirtualService, spec: {unknown: 1}}`, `{apiVersion: networking.istio.io/v1, kind: VirtualService}`,
		},
		patches: withCommon(
			`{spec: {http: [{route: [{destination: {host: p}, weight: 90}, {destination: {host: c}, weight: 10}]}]}}`, `{spec: {http: [{route: [{destination: {host: p}, weight: many}]}]}}`, `{spec: {http: [{route: [{weight: 1}]}]}}`, `{spec: {http: [{timeout: soon, route: [{destination: {host: p}}]}]}}`,
			`{spec: {http: null}}`, `{spec: {hosts: [b]}}`, `{spec: {hosts: null}}`, `{spec: {gateways: []}}`, `{spec: {http: [{match: [{uri: {}}], route: [{destination: {host: p}}]}]}}`, `{spec: {http: [{match: [{headers: {x: {exact: a, prefix: b}}}]}]}}`,
			`{spec: {http: [{mirrorPercentage: {value: 7}, mirror: {host: c}, unknown: 1}]}}`, `{spec: null}`,
		),
		status: []string{`{status: {observedGeneration: "3"}}`, `{status: {observedGeneration: 3, unknown: {a: 1}}}`, `{status: null}`},
	},
}
