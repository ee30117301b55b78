package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/migrate"
	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Survey looks at everything that a takeover from Flagger would find. Like Look it reads only; what the first passes
// would write is noted and goes nowhere.
func (s *Session) Survey(ctx context.Context, sel Selection) (migrate.Survey, error) {
	found, err := s.objects(ctx, sel)
	if err != nil {
		return migrate.Survey{}, err
	}
	out := migrate.Survey{Unread: found.unread}
	who := s.findControllers(ctx, found.objects)
	seen, err := s.seeAll(ctx, found.objects, who.flags)
	if err != nil {
		return migrate.Survey{}, err
	}
	for _, one := range seen {
		c, is := one.(*explain.Canary)
		if !is {
			continue
		}
		rehearsed, err := s.rehearse(ctx, c.Object, who.flags)
		if err != nil {
			return migrate.Survey{}, err
		}
		rehearsed.Canary = *c
		out.Canaries = append(out.Canaries, rehearsed)
	}
	for what, read := range map[string]func(context.Context, *migrate.Survey) error{
		"Deployments of all namespaces": s.flaggers, "Leases of all namespaces": s.held,
		"the definition of Canaries": s.prunes, "Rollouts of all namespaces": s.rollouts,
	} {
		switch err := read(ctx, &out); {
		case forbidden(err):
			out.Unread = append(out.Unread, strings.ToUpper(what[:1])+what[1:]+" may not be read.")
		case err != nil:
			return migrate.Survey{}, explained("look at "+what, err, explain.KindCanary)
		}
	}
	slices.Sort(out.Unread)
	return out, nil
}

// flaggers are the Deployments that run a Flagger.
func (s *Session) flaggers(ctx context.Context, out *migrate.Survey) error {
	next := ""
	for {
		var list appsv1.DeploymentList
		if err := s.Client.List(ctx, &list, client.Limit(page), client.Continue(next)); err != nil {
			return err
		}
		for i := range list.Items {
			if c, is := peer.Flagger(&list.Items[i]); is {
				out.Flaggers = append(out.Flaggers, c)
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// held is a lease of a Flagger, renewed a moment ago.
func (s *Session) held(ctx context.Context, out *migrate.Survey) error {
	var list coordinationv1.LeaseList
	if err := s.Client.List(ctx, &list, client.MatchingFields{"metadata.name": peer.Lease}); err != nil {
		return err
	}
	out.Held = peer.Acting("", nil, list.Items, s.Clock.Now())
	return nil
}

// prunes looks whether the stored schema has our part of the status.
func (s *Session) prunes(ctx context.Context, out *migrate.Survey) error {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := s.Client.Get(ctx, client.ObjectKey{Name: "canaries." + flaggerv1.GroupName}, definition)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, item := range versions {
		version, _ := item.(map[string]any)
		if version["name"] == flaggerv1.SchemeGroupVersion.Version {
			_, found, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "serin")
			out.Prunes = !found
		}
	}
	return nil
}

// rollouts counts those of Argo, where their kind is known.
func (s *Session) rollouts(ctx context.Context, out *migrate.Survey) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "RolloutList"})
	err := s.Client.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	out.Rollouts = len(list.Items)
	return err
}

// rehearse plays Serin's first two passes over a Canary that Flagger left, with a client that writes nothing: one takes it
// over, and the one behind shows what follows. Where the person may not read enough for that, nothing is said about writes.
func (s *Session) rehearse(ctx context.Context, object *flaggerv1.Canary, flags flags) (migrate.Seen, error) {
	settings, options := flags.of(object)
	noted := &dry{WithWatch: s.Client}
	observer := controller.Observer{
		Client: noted, Workloads: &workload.Workloads{Client: noted, Reader: noted, Options: options},
		Routers: flags.Routers(), Applier: &traffic.Applier{Client: noted}, Settings: settings,
	}
	played := object.DeepCopy()
	played.ManagedFields = nil
	for {
		decision, refused, err := observer.Rehearse(ctx, played, s.Clock.Now())
		switch {
		case forbidden(err):
			return migrate.Seen{}, nil
		case err != nil:
			return migrate.Seen{}, explained("look at Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
		case refused != nil:
			return migrate.Seen{Refused: refused.Error()}, nil //nolint:nilerr // it is what was asked for
		case !migrate.Adopts(played.Status, decision):
			return migrate.Seen{Writes: noted.writes}, nil
		}
		played.Status = decision.Status
	}
}

// dry is a client that writes nothing, and notes what it was to write.
type dry struct {
	client.WithWatch
	writes []string
}

var errDry = errors.New("nothing is written here")

func (d *dry) note(verb string, object client.Object) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	text := fmt.Sprintf("%s %s %s/%s", verb, kind, object.GetNamespace(), object.GetName())
	if !slices.Contains(d.writes, text) {
		d.writes = append(d.writes, text)
	}
	return nil
}

func (d *dry) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return d.note("create", object)
}

func (d *dry) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return d.note("update", object)
}

func (d *dry) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return d.note("patch", object)
}

func (d *dry) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	return d.note("delete", object)
}

// What no effect uses is refused, so that nothing can be written by it either.

func (d *dry) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return errDry
}

func (d *dry) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errDry
}

func (d *dry) Status() client.SubResourceWriter            { return drySubResource{} }
func (d *dry) SubResource(string) client.SubResourceClient { return drySubResource{} }

type drySubResource struct{}

func (drySubResource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return errDry
}

func (drySubResource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errDry
}

func (drySubResource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errDry
}

func (drySubResource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return errDry
}

func (drySubResource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errDry
}
