package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/cli/migrate"
	"github.com/serin-dev/serin/internal/peer"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Survey looks at everything that a takeover from Flagger and Argo Rollouts would find. Like Look it reads only; what the first passes
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
	if err := s.rehearsed(ctx, seen, who.flags, &out); err != nil {
		return migrate.Survey{}, err
	}
	now := s.Clock.Now()
	out.Flaggers, out.Argos = who.flaggers, who.argos
	scope := peer.Scope{Namespaces: who.flags.OtherControllerNamespaces}
	out.Held = heldBy(scope.Acting("", stopped(who.flaggers), who.leasesNamed(peer.Lease), now))
	out.HeldByArgo = heldBy(scope.ActingArgo("", "", stopped(who.argos), who.leases, now))
	out.Verifies = slices.ContainsFunc(who.argos, func(c peer.Controller) bool { return parse(c.Args).Argo.VerifyTargetGroups })
	for _, unread := range who.unread {
		out.Unread = append(out.Unread, unread+" of all namespaces may not be read.")
	}
	for what, read := range map[string]func(context.Context, *migrate.Survey) error{
		"the definitions of Canaries and Rollouts": s.prunes, "AnalysisTemplates": s.templates(sel.Namespace),
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

// stopped are the controllers without ready pods, which may live a moment longer.
func stopped(of []peer.Controller) []peer.Controller {
	return slices.DeleteFunc(slices.Clone(of), func(c peer.Controller) bool { return c.Ready > 0 })
}

// heldBy is the first of these signs; empty: there is none.
func heldBy(candidates []peer.Candidate) peer.Sign {
	if len(candidates) == 0 {
		return peer.Sign{}
	}
	return candidates[0].Sign
}

// rehearsed plays the first passes over what was seen.
func (s *Session) rehearsed(ctx context.Context, seen []explain.Seen, flags flags, out *migrate.Survey) error {
	l, err := newLens(ctx, s.Client)
	if err != nil {
		return err
	}
	for _, one := range seen {
		switch one := one.(type) {
		case *explain.Canary:
			rehearsed, err := s.rehearse(ctx, one.Object, flags)
			if err != nil {
				return err
			}
			rehearsed.Canary = *one
			out.Canaries = append(out.Canaries, rehearsed)
		case *explain.Rollout:
			rehearsed, err := s.rehearseRollout(ctx, l.apart(), one.Object, flags)
			if err != nil {
				return err
			}
			rehearsed.Rollout = *one
			out.Rollouts = append(out.Rollouts, rehearsed)
		}
	}
	return nil
}

// rehearseRollout plays Serin's first pass over a Rollout that Argo Rollouts left, with a client that writes nothing. Where
// the person may not read enough for that, nothing is said about writes.
func (s *Session) rehearseRollout(ctx context.Context, l *lens, object *argov1.Rollout, flags flags) (migrate.SeenRollout, error) {
	played := object.DeepCopy()
	played.ManagedFields = nil
	pass, err := rolloutObserver(ctx, l, object, flags).Rehearse(ctx, played, s.Clock.Now())
	switch {
	case forbidden(err), errors.Is(err, traffic.ErrUnreachable):
		return migrate.SeenRollout{}, nil
	case err != nil && !errors.Is(err, errDry):
		return migrate.SeenRollout{}, explained("look at Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	out := migrate.SeenRollout{Decision: pass.Decision, Writes: l.writes}
	if pass.Refused != nil {
		out.Refused = pass.Refused.Error()
	}
	return out, nil
}

// prunes looks whether the stored schemas have our part of the status.
func (s *Session) prunes(ctx context.Context, out *migrate.Survey) error {
	var err error
	if out.Prunes, err = s.drops(ctx, "canaries."+flaggerv1.GroupName, flaggerv1.SchemeGroupVersion.Version); err != nil {
		return err
	}
	out.PrunesRollouts, err = s.drops(ctx, "rollouts."+argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version)
	return err
}

// drops is true of a definition that keeps nothing of what Serin adds to a status.
func (s *Session) drops(ctx context.Context, name, version string) (bool, error) {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	err := s.Client.Get(ctx, client.ObjectKey{Name: name}, definition)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, item := range versions {
		of, _ := item.(map[string]any)
		if of["name"] != version {
			continue
		}
		_, has, _ := unstructured.NestedMap(of, "schema", "openAPIV3Schema", "properties", "status", "properties", "serin")
		keeps, _, _ := unstructured.NestedBool(of, "schema", "openAPIV3Schema", "properties", "status", "x-kubernetes-preserve-unknown-fields")
		return !has && !keeps, nil
	}
	return false, nil
}

// templates finds those whose measurements Serin cannot make.
func (s *Session) templates(namespace string) func(context.Context, *migrate.Survey) error {
	return func(ctx context.Context, out *migrate.Survey) error {
		var local argov1.AnalysisTemplateList
		var all argov1.ClusterAnalysisTemplateList
		for _, read := range []error{s.Client.List(ctx, &local, client.InNamespace(namespace)), s.Client.List(ctx, &all)} {
			if unknown(read) {
				return nil
			}
			if read != nil {
				return read
			}
		}
		for _, t := range local.Items {
			out.Templates = append(out.Templates, unmeasured(argov1.AnalysisTemplateKind+" "+t.Name+"."+t.Namespace, t.Spec)...)
		}
		for _, t := range all.Items {
			out.Templates = append(out.Templates, unmeasured(argov1.ClusterAnalysisTemplateKind+" "+t.Name, t.Spec)...)
		}
		return nil
	}
}

func unmeasured(name string, spec argov1.AnalysisTemplateSpec) []migrate.Template {
	out := migrate.Template{Name: name}
	for _, m := range spec.Metrics {
		if len(m.Provider.Plugin) > 0 {
			out.Metrics = append(out.Metrics, m.Name)
		}
	}
	if len(out.Metrics) == 0 {
		return nil
	}
	return []migrate.Template{out}
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
