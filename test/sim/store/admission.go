package store

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func negative(fields map[string]any, path *field.Path, names ...string) field.ErrorList {
	var faults field.ErrorList
	for _, name := range names {
		faults = append(faults, apivalidation.ValidateNonnegativeField(integer(fields, name, 0), path.Child(name))...)
	}
	return faults
}

func deploymentFaults(content, old map[string]any) field.ErrorList {
	if old != nil && identical(content["spec"], old["spec"]) {
		return deploymentStatusFaults(content, old)
	}
	spec, path := object(content, "spec"), field.NewPath("spec")
	faults := negative(spec, path, "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
	if deadline := integer(spec, "progressDeadlineSeconds", 0); deadline <= integer(spec, "minReadySeconds", 0) {
		faults = append(faults, field.Invalid(path.Child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds"))
	}
	faults = append(faults, selectorFaults(content, old)...)
	faults = append(faults, strategyFaults(object(spec, "strategy"), path.Child("strategy"))...)
	return faults
}

func strategyFaults(strategy map[string]any, path *field.Path) field.ErrorList {
	update := object(strategy, "rollingUpdate")
	switch kind := strategy["type"]; kind {
	case "RollingUpdate":
		if zero(update["maxUnavailable"]) && zero(update["maxSurge"]) {
			return field.ErrorList{field.Invalid(path.Child("rollingUpdate", "maxUnavailable"), update["maxUnavailable"], "may not be 0 when `maxSurge` is 0")}
		}
	case "Recreate":
		if update != nil {
			return field.ErrorList{field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'")}
		}
	default:
		return field.ErrorList{field.NotSupported(path, fmt.Sprint(kind), []string{"Recreate", "RollingUpdate"})}
	}
	return nil
}

func zero(value any) bool { return value == int64(0) || value == "0%" || value == "0" }

func deploymentStatusFaults(content, old map[string]any) field.ErrorList {
	if identical(content["status"], old["status"]) {
		return nil
	}
	status, path := object(content, "status"), field.NewPath("status")
	faults := negative(status, path, "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
	total, ready := integer(status, "replicas", 0), integer(status, "readyReplicas", 0)
	for _, name := range []string{"updatedReplicas", "readyReplicas", "availableReplicas"} {
		if n := integer(status, name, 0); n > total {
			faults = append(faults, field.Invalid(path.Child(name), n, "cannot be greater than status.replicas"))
		}
	}
	if n := integer(status, "availableReplicas", 0); n > ready {
		faults = append(faults, field.Invalid(path.Child("availableReplicas"), n, "cannot be greater than readyReplicas"))
	}
	return faults
}

func replicaSetFaults(content, old map[string]any) field.ErrorList {
	if old != nil && identical(content["spec"], old["spec"]) {
		return nil
	}
	return append(negative(object(content, "spec"), field.NewPath("spec"), "replicas", "minReadySeconds"), selectorFaults(content, old)...)
}

// selectorFaults returns the errors of a workload's selector, which is immutable and must select the pods.
func selectorFaults(content, old map[string]any) field.ErrorList {
	spec, before, path := object(content, "spec"), object(old, "spec"), field.NewPath("spec")
	if old != nil && identical(spec["selector"], before["selector"]) && identical(spec["template"], before["template"]) {
		return nil
	}
	var faults field.ErrorList
	chosen := object(spec, "selector")
	selector := &metav1.LabelSelector{}
	switch err := fromContent(chosen, selector); {
	case chosen == nil:
		faults = append(faults, field.Required(path.Child("selector"), ""))
	case err != nil:
		faults = append(faults, field.Invalid(path.Child("selector"), chosen, err.Error()))
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0:
		faults = append(faults, field.Invalid(path.Child("selector"), selector, "empty selector is invalid for deployment"))
	default:
		faults = append(faults, metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	}
	template := object(spec, "template")
	given := texts(object(template, "metadata"), "labels")
	if matches, err := metav1.LabelSelectorAsSelector(selector); err == nil && chosen != nil && !matches.Empty() && !matches.Matches(labels.Set(given)) {
		faults = append(faults, field.Invalid(path.Child("template", "metadata", "labels"), given, "`selector` does not match template `labels`"))
	}
	faults = append(faults, templateFaults(template, path.Child("template"))...)
	if old != nil && !identical(spec["selector"], before["selector"]) {
		faults = append(faults, field.Invalid(path.Child("selector"), spec["selector"], "field is immutable"))
	}
	return faults
}

func templateFaults(template map[string]any, path *field.Path) field.ErrorList {
	metadata := metaOf(object(template, "metadata"))
	faults := apivalidation.ValidateAnnotations(metadata.Annotations, path.Child("metadata", "annotations"))
	faults = append(faults, metavalidation.ValidateLabels(metadata.Labels, path.Child("metadata", "labels"))...)
	spec := object(template, "spec")
	faults = append(faults, containerFaults(spec, path.Child("spec"))...)
	if policy := text(spec, "restartPolicy"); policy != "" && policy != "Always" {
		faults = append(faults, field.NotSupported(path.Child("spec", "restartPolicy"), policy, []string{"Always"}))
	}
	return faults
}

func containerFaults(spec map[string]any, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	containers := items(spec, "containers")
	if len(containers) == 0 {
		faults = append(faults, field.Required(path.Child("containers"), ""))
	}
	var names []string
	for i, container := range containers {
		at := path.Child("containers").Index(i)
		name := text(container, "name")
		switch {
		case name == "":
			faults = append(faults, field.Required(at.Child("name"), ""))
		case slices.Contains(names, name):
			faults = append(faults, field.Duplicate(at.Child("name"), name))
		default:
			for _, why := range validation.IsDNS1123Label(name) {
				faults = append(faults, field.Invalid(at.Child("name"), name, why))
			}
		}
		names = append(names, name)
		if text(container, "image") == "" {
			faults = append(faults, field.Required(at.Child("image"), ""))
		}
		faults = append(faults, containerPortFaults(container, at)...)
	}
	return faults
}

func containerPortFaults(container map[string]any, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	var names []string
	for i, port := range items(container, "ports") {
		at := path.Child("ports").Index(i)
		number := integer(port, "containerPort", 0)
		if number == 0 {
			faults = append(faults, field.Required(at.Child("containerPort"), ""))
		} else {
			for _, why := range validation.IsValidPortNum(int(number)) {
				faults = append(faults, field.Invalid(at.Child("containerPort"), number, why))
			}
		}
		name := text(port, "name")
		if name == "" {
			continue
		}
		for _, why := range validation.IsValidPortName(name) {
			faults = append(faults, field.Invalid(at.Child("name"), name, why))
		}
		if slices.Contains(names, name) {
			faults = append(faults, field.Duplicate(at.Child("name"), name))
		}
		names = append(names, name)
	}
	return faults
}

func podFaults(content, old map[string]any) field.ErrorList {
	if old == nil {
		return containerFaults(object(content, "spec"), field.NewPath("spec"))
	}
	return nil
}

func serviceFaults(content, old map[string]any) field.ErrorList {
	spec, path := object(content, "spec"), field.NewPath("spec")
	if old != nil && identical(spec, object(old, "spec")) {
		return nil
	}
	var faults field.ErrorList
	ports := items(spec, "ports")
	headless := spec["clusterIP"] == "None"
	if len(ports) == 0 && !headless && needsAddress(spec) {
		faults = append(faults, field.Required(path.Child("ports"), ""))
	}
	switch kind := text(spec, "type"); kind {
	case "ClusterIP":
	case "NodePort", "LoadBalancer":
		if headless {
			faults = append(faults, field.Invalid(path.Child("clusterIPs").Index(0), "None", fmt.Sprintf("may not be set to 'None' for %s services", kind)))
		}
	case "ExternalName":
		if text(spec, "clusterIP") != "" {
			faults = append(faults, field.Forbidden(path.Child("clusterIPs"), "may not be set when `type` is 'ExternalName'"))
		}
		if text(spec, "externalName") == "" {
			faults = append(faults, field.Required(path.Child("externalName"), ""))
		}
	default:
		faults = append(faults, field.NotSupported(path.Child("type"), kind, []string{"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"}))
	}
	if spec["ipFamilyPolicy"] == "RequireDualStack" && (!headless || len(object(spec, "selector")) > 0) {
		faults = append(faults, field.Invalid(path.Child("ipFamilyPolicy"), spec["ipFamilyPolicy"], "this cluster is not configured for dual-stack services"))
	}
	faults = append(faults, metavalidation.ValidateLabels(texts(spec, "selector"), path.Child("selector"))...)
	faults = append(faults, servicePortFaults(ports, path)...)
	before := object(old, "spec")
	if before != nil && needsAddress(before) && needsAddress(spec) && before["clusterIP"] != spec["clusterIP"] {
		faults = append(faults, field.Invalid(path.Child("clusterIPs").Index(0), spec["clusterIPs"], "may not change once set"))
	}
	return faults
}

func servicePortFaults(ports []map[string]any, path *field.Path) field.ErrorList {
	var faults field.ErrorList
	var names, seen []string
	for i, port := range ports {
		at := path.Child("ports").Index(i)
		name := text(port, "name")
		switch {
		case name == "" && len(ports) > 1:
			faults = append(faults, field.Required(at.Child("name"), ""))
		case name != "" && slices.Contains(names, name):
			faults = append(faults, field.Duplicate(at.Child("name"), name))
		case name != "":
			for _, why := range validation.IsDNS1123Label(name) {
				faults = append(faults, field.Invalid(at.Child("name"), name, why))
			}
		}
		names = append(names, name)
		number := integer(port, "port", 0)
		for _, why := range validation.IsValidPortNum(int(number)) {
			faults = append(faults, field.Invalid(at.Child("port"), number, why))
		}
		switch target := port["targetPort"].(type) {
		case int64:
			for _, why := range validation.IsValidPortNum(int(target)) {
				faults = append(faults, field.Invalid(at.Child("targetPort"), target, why))
			}
		case string:
			for _, why := range validation.IsValidPortName(target) {
				faults = append(faults, field.Invalid(at.Child("targetPort"), target, why))
			}
		}
		if protocol := text(port, "protocol"); !slices.Contains([]string{"TCP", "UDP", "SCTP"}, protocol) {
			faults = append(faults, field.NotSupported(at.Child("protocol"), protocol, []string{"SCTP", "TCP", "UDP"}))
		}
		if protocol := text(port, "appProtocol"); protocol != "" {
			for _, why := range validation.IsQualifiedName(protocol) {
				faults = append(faults, field.Invalid(at.Child("appProtocol"), protocol, why))
			}
		}
		if pair := text(port, "protocol") + strconv.FormatInt(number, 10); slices.Contains(seen, pair) {
			faults = append(faults, field.Duplicate(at, port))
		} else {
			seen = append(seen, pair)
		}
	}
	return faults
}

func autoscalerFaults(content, old map[string]any) field.ErrorList {
	spec, path := object(content, "spec"), field.NewPath("spec")
	if old != nil && identical(spec, object(old, "spec")) {
		return nil
	}
	var faults field.ErrorList
	least, most := integer(spec, "minReplicas", 1), integer(spec, "maxReplicas", 0)
	if least < 1 {
		faults = append(faults, field.Invalid(path.Child("minReplicas"), least, "must be greater than or equal to 1"))
	}
	switch {
	case most == 0:
		faults = append(faults, field.Required(path.Child("maxReplicas"), "must be set and greater than 0"))
	case most < 0:
		faults = append(faults, field.Invalid(path.Child("maxReplicas"), most, "must be greater than or equal to 1"))
	}
	if most < least {
		faults = append(faults, field.Invalid(path.Child("maxReplicas"), most, "must be greater than or equal to `minReplicas`"))
	}
	ref := object(spec, "scaleTargetRef")
	for _, name := range []string{"kind", "name"} {
		if text(ref, name) == "" {
			faults = append(faults, field.Required(path.Child("scaleTargetRef", name), ""))
		}
	}
	for i, metric := range items(spec, "metrics") {
		faults = append(faults, metricFaults(metric, path.Child("metrics").Index(i))...)
	}
	return faults
}

// metricSources contains the field of each type of metric.
var metricSources = map[string]string{
	"ContainerResource": "containerResource", "External": "external", "Object": "object", "Pods": "pods", "Resource": "resource",
}

func metricFaults(metric map[string]any, path *field.Path) field.ErrorList {
	kind := text(metric, "type")
	source, known := metricSources[kind]
	if !known {
		return field.ErrorList{field.NotSupported(path.Child("type"), kind, []string{"ContainerResource", "External", "Object", "Pods", "Resource"})}
	}
	if metric[source] == nil {
		return field.ErrorList{field.Required(path.Child(source), "must populate information for the given metric source")}
	}
	target := object(metric, source, "target")
	if quantity, err := resource.ParseQuantity(text(target, "averageValue")); err == nil && quantity.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path.Child(source, "target", "averageValue"), target["averageValue"], "must be positive")}
	}
	return nil
}

func configMapFaults(content, old map[string]any) field.ErrorList {
	faults := keyFaults(content, old, "data", "binaryData")
	return append(faults, immutableFaults(content, old, "data", "binaryData")...)
}

func secretFaults(content, old map[string]any) field.ErrorList {
	faults := keyFaults(content, old, "data")
	if old != nil && content["type"] != old["type"] {
		faults = append(faults, field.Invalid(field.NewPath("type"), content["type"], "field is immutable"))
	}
	return append(faults, immutableFaults(content, old, "data")...)
}

func keyFaults(content, old map[string]any, fields ...string) field.ErrorList {
	var faults field.ErrorList
	for _, name := range fields {
		data := object(content, name)
		if old != nil && identical(content[name], old[name]) {
			continue
		}
		for _, key := range sortedKeys(data) {
			for _, why := range validation.IsConfigMapKey(key) {
				faults = append(faults, field.Invalid(field.NewPath(name).Key(key), key, why))
			}
		}
	}
	return faults
}

// immutableFaults rejects changes of immutable fields.
func immutableFaults(content, old map[string]any, fields ...string) field.ErrorList {
	if old == nil || old["immutable"] != true {
		return nil
	}
	var faults field.ErrorList
	if content["immutable"] != true {
		faults = append(faults, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	for _, name := range fields {
		if !identical(graft(content[name], old[name]), old[name]) {
			faults = append(faults, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
		}
	}
	return faults
}
