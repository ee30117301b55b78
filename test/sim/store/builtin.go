package store

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file contains the defaults and the validation of built-in kinds, as far as they may be relevant in a simulation.

var (
	deployments = rules{initial: deploymentDefaults, faults: deploymentFaults, inherit: func(content, old map[string]any) {
		labels := object(old, "metadata")["labels"]
		metadata := object(content, "metadata")
		if labels == nil {
			delete(metadata, "labels")
			return
		}
		metadata["labels"] = labels
	}}
	replicaSets = rules{initial: func(content map[string]any) {
		spec := object(content, "spec")
		setDefault(spec, "replicas", int64(1))
		podDefaults(object(spec, "template", "spec"), false)
	}, faults: replicaSetFaults}
	daemonSets = rules{initial: func(content map[string]any) {
		spec := object(content, "spec")
		setDefault(spec, "revisionHistoryLimit", int64(10))
		rolling(spec, "updateStrategy", int64(1), int64(0))
		podDefaults(object(spec, "template", "spec"), false)
	}, faults: func(content, old map[string]any) field.ErrorList { return selectorFaults(content, old) }}
	pods = rules{initial: func(content map[string]any) { podDefaults(object(content, "spec"), true) }, prepare: func(_ *Server, content, old map[string]any) {
		if old == nil {
			content["status"] = map[string]any{"phase": "Pending", "qosClass": "BestEffort"}
		}
	}, faults: podFaults}
	services    = rules{initial: serviceDefaults, prepare: (*Server).allocate, faults: serviceFaults}
	autoscalers = rules{initial: autoscalerDefaults, faults: autoscalerFaults}
	configMaps  = rules{faults: configMapFaults}
	secrets     = rules{initial: func(content map[string]any) { setDefault(content, "type", "Opaque") }, prepare: encodeStringData, faults: secretFaults}
)

func deploymentDefaults(content map[string]any) {
	spec := object(content, "spec")
	setDefault(spec, "replicas", int64(1))
	setDefault(spec, "revisionHistoryLimit", int64(10))
	setDefault(spec, "progressDeadlineSeconds", int64(600))
	rolling(spec, "strategy", "25%", "25%")
	podDefaults(object(spec, "template", "spec"), false)
}

// rolling sets the defaults of a rolling update.
func rolling(spec map[string]any, name string, unavailable, surge any) {
	strategy := object(spec, name)
	if strategy == nil {
		return
	}
	setDefault(strategy, "type", "RollingUpdate")
	if strategy["type"] != "RollingUpdate" {
		return
	}
	setDefault(strategy, "rollingUpdate", map[string]any{})
	update := object(strategy, "rollingUpdate")
	setDefault(update, "maxUnavailable", unavailable)
	setDefault(update, "maxSurge", surge)
}

// podDefaults sets the defaults of the spec of a pod, or of a template.
func podDefaults(spec map[string]any, pod bool) {
	if spec == nil {
		return
	}
	setDefault(spec, "dnsPolicy", "ClusterFirst")
	setDefault(spec, "restartPolicy", "Always")
	setDefault(spec, "securityContext", map[string]any{})
	setDefault(spec, "terminationGracePeriodSeconds", int64(30))
	setDefault(spec, "schedulerName", "default-scheduler")
	if account := text(spec, "serviceAccountName"); account != "" {
		spec["serviceAccount"] = account // the deprecated name of the field
	} else if account := text(spec, "serviceAccount"); account != "" {
		spec["serviceAccountName"] = account
	}
	if pod {
		setDefault(spec, "enableServiceLinks", true)
	}
	for _, field := range []string{"containers", "initContainers"} {
		for _, container := range items(spec, field) {
			containerDefaults(container)
			if pod {
				requestsOfLimits(object(container, "resources"))
			}
		}
	}
	for _, volume := range items(spec, "volumes") {
		volumeDefaults(volume)
	}
}

func requestsOfLimits(resources map[string]any) {
	limits := object(resources, "limits")
	if len(limits) == 0 {
		return
	}
	setDefault(resources, "requests", map[string]any{})
	for name, limit := range limits {
		setDefault(object(resources, "requests"), name, limit)
	}
}

