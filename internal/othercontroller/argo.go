package othercontroller

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

const argoRolloutsImage = "argo-rollouts"

// argoRolloutsFlags are some flags that only Argo Rollouts has.
var argoRolloutsFlags = []string{"rollout-resync", "rollout-threads", "analysis-threads", "traefik-api-group"}

// ArgoLeaseName returns the name of the leader election lease of the Argo Rollouts that serves an instance ID.
func ArgoLeaseName(instanceID string) string {
	const name = "argo-rollouts-controller-lock"
	if instanceID == "" {
		return name
	}
	return name + "-" + instanceID
}

// DetectArgoRollouts returns the controller that a Deployment runs, if it is Argo Rollouts.
func DetectArgoRollouts(d *appsv1.Deployment) (Controller, bool) {
	return detectController(d, isArgoRollouts)
}

// isArgoRollouts recognises Argo Rollouts by its image or, if the image was renamed, by flags that only Argo Rollouts and Serin
// have. Serin's Deployments are excluded.
func isArgoRollouts(c *corev1.Container, args []string) bool {
	if imageName(c.Image) == serinImage || slices.Contains(args, "controller") {
		return false
	}
	return imageName(c.Image) == argoRolloutsImage || slices.ContainsFunc(argoRolloutsFlags, func(flag string) bool {
		_, given := flagValue(args, flag)
		return given
	})
}

// MayRunArgoRollouts is like MayRunFlagger, for Argo Rollouts.
func MayRunArgoRollouts(containers []any) bool {
	return mayRun(containers, argoRolloutsImage, argoRolloutsFlags)
}

// ServesInstance reports whether an Argo Rollouts acts on the objects of a namespace with an instance ID.
func (c Controller) ServesInstance(namespace, instanceID string) bool {
	id, _ := flagValue(c.Args, "instance-id")
	return id == instanceID && (!c.isNamespaced() || c.Namespace == namespace)
}

// isNamespaced reports whether an Argo Rollouts acts on its own namespace only. The boolean flag takes no separate value argument.
func (c Controller) isNamespaced() bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool {
		return slices.Contains([]string{"--namespaced", "--namespaced=true", "-namespaced", "-namespaced=true"}, arg)
	})
}

// ArgoRolloutsSigns returns the signs of a running Argo Rollouts that acts on the objects of a namespace with an instance ID. For
// the signs see FlaggerSigns.
func (s Scope) ArgoRolloutsSigns(namespace, instanceID string, deployments []Controller, leases []coordinationv1.Lease, now time.Time) []Candidate {
	named := slices.DeleteFunc(slices.Clone(leases), func(l coordinationv1.Lease) bool { return l.Name != ArgoLeaseName(instanceID) })
	return s.actingSigns(deployments, named, now, func(c Controller) bool { return c.ServesInstance(namespace, instanceID) })
}
