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
	"github.com/serin-dev/serin/internal/othercontroller"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Survey observes everything that a migration from Flagger and Argo Rollouts affects. Like Observe, it only reads; it records the
// writes of the first reconciliations and does not send them.
func (s *Session) Survey(ctx context.Context, sel Selection) (migrate.Survey, error) {
	found, err := s.readObjects(ctx, sel)
	if err != nil {
		return migrate.Survey{}, err
	}
	out := migrate.Survey{Unread: found.unread}
	controllers := s.findControllers(ctx, found.objects)
	observed, err := s.observeAll(ctx, found.objects, controllers.flags)
	if err != nil {
		return migrate.Survey{}, err
	}
	if err := s.rehearseAll(ctx, observed, controllers.flags, &out); err != nil {
		return migrate.Survey{}, err
	}
	now := s.Clock.Now()
	out.Flaggers, out.ArgoRollouts = controllers.flaggers, controllers.argos
	scope := othercontroller.Scope{Namespaces: controllers.flags.OtherControllerNamespaces}
	out.FlaggerSign = firstSign(scope.FlaggerSigns("", withoutReadyPods(controllers.flaggers), controllers.leasesByName(othercontroller.FlaggerLeaseName), now))
	out.ArgoRolloutsSign = firstSign(scope.ArgoRolloutsSigns("", "", withoutReadyPods(controllers.argos), controllers.leases, now))
	out.VerifiesTargetGroups = slices.ContainsFunc(controllers.argos, func(c othercontroller.Controller) bool { return parseFlags(c.Args).Argo.VerifyTargetGroups })
	for _, unread := range controllers.unread {
		out.Unread = append(out.Unread, noPermission("read "+unread+" in all namespaces"))
	}
	for what, read := range map[string]func(context.Context, *migrate.Survey) error{
		"the definitions of Canaries and Rollouts": s.readPruning, "AnalysisTemplates": s.unmeasurableTemplates(sel.Namespace),
	} {
		switch err := read(ctx, &out); {
		case isForbidden(err):
			out.Unread = append(out.Unread, noPermission("read "+what))
		case err != nil:
			return migrate.Survey{}, describeError("read "+what, err, explain.KindCanary)
		}
	}
	slices.Sort(out.Unread)
	return out, nil
}

// withoutReadyPods returns the controllers without ready pods. Their processes may still run.
func withoutReadyPods(controllers []othercontroller.Controller) []othercontroller.Controller {
	return slices.DeleteFunc(slices.Clone(controllers), func(c othercontroller.Controller) bool { return c.Ready > 0 })
}

// firstSign returns the first sign; empty: there is none.
func firstSign(candidates []othercontroller.Candidate) othercontroller.Sign {
	if len(candidates) == 0 {
		return othercontroller.Sign{}
	}
	return candidates[0].Sign
}

// rehearseAll rehearses the first reconciliations of the observed releases.
func (s *Session) rehearseAll(ctx context.Context, observed []explain.Observation, flags flags, out *migrate.Survey) error {
	l, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return err
	}
	for _, one := range observed {
		switch one := one.(type) {
		case *explain.Canary:
			rehearsed, err := s.rehearseCanary(ctx, one.Object, flags)
			if err != nil {
				return err
			}
			rehearsed.Canary = *one
			out.Canaries = append(out.Canaries, rehearsed)
		case *explain.Rollout:
			rehearsed, err := s.rehearseRollout(ctx, l.withOwnWrites(), one.Object, flags)
			if err != nil {
				return err
			}
			rehearsed.Rollout = *one
			out.Rollouts = append(out.Rollouts, rehearsed)
		}
	}
	return nil
}

// rehearseRollout rehearses Serin's first reconciliation of a Rollout with a client that writes nothing. If the user has no
// permission to read the required objects, the result is empty.
func (s *Session) rehearseRollout(ctx context.Context, l *cachedReader, object *argov1.Rollout, flags flags) (migrate.ObservedRollout, error) {
	rehearsed := object.DeepCopy()
	rehearsed.ManagedFields = nil
	pass, err := rolloutObserver(ctx, l, object, flags).Rehearse(ctx, rehearsed, s.Clock.Now())
	switch {
	case isForbidden(err), errors.Is(err, traffic.ErrUnreachable):
		return migrate.ObservedRollout{}, nil
	case err != nil && !errors.Is(err, errReadOnly):
		return migrate.ObservedRollout{}, describeError("observe Rollout "+object.Name+inNamespace(object.Namespace), err, explain.KindRollout)
	}
	out := migrate.ObservedRollout{Decision: pass.Decision, Writes: l.writes}
	if pass.Refused != nil {
		out.Refused = pass.Refused.Error()
	}
	return out, nil
}

// readPruning reads whether the API server prunes the fields that Serin adds to the status of Canaries and of Rollouts.
func (s *Session) readPruning(ctx context.Context, out *migrate.Survey) error {
	var err error
	if out.PrunesCanaries, err = s.prunesStatus(ctx, "canaries."+flaggerv1.GroupName, flaggerv1.SchemeGroupVersion.Version); err != nil {
		return err
	}
	out.PrunesRollouts, err = s.prunesStatus(ctx, "rollouts."+argov1.SchemeGroupVersion.Group, argov1.SchemeGroupVersion.Version)
	return err
}

