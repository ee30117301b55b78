package othercontroller

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

const argoRolloutsImage = "argo-rollouts"

// argoRolloutsFlags are some of Argo Rollouts' that no other program has.
var argoRolloutsFlags = []string{"rollout-resync", "rollout-threads", "analysis-threads", "traefik-api-group"}

// ArgoLeaseName is the name of the leader lease of the Argo Rollouts that serves an instance id.
func ArgoLeaseName(instanceID string) string {
	const name = "argo-rollouts-controller-lock"
	if instanceID == "" {
		return name
	}
	return name + "-" + instanceID
}

// DetectArgoRollouts is the controller that a Deployment runs, where that is Argo Rollouts.
func DetectArgoRollouts(d *appsv1.Deployment) (Controller, bool) {
	return detectController(d, isArgoRollouts)
}

// isArgoRollouts goes by the image, and where somebody gave that another name by flags that no other program has: Serin
// has them too.
func isArgoRollouts(c *corev1.Container, args []string) bool {
	if imageName(c.Image) == serinImage || slices.Contains(args, "controller") {
		return false
	}
	return imageName(c.Image) == argoRolloutsImage || slices.ContainsFunc(argoRolloutsFlags, func(flag string) bool {
		_, given := flagValue(args, flag)
		return given
	})
}

// MayRunArgoRollouts is false for containers, as decoded JSON, none of which can be Argo Rollouts.
func MayRunArgoRollouts(containers []any) bool {
	return mayRun(containers, argoRolloutsImage, argoRolloutsFlags)
}

// ServesInstance is true where an Argo Rollouts acts on objects of that namespace that carry that instance id.
func (c Controller) ServesInstance(namespace, instanceID string) bool {
	id, _ := flagValue(c.Args, "instance-id")
	return id == instanceID && (!c.isNamespaced() || c.Namespace == namespace)
}

// isNamespaced is true where it acts on its own namespace only. The flag has no value of its own.
func (c Controller) isNamespaced() bool {
	return slices.ContainsFunc(c.Args, func(arg string) bool {
		return slices.Contains([]string{"--namespaced", "--namespaced=true", "-namespaced", "-namespaced=true"}, arg)
	})
}

// ArgoRolloutsSigns are the signs that an Argo Rollouts lives that acts on objects of that namespace that carry that instance id.
// They are those of Acting.
func (s Scope) ArgoRolloutsSigns(namespace, instanceID string, deployments []Controller, leases []coordinationv1.Lease, now time.Time) []Candidate {
	named := slices.DeleteFunc(slices.Clone(leases), func(l coordinationv1.Lease) bool { return l.Name != ArgoLeaseName(instanceID) })
	return s.actingSigns(deployments, named, now, func(c Controller) bool { return c.ServesInstance(namespace, instanceID) })
}
