package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/similar"
)

// ReleaseName is the name of an existing release, with its phase.
type ReleaseName struct {
	Key   explain.Key
	Phase string
}

// ReleaseNames returns the names of the selected releases, sorted by namespace, name and kind. It observes nothing else.
func (s *Session) ReleaseNames(ctx context.Context, sel Selection) ([]ReleaseName, error) {
	found, err := s.listObjects(ctx, sel)
	if err != nil {
		return nil, err
	}
	out := make([]ReleaseName, 0, len(found.objects))
	for _, object := range found.objects {
		out = append(out, ReleaseName{Key: keyOf(object), Phase: phaseOf(object)})
	}
	return out, nil
}

func phaseOf(object client.Object) string {
	switch object := object.(type) {
	case *flaggerv1.Canary:
		return string(object.Status.Phase)
	case *argov1.Rollout:
		return string(object.Status.Phase)
	default:
		return ""
	}
}

// Namespaces returns the names of all namespaces.
func (s *Session) Namespaces(ctx context.Context) ([]string, error) {
	var list corev1.NamespaceList
	if err := s.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	out := make([]string, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	slices.Sort(out)
	return out, nil
}

// notFoundError describes a name that no release has, and suggests an existing one: of another kind or with a similar name in the
// namespace, or with the same name in another namespace.
func (s *Session) notFoundError(ctx context.Context, namespace string, name Name, cause error) error {
	wanted := "Canary or Rollout"
	if name.Kind != "" {
		wanted = string(name.Kind)
	}
	text := fmt.Sprintf("there is no %s %s%s", wanted, name.Name, inNamespace(namespace))
	// Without permission to list there is no suggestion.
	here, _ := s.ReleaseNames(ctx, Selection{Namespace: namespace})
	if argument := nearestArgument(name, here); argument != "" {
		return failure{ErrNotFound, cause, text + ": did you mean " + argument + "?"}
	}
	everywhere, _ := s.ReleaseNames(ctx, Selection{})
	var others []string // the namespaces with such a release
	for _, other := range everywhere {
		if other.Key.Name == name.Name && (name.Kind == "" || other.Key.Kind == name.Kind) {
			others = append(others, other.Key.Namespace)
		}
	}
	if len(others) > 0 {
		other := cmp.Or(similar.To(namespace, others), others[0])
		return failure{ErrNotFound, cause, text + ": did you mean the one in namespace " + other + " (-n " + other + ")?"}
	}
	return failure{ErrNotFound, cause, text + ": list all with: serin get -A"}
}

// nearestArgument returns the existing release with the most similar name, as an argument of commands; empty: none is similar.
func nearestArgument(name Name, existing []ReleaseName) string {
	var names []string
	for _, one := range existing {
		names = append(names, one.Key.Name)
	}
	nearest := similar.To(name.Name, names)
	var found []string
	for _, one := range existing {
		if one.Key.Name != nearest {
			continue
		}
		if one.Key.Kind == name.Kind {
			return nearest
		}
		found = append(found, strings.ToLower(string(one.Key.Kind))+"/"+nearest)
	}
	if len(found) == 1 && name.Kind == "" {
		return nearest
	}
	return strings.Join(found, " or ")
}