// definitionKind is the kind of definitions.
var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// prunesStatus reports whether a definition prunes the fields that Serin adds to a status.
func (s *Session) prunesStatus(ctx context.Context, name, version string) (bool, error) {
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(definitionKind)
	err := s.Client.Get(ctx, client.ObjectKey{Name: name}, definition)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, item := range versions {
		schemaVersion, _ := item.(map[string]any)
		if schemaVersion["name"] != version {
			continue
		}
		_, has, _ := unstructured.NestedMap(schemaVersion, "schema", "openAPIV3Schema", "properties", "status", "properties", "serin")
		preserves, _, _ := unstructured.NestedBool(schemaVersion, "schema", "openAPIV3Schema", "properties", "status", "x-kubernetes-preserve-unknown-fields")
		return !has && !preserves, nil
	}
	return false, nil
}

// unmeasurableTemplates returns a function that finds the AnalysisTemplates with metrics that Serin cannot measure.
func (s *Session) unmeasurableTemplates(namespace string) func(context.Context, *migrate.Survey) error {
	return func(ctx context.Context, out *migrate.Survey) error {
		var local argov1.AnalysisTemplateList
		var all argov1.ClusterAnalysisTemplateList
		for _, read := range []error{s.Client.List(ctx, &local, client.InNamespace(namespace)), s.Client.List(ctx, &all)} {
			if isUnknownKind(read) {
				return nil
			}
			if read != nil {
				return read
			}
		}
		for _, t := range local.Items {
			out.Templates = append(out.Templates, withPluginMetrics(argov1.AnalysisTemplateKind+" "+t.Name+"."+t.Namespace, t.Spec)...)
		}
		for _, t := range all.Items {
			out.Templates = append(out.Templates, withPluginMetrics(argov1.ClusterAnalysisTemplateKind+" "+t.Name, t.Spec)...)
		}
		return nil
	}
}

func withPluginMetrics(name string, spec argov1.AnalysisTemplateSpec) []migrate.Template {
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

// rehearseCanary rehearses Serin's first two reconciliations of a Canary with a client that writes nothing: the first adopts the
// Canary, and the second shows the next changes. If the user has no permission to read the required objects, the result is empty.
func (s *Session) rehearseCanary(ctx context.Context, object *flaggerv1.Canary, flags flags) (migrate.ObservedCanary, error) {
	settings, options := flags.settingsFor(object)
	recorder := &recordingClient{WithWatch: s.Client}
	observer := controller.Observer{
		Client: recorder, Workloads: &workload.Workloads{Client: recorder, APIReader: recorder, Options: options},
		Routers: flags.Routers(), Applier: &traffic.Applier{Client: recorder}, Settings: settings,
	}
	rehearsed := object.DeepCopy()
	rehearsed.ManagedFields = nil
	for {
		decision, refused, err := observer.Rehearse(ctx, rehearsed, s.Clock.Now())
		switch {
		case isForbidden(err):
			return migrate.ObservedCanary{}, nil
		case err != nil:
			return migrate.ObservedCanary{}, describeError("observe Canary "+object.Name+inNamespace(object.Namespace), err, explain.KindCanary)
		case refused != nil:
			return migrate.ObservedCanary{Refused: refused.Error()}, nil //nolint:nilerr // it is the result
		case !migrate.Adopts(rehearsed.Status, decision):
			return migrate.ObservedCanary{Writes: recorder.writes}, nil
		}
		rehearsed.Status = decision.Status
	}
}

// recordingClient is a client that records writes and does not send them.
type recordingClient struct {
	client.WithWatch
	// writes contains each write once, as: patch Service shop/cart.
	writes []string
}

var errReadOnly = errors.New("the client is read-only")

func (c *recordingClient) record(verb string, object client.Object) error {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	text := fmt.Sprintf("%s %s %s/%s", verb, kind, object.GetNamespace(), object.GetName())
	if !slices.Contains(c.writes, text) {
		c.writes = append(c.writes, text)
	}
	return nil
}

func (c *recordingClient) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.record("create", object)
}

func (c *recordingClient) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return c.record("update", object)
}

func (c *recordingClient) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.record("patch", object)
}

func (c *recordingClient) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	return c.record("delete", object)
}

// Other writes, which no effect needs, are refused.

func (c *recordingClient) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return errReadOnly
}

func (c *recordingClient) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errReadOnly
}

func (c *recordingClient) Status() client.SubResourceWriter { return readOnlySubResource{} }

func (c *recordingClient) SubResource(string) client.SubResourceClient { return readOnlySubResource{} }

type readOnlySubResource struct{}

func (readOnlySubResource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return errReadOnly
}

func (readOnlySubResource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errReadOnly
}

func (readOnlySubResource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errReadOnly
}

func (readOnlySubResource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return errReadOnly
}

func (readOnlySubResource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errReadOnly
}
