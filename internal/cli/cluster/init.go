package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/scaffold"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// Workload is the name of a workload without a release.
type Workload struct {
	// Kind is Deployment or DaemonSet.
	Kind string
	Name string
}

// ScaffoldInput reads everything that the manifest of a release for a workload depends on. Kinds that the cluster does not have, or
// that the user has no permission to read, are no error. Errors: ErrNotFound if there is no such workload, ErrUnreachable.
func (s *Session) ScaffoldInput(ctx context.Context, namespace string, name Workload) (scaffold.Input, error) {
	workload := &unstructured.Unstructured{}
	workload.SetGroupVersionKind(workloadKind(name.Kind))
	err := s.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name.Name}, workload)
	switch {
	case apierrors.IsNotFound(err):
		return scaffold.Input{}, s.noWorkloadError(ctx, namespace, name, err)
	case err != nil:
		return scaffold.Input{}, describeError("get "+name.Kind+" "+name.Name+inNamespace(namespace), err, explain.KindCanary)
	}
	in := scaffold.Input{Workload: workload}
	for _, kind := range scaffold.Kinds() {
		objects, err := s.listKind(ctx, namespace, kind)
		switch {
		case isForbidden(err):
			in.Unread = append(in.Unread, kind.Kind)
		case err != nil:
			return scaffold.Input{}, describeError("list objects of the kind "+kind.Kind+inNamespace(namespace), err, explain.KindCanary)
		default:
			in.Objects = append(in.Objects, objects...)
		}
	}
	controllers := s.findControllers(ctx, nil)
	in.SelectorLabels = controllers.flags.WorkloadOptions().SelectorLabels
	return in, nil
}

func workloadKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}
}

// listKind lists the objects of a kind in its first served version; none if no version is served.
func (s *Session) listKind(ctx context.Context, namespace string, kind scaffold.ReadKind) ([]*unstructured.Unstructured, error) {
	for _, version := range kind.Versions {
		gvk := schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Kind}
		var options []client.ListOption
		if !kind.ClusterScoped {
			options = append(options, client.InNamespace(namespace))
		}
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind.Kind + "List"))
		err := s.Client.List(ctx, &list, options...)
		if isUnknownKind(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out := make([]*unstructured.Unstructured, 0, len(list.Items))
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(gvk)
			out = append(out, &list.Items[i])
		}
		return out, nil
	}
	return nil, nil
}

// Workloads returns the names of the workloads of a kind in a namespace, sorted.
func (s *Session) Workloads(ctx context.Context, namespace, kind string) ([]string, error) {
	objects, err := s.listKind(ctx, namespace, scaffold.ReadKind{Group: "apps", Versions: []string{"v1"}, Kind: kind})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	slices.Sort(names)
	return names, nil
}

// noWorkloadError describes a workload that does not exist, and suggests a similar one.
func (s *Session) noWorkloadError(ctx context.Context, namespace string, name Workload, cause error) error {
	text := fmt.Sprintf("there is no %s %s%s", name.Kind, name.Name, inNamespace(namespace))
	existing, _ := s.Workloads(ctx, namespace, name.Kind) // without permission to list there is no suggestion
	if nearest := similar.To(name.Name, existing); nearest != "" {
		return failure{ErrNotFound, cause, text + ": did you mean " + nearest + "?"}
	}
	return failure{ErrNotFound, cause, text + ": list all with: kubectl get " + strings.ToLower(name.Kind) + "s -A"}
}