func containerDefaults(container map[string]any) {
	policy := "IfNotPresent"
	if usesLatestTag(text(container, "image")) {
		policy = "Always"
	}
	setDefault(container, "imagePullPolicy", policy)
	setDefault(container, "terminationMessagePath", "/dev/termination-log")
	setDefault(container, "terminationMessagePolicy", "File")
	for _, port := range items(container, "ports") {
		setDefault(port, "protocol", "TCP")
	}
	for _, variable := range items(container, "env") {
		if ref := object(variable, "valueFrom", "fieldRef"); ref != nil {
			setDefault(ref, "apiVersion", "v1")
		}
	}
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		if probe := object(container, name); probe != nil {
			probeDefaults(probe)
		}
	}
	lifecycle := object(container, "lifecycle")
	for _, name := range []string{"preStop", "postStart"} {
		if get := object(lifecycle, name, "httpGet"); get != nil {
			setDefault(get, "path", "/")
			setDefault(get, "scheme", "HTTP")
		}
	}
}

// usesLatestTag reports whether an image has no tag, or the tag latest.
func usesLatestTag(image string) bool {
	if strings.Contains(image, "@") {
		return false
	}
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, found := strings.Cut(name, ":")
	return !found || tag == "latest"
}

func probeDefaults(probe map[string]any) {
	setDefault(probe, "timeoutSeconds", int64(1))
	setDefault(probe, "periodSeconds", int64(10))
	setDefault(probe, "successThreshold", int64(1))
	setDefault(probe, "failureThreshold", int64(3))
	if get := object(probe, "httpGet"); get != nil {
		setDefault(get, "path", "/")
		setDefault(get, "scheme", "HTTP")
	}
	if grpc := object(probe, "grpc"); grpc != nil {
		setDefault(grpc, "service", "")
	}
}

func volumeDefaults(volume map[string]any) {
	if len(volume) == 1 { // a name only
		volume["emptyDir"] = map[string]any{}
	}
	for _, name := range []string{"configMap", "secret", "downwardAPI", "projected"} {
		if source := object(volume, name); source != nil {
			setDefault(source, "defaultMode", int64(0o644))
		}
	}
}

func serviceDefaults(content map[string]any) {
	spec := object(content, "spec")
	if spec == nil {
		return
	}
	setDefault(spec, "type", "ClusterIP")
	setDefault(spec, "sessionAffinity", "None")
	if spec["sessionAffinity"] == "ClientIP" {
		setDefault(spec, "sessionAffinityConfig", map[string]any{"clientIP": map[string]any{"timeoutSeconds": int64(10800)}})
	} else {
		delete(spec, "sessionAffinityConfig")
	}
	for _, port := range items(spec, "ports") {
		setDefault(port, "protocol", "TCP")
		if target := port["targetPort"]; target == nil || target == int64(0) || target == "" {
			port["targetPort"] = port["port"]
		}
	}
	switch spec["type"] {
	case "NodePort", "LoadBalancer":
		setDefault(spec, "externalTrafficPolicy", "Cluster")
		setDefault(spec, "internalTrafficPolicy", "Cluster")
	case "ClusterIP":
		setDefault(spec, "internalTrafficPolicy", "Cluster")
		if len(list(spec, "externalIPs")) > 0 {
			setDefault(spec, "externalTrafficPolicy", "Cluster")
		}
	}
	if spec["type"] == "LoadBalancer" {
		setDefault(spec, "allocateLoadBalancerNodePorts", true)
	}
}

func needsAddress(spec map[string]any) bool { return spec["type"] != "ExternalName" }
func needsNodePort(spec map[string]any) bool {
	return spec["type"] == "NodePort" || spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false
}

// allocate assigns addresses and ports to a Service, or retains the existing ones.
func (s *Server) allocate(content, old map[string]any) {
	spec, before := object(content, "spec"), object(old, "spec")
	if spec == nil || old != nil && identical(spec, before) {
		return
	}
	spec = cloneMap(spec) // its ports may be those of the old version
	content["spec"] = spec
	if before != nil {
		inheritService(spec, before)
	}
	if !needsAddress(spec) {
		return
	}
	metadata := object(content, "metadata")
	key := text(metadata, "namespace") + "/" + text(metadata, "name")
	if text(spec, "clusterIP") == "" && len(list(spec, "clusterIPs")) == 0 {
		address := s.address(key)
		spec["clusterIP"], spec["clusterIPs"] = address, []any{address}
	}
	if _, found := spec["clusterIPs"]; !found {
		spec["clusterIPs"] = []any{spec["clusterIP"]}
	}
	selectorless := spec["clusterIP"] == "None" && len(object(spec, "selector")) == 0
	if selectorless {
		setDefault(spec, "ipFamilyPolicy", "RequireDualStack")
	}
	setDefault(spec, "ipFamilyPolicy", "SingleStack")
	families := []any{"IPv4"}
	if selectorless && spec["ipFamilyPolicy"] != "SingleStack" {
		families = append(families, "IPv6")
	}
	setDefault(spec, "ipFamilies", families)
	if needsNodePort(spec) {
		var taken []any
		for _, port := range items(spec, "ports") {
			if _, found := port["nodePort"]; !found {
				port["nodePort"] = s.nodePort(key+"/"+text(port, "name"), taken)
			}
			taken = append(taken, port["nodePort"])
		}
	}
}

