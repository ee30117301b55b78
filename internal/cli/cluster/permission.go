package cluster

import (
	"cmp"
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
)

// Permission is the permission for one kind of request in a namespace.
type Permission struct {
	Verb, Group, Resource, Subresource, Namespace string
}

// String describes the permission, such as: patch on rollouts/status in namespace shop.
func (p Permission) String() string {
	text := p.Verb + " on " + p.Resource
	if p.Subresource != "" {
		text += "/" + p.Subresource
	}
	return text + inNamespace(p.Namespace)
}

// PermissionsFor returns what the user needs for a command about an observed release, apart from the event that records it. For a command
// that has no effect now, it returns what the command may need later.
func PermissionsFor(command Command, observed explain.Observation) []Permission {
	object := objectOf(observed)
	own := Permission{Namespace: object.GetNamespace(), Group: flaggerv1.GroupName, Resource: "canaries"}
	if _, isRollout := object.(*argov1.Rollout); isRollout {
		own.Group, own.Resource = argov1.SchemeGroupVersion.Group, "rollouts"
	}
	out := []Permission{own.withVerb("get")}
	if command == Restart || command == Undo {
		return append(out, workloadPermissions(command, object, own)...)
	}
	planned, err := planFor(command, object)
	if err != nil || len(planned.changes.object) > 0 {
		out = append(out, own.withVerb("patch"))
	}
	_, isCanary := object.(*flaggerv1.Canary)
	if err != nil && !isCanary || len(planned.changes.status) > 0 {
		own.Subresource = "status"
		out = append(out, own.withVerb("patch"))
	}
	return out
}

func (p Permission) withVerb(verb string) Permission {
	p.Verb = verb
	return p
}

// workloadPermissions returns what a command needs that changes the pod template of a release, or replaces its pods. own is the
// resource of the release.
func workloadPermissions(command Command, object client.Object, own Permission) []Permission {
	template := own
	switch object := object.(type) {
	case *flaggerv1.Canary:
		template = resourceOf(cmp.Or(object.Spec.TargetRef.APIVersion, "apps/v1"), object.Spec.TargetRef.Kind, own.Namespace)
	case *argov1.Rollout:
		if ref := object.Spec.WorkloadRef; ref != nil && command == Undo {
			template = resourceOf(ref.APIVersion, ref.Kind, own.Namespace)
		}
	}
	out := []Permission{template.withVerb("patch")}
	if command == Undo {
		out = append(out, template.withVerb("get"), Permission{Namespace: own.Namespace, Group: "apps", Resource: "replicasets", Verb: "list"})
	}
	return slices.DeleteFunc(out, func(p Permission) bool { return p == own.withVerb("get") })
}

// resourceOf returns the resource of a kind of workload.
func resourceOf(apiVersion, kind, namespace string) Permission {
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return Permission{Namespace: namespace, Group: resource.Group, Resource: resource.Resource}
}

// IsPermitted reviews whether the user has a permission. Errors: ErrUnreachable.
func (s *Session) IsPermitted(ctx context.Context, p Permission) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: p.Namespace, Verb: p.Verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource,
	}}}
	if err := s.Client.Create(ctx, review); err != nil {
		kind := explain.KindCanary
		if p.Group == argov1.SchemeGroupVersion.Group {
			kind = explain.KindRollout
		}
		return false, describeError("review permissions"+inNamespace(p.Namespace), err, kind)
	}
	return review.Status.Allowed, nil
}
