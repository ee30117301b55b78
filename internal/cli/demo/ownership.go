package demo

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Kind is a kind of objects of a namespace.
type Kind struct {
	schema.GroupVersionKind
	// IsOptional is true if a cluster may not have the kind.
	IsOptional bool
}

// Kinds returns the kinds of objects that the demo creates or that are created because of it, and those of other applications. They are
// read before the demo uses a namespace.
func Kinds() []Kind {
	var out []Kind
	add := func(group, version string, of Kind, kinds ...string) {
		for _, kind := range kinds {
			of.GroupVersionKind = schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
			out = append(out, of)
		}
	}
	add("apps", "v1", Kind{}, "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
	add("batch", "v1", Kind{}, "Job", "CronJob")
	add("", "v1", Kind{}, "Service", "Pod", "PersistentVolumeClaim")
	add(flaggerv1.GroupName, "v1beta1", Kind{IsOptional: true}, flaggerv1.CanaryKind)
	add(argov1.GroupName, "v1alpha1", Kind{IsOptional: true}, argov1.RolloutKind, "AnalysisTemplate", "AnalysisRun")
	add("gateway.networking.k8s.io", "v1", Kind{IsOptional: true}, "HTTPRoute")
	return out
}

// IsOwn reports whether the demo created an object: it has the label.
func IsOwn(object metav1.Object) bool { return object.GetLabels()[Label] == labelValue }

// Separate returns the objects that exist because of the demo, which created them or an owner of them, and those of others, as kind
// and name. Objects that Kubernetes creates in each namespace belong to neither. known are the UIDs of objects that existed because
// of the demo before, to which it adds: the owner of an object is often gone first.
func Separate(objects []metav1.PartialObjectMetadata, known map[types.UID]bool) (own, foreign []string) {
	isOwn := make([]bool, len(objects))
	services := map[string]bool{}
	hasOwner := func(r metav1.OwnerReference) bool { return known[r.UID] }
	for added := true; added; {
		added = false
		for i := range objects {
			o := &objects[i]
			isEndpoints := o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Endpoints"}) && services[o.Name] // they have the name of their Service, and no owner
			if isOwn[i] || !IsOwn(o) && !known[o.UID] && !isEndpoints && !slices.ContainsFunc(o.OwnerReferences, hasOwner) {
				continue
			}
			isOwn[i], added = true, true
			if o.UID != "" {
				known[o.UID] = true
			}
			if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) {
				services[o.Name] = true
			}
		}
	}
	listed := map[types.UID]bool{} // an object may exist in several APIs
	for i := range objects {
		switch o := &objects[i]; {
		case isOwn[i]:
			own = append(own, o.Kind+" "+o.Name)
		case !isOfNamespace(o) && !listed[o.UID]:
			foreign = append(foreign, o.Kind+" "+o.Name)
			listed[o.UID] = o.UID != ""
		}
	}
	return own, foreign
}

// namespaceAccounts are the ServiceAccounts that Kubernetes and OpenShift create in each namespace.
var namespaceAccounts = []string{"default", "builder", "deployer"}

// perNamespace are the objects that Kubernetes, Istio and OpenShift create in each namespace.
var perNamespace = map[schema.GroupKind][]string{
	{Kind: "ConfigMap"}:      {"kube-root-ca.crt", "istio-ca-root-cert", "openshift-service-ca.crt"},
	{Kind: "ServiceAccount"}: namespaceAccounts,
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}: {"system:deployers", "system:image-builders", "system:image-pullers"},
}

// isOfNamespace reports whether an object is created in each namespace, or records what happened in it. Other groups may have kinds with
// the same names.
func isOfNamespace(o *metav1.PartialObjectMetadata) bool {
	switch kind := o.GroupVersionKind().GroupKind(); kind {
	case schema.GroupKind{Kind: "Secret"}:
		return slices.Contains(namespaceAccounts, o.Annotations[corev1.ServiceAccountNameKey])
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"}:
		return true
	default:
		return slices.Contains(perNamespace[kind], o.Name)
	}
}
