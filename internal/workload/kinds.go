package workload

import flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"

// ForCanary returns the Workload of a Canary's target; nil for an unsupported kind.
func (w *Workloads) ForCanary(c *flaggerv1.Canary) Workload {
	switch ref := c.Spec.TargetRef; {
	case ref.Kind == deploymentKind.Kind:
		return newTemplateWorkload(w, deployments{})
	case ref.Kind == daemonSetKind.Kind:
		return newTemplateWorkload(w, daemonSets{})
	case ref.Knative():
		return knativeWorkload{Workloads: w}
	case ref.Kind == serviceKind.Kind:
		return serviceWorkload{Workloads: w}
	default:
		return nil
	}
}
