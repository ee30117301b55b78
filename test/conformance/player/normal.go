package main

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// normalise removes identities, bookkeeping, status and defaults of the API server from an object, so that only the fields
// that a controller decided remain.
func normalise(u *unstructured.Unstructured) map[string]any {
	o := u.DeepCopy().Object
	delete(o, "status")
	delete(o, "apiVersion")
	delete(o, "kind")
	meta, _ := o["metadata"].(map[string]any)
	for _, k := range []string{
		"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "name", "namespace",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		delete(meta, k)
	}
	if owners, ok := meta["ownerReferences"].([]any); ok {
		for _, x := range owners {
			delete(x.(map[string]any), "uid")
		}
	}
	if a, ok := meta["annotations"].(map[string]any); ok {
		delete(a, "deployment.kubernetes.io/revision")
		delete(a, "deprecated.daemonset.template.generation")
		if len(a) == 0 {
			delete(meta, "annotations")
		}
	}
	if len(meta) == 0 {
		delete(o, "metadata")
	}
	spec, _ := o["spec"].(map[string]any)
	switch u.GetKind() {
	case "Deployment":
		drop(spec, "progressDeadlineSeconds", int64(600))
		drop(spec, "revisionHistoryLimit", int64(10))
		drop(spec, "strategy", map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": "25%", "maxUnavailable": "25%"}})
		template(spec)
	case "DaemonSet":
		drop(spec, "revisionHistoryLimit", int64(10))
		drop(spec, "updateStrategy", map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(0), "maxUnavailable": int64(1)}})
		template(spec)
	case "Service":
		if strings.HasPrefix(u.GetAPIVersion(), "serving.") {
			template(spec)
			break
		}
		if spec["clusterIP"] != "None" {
			delete(spec, "clusterIP")
		}
		delete(spec, "clusterIPs")
		delete(spec, "ipFamilies")
		delete(spec, "ipFamilyPolicy")
		drop(spec, "internalTrafficPolicy", "Cluster")
		drop(spec, "sessionAffinity", "None")
	}
	return o
}

func drop(m map[string]any, key string, def any) {
	if m != nil && reflect.DeepEqual(m[key], def) {
		delete(m, key)
	}
}

func template(spec map[string]any) {
	t, _ := spec["template"].(map[string]any)
	if t == nil {
		return
	}
	if m, ok := t["metadata"].(map[string]any); ok {
		delete(m, "creationTimestamp")
		if len(m) == 0 {
			delete(t, "metadata")
		}
	}
	p, _ := t["spec"].(map[string]any)
	drop(p, "restartPolicy", "Always")
	drop(p, "terminationGracePeriodSeconds", int64(30))
	drop(p, "dnsPolicy", "ClusterFirst")
	drop(p, "schedulerName", "default-scheduler")
	drop(p, "securityContext", map[string]any{})
	for _, list := range []string{"containers", "initContainers"} {
		cs, _ := p[list].([]any)
		for _, x := range cs {
			c := x.(map[string]any)
			drop(c, "terminationMessagePath", "/dev/termination-log")
			drop(c, "terminationMessagePolicy", "File")
			drop(c, "imagePullPolicy", "IfNotPresent")
			drop(c, "resources", map[string]any{})
			ports, _ := c["ports"].([]any)
			for _, y := range ports {
				drop(y.(map[string]any), "protocol", "TCP")
			}
		}
	}
	vs, _ := p["volumes"].([]any)
	for _, x := range vs {
		for _, s := range []string{"configMap", "secret", "projected"} {
			if m, ok := x.(map[string]any)[s].(map[string]any); ok {
				drop(m, "defaultMode", int64(420))
			}
		}
	}
}