// inheritService retains what was allocated before, and removes what a change of the type invalidates.
func inheritService(spec, before map[string]any) {
	now, was := needsAddress(spec), needsAddress(before)
	if was && now {
		if text(spec, "clusterIP") == "" {
			spec["clusterIP"] = before["clusterIP"]
		}
		if _, found := spec["clusterIPs"]; !found && spec["clusterIP"] == before["clusterIP"] {
			spec["clusterIPs"] = before["clusterIPs"]
		} else if spec["clusterIP"] != before["clusterIP"] && identical(graft(spec["clusterIPs"], before["clusterIPs"]), before["clusterIPs"]) {
			spec["clusterIPs"] = []any{spec["clusterIP"]}
		}
		for _, field := range []string{"ipFamilyPolicy", "ipFamilies"} {
			if value, found := before[field]; found {
				setDefault(spec, field, value)
			}
		}
	}
	if was && !now {
		for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
			if identical(graft(spec[field], before[field]), before[field]) {
				delete(spec, field)
			}
		}
	}
	inheritPorts(spec, before)
	if before["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] == before["allocateLoadBalancerNodePorts"] {
		delete(spec, "allocateLoadBalancerNodePorts")
	}
	outside := func(spec map[string]any) bool {
		return spec["type"] == "LoadBalancer" || spec["type"] == "NodePort" || len(list(spec, "externalIPs")) > 0
	}
	if outside(before) && !outside(spec) && spec["externalTrafficPolicy"] == before["externalTrafficPolicy"] {
		delete(spec, "externalTrafficPolicy")
	}
}

func inheritPorts(spec, before map[string]any) {
	ports := map[string]any{}
	for _, port := range items(before, "ports") {
		ports[text(port, "name")] = port["nodePort"]
	}
	if needsNodePort(before) && needsNodePort(spec) {
		var used []any
		for _, port := range items(spec, "ports") {
			used = append(used, port["nodePort"])
		}
		for _, port := range items(spec, "ports") {
			if had := ports[text(port, "name")]; port["nodePort"] == nil && had != nil && !slices.Contains(used, had) {
				port["nodePort"] = had
			}
		}
	}
	if needsNodePort(before) && !needsNodePort(spec) {
		unchanged := true
		for _, port := range items(spec, "ports") {
			unchanged = unchanged && (port["nodePort"] == nil || port["nodePort"] == ports[text(port, "name")])
		}
		if unchanged {
			for _, port := range items(spec, "ports") {
				delete(port, "nodePort")
			}
		}
	}
}

// encodeStringData moves stringData to data.
func encodeStringData(_ *Server, content, _ map[string]any) {
	plain := object(content, "stringData")
	if plain == nil {
		return
	}
	delete(content, "stringData")
	data := map[string]any{}
	maps.Copy(data, object(content, "data"))
	for key := range plain {
		data[key] = encoded(text(plain, key))
	}
	content["data"] = data
}

func autoscalerDefaults(content map[string]any) {
	spec := object(content, "spec")
	setDefault(spec, "minReplicas", int64(1))
	setDefault(spec, "metrics", []any{map[string]any{
		"type":     "Resource",
		"resource": map[string]any{"name": "cpu", "target": map[string]any{"type": "Utilization", "averageUtilization": int64(80)}},
	}})
	behavior := object(spec, "behavior")
	if behavior == nil {
		return
	}
	policy := func(kind string, value int64) any {
		return map[string]any{"type": kind, "value": value, "periodSeconds": int64(15)}
	}
	setDefault(behavior, "scaleUp", map[string]any{})
	setDefault(behavior, "scaleDown", map[string]any{})
	up, down := object(behavior, "scaleUp"), object(behavior, "scaleDown")
	setDefault(up, "stabilizationWindowSeconds", int64(0))
	setDefault(up, "policies", []any{policy("Pods", 4), policy("Percent", 100)})
	setDefault(up, "selectPolicy", "Max")
	setDefault(down, "policies", []any{policy("Percent", 100)})
	setDefault(down, "selectPolicy", "Max")
}
