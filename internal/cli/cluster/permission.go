package cluster

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// MissingPermissions returns the permissions that the user lacks to control the releases of a kind in a namespace, such as: patch on
// rollouts/status in namespace shop. Errors: ErrUnreachable.
func (s *Session) MissingPermissions(ctx context.Context, kind explain.Kind, namespace string) ([]string, error) {
	group, resource, subresources := flaggerv1.GroupName, "canaries", []string{""}
	if kind == explain.KindRollout {
		group, resource, subresources = argov1.SchemeGroupVersion.Group, "rollouts", []string{"", "status"}
	}
	var missing []string
	for _, subresource := range subresources {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "patch", Group: group, Resource: resource, Subresource: subresource,
		}}}
		if err := s.Client.Create(ctx, review); err != nil {
			return nil, describeError("review permissions"+inNamespace(namespace), err, kind)
		}
		if !review.Status.Allowed {
			full := resource
			if subresource != "" {
				full += "/" + subresource
			}
			missing = append(missing, fmt.Sprintf("patch on %s%s", full, inNamespace(namespace)))
		}
	}
	return missing, nil
}
