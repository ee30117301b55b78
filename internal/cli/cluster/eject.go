package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary/controller"
	"github.com/serin-dev/serin/internal/cli/eject"
	"github.com/serin-dev/serin/internal/cli/explain"
	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/workload"
)

// Ejection is one ejection of a release.
type Ejection struct {
	session *Session
	name    types.NamespacedName
	// uid is the UID of the release: another one with its name is not ejected.
	uid  types.UID
	kind explain.Kind
	// flags are those of the controller that acted on the release when the ejection began.
	flags    flags
	observed client.Object
}

// Eject begins the ejection of a release. It changes nothing. Errors: those of Observe.
func (s *Session) Eject(ctx context.Context, namespace string, name Name) (*Ejection, error) {
	object, err := s.getObject(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &Ejection{session: s, name: client.ObjectKeyFromObject(object), uid: object.GetUID(), kind: keyOf(object).Kind}, nil
}

// Observe observes the release. Errors: ErrNotFound if it no longer exists, *eject.RefusedError if it was created again,
// ErrUnreachable.
func (e *Ejection) Observe(ctx context.Context) (eject.Release, error) {
	s := e.session
	object, err := s.getObject(ctx, e.name.Namespace, Name{e.kind, e.name.Name})
	if err != nil {
		return nil, err
	}
	if object.GetUID() != e.uid {
		return nil, eject.Refuse(keyOf(object), "it was created again after its deletion: suspend the tool that applies it, and run the command again")
	}
	e.observed = object
	controllers := s.findControllers(ctx, []client.Object{object})
	e.flags = controllers.flags
	reader, err := newCachedReader(ctx, s.Client)
	if err != nil {
		return nil, err
	}
	if rollout, ok := object.(*argov1.Rollout); ok {
		return e.observeRollout(ctx, reader, rollout, controllers)
	}
	return e.observeCanary(ctx, reader, controllers)
}

func (e *Ejection) observeCanary(ctx context.Context, reader *cachedReader, controllers controllers) (*eject.Canary, error) {
	object, _ := e.observed.(*flaggerv1.Canary)
	observed, err := e.session.observeCanary(ctx, reader, object, e.flags)
	if err != nil {
		return nil, err
	}
	now := e.session.Clock.Now()
	out := &eject.Canary{Canary: *observed, Controller: controllers.summary([]client.Object{object}, now), ControllerSpecified: controllers.flagsSpecified}
	out.OtherController = controllers.otherControllerFor(ctx, object, nil, now)
	if out.Snapshot.Deleting {
		return out, nil
	}
	if len(out.Unread) > 0 && (len(out.Assumed) > 0 || !out.Snapshot.Workload.SameTemplate) { // it may only look different
		return nil, e.accessDenied(out.Unread)
	}
	if out.HandOver, err = e.rehearse(ctx, e.handOver); err != nil {
		return nil, err
	}
	if !out.Snapshot.Workload.SameTemplate {
		out.RestoreTarget, err = e.rehearse(ctx, e.restoreTarget)
	}
	return out, err
}

// accessDenied returns the error for objects that the user has no permission to read.
func (e *Ejection) accessDenied(unread []string) error {
	return failure{ErrUnreachable, nil, fmt.Sprintf("observe %s %s%s: access denied: %s", e.kind, e.name.Name, inNamespace(e.name.Namespace), strings.Join(unread, " "))}
}

// rehearse performs a step with a client that writes nothing.
func (e *Ejection) rehearse(ctx context.Context, step func(context.Context, client.Client) error) (eject.Rehearsal, error) {
	recorder := &recordingClient{WithWatch: e.session.Client}
	err := step(ctx, recorder)
	switch {
	case err == nil:
	case reconciler.NeedsUser(err):
		return eject.Rehearsal{Problem: err.Error()}, nil
	default:
		return eject.Rehearsal{}, e.describe("read the objects of", err)
	}
	var out eject.Rehearsal
	for _, write := range recorder.writes { // such as: patch Service shop/cart
		words := strings.Fields(write)
		out.Objects = append(out.Objects, words[1]+" "+words[2][strings.LastIndex(words[2], "/")+1:])
	}
	return out, nil
}

// Perform performs a step of the release that was observed last. It returns without an error if the release has changed since: the
// next observation shows what remains to be done.
func (e *Ejection) Perform(ctx context.Context, step eject.Step) error {
	err := e.perform(ctx, step)
	switch {
	case err == nil, apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil
	default:
		return e.describe(string(step.Action)+" of", err)
	}
}

func (e *Ejection) perform(ctx context.Context, step eject.Step) error {
	spec := func(field string, value any) error {
		return e.session.applyChanges(ctx, e.observed, changes{object: map[string]any{"spec": map[string]any{field: value}}})
	}
	switch step.Action {
	case eject.RequestRevert:
		return spec("revertOnDeletion", true)
	case eject.Suspend:
		return spec("suspend", true)
	case eject.HandOver:
		return e.handOver(ctx, e.session.Client)
	case eject.RestoreTarget:
		return e.restoreTarget(ctx, e.session.Client)
	case eject.Delete:
		uid, version := e.observed.GetUID(), e.observed.GetResourceVersion()
		return e.session.Client.Delete(ctx, e.observed, client.Preconditions{UID: &uid, ResourceVersion: &version})
	default:
		return e.performForRollout(ctx, step)
	}
}

func (e *Ejection) describe(operation string, err error) error {
	return describeError(operation+" "+string(e.kind)+" "+e.name.Name+inNamespace(e.name.Namespace), err, e.kind)
}

// canaryObserver returns an observer of the Canary that reads and writes with a client.
func (e *Ejection) canaryObserver(c client.Client) (*controller.Observer, *flaggerv1.Canary) {
	object, _ := e.observed.(*flaggerv1.Canary)
	object = object.DeepCopy()
	object.ManagedFields = nil
	settings, options := e.flags.settingsFor(object)
	return &controller.Observer{
		Client: c, Workloads: &workload.Workloads{Client: c, APIReader: c, Options: options},
		Routers: e.flags.Routers(), Applier: &traffic.Applier{Client: c}, Settings: settings,
	}, object
}

func (e *Ejection) handOver(ctx context.Context, c client.Client) error {
	observer, object := e.canaryObserver(c)
	return observer.HandOver(ctx, object, e.session.Clock.Now())
}

func (e *Ejection) restoreTarget(ctx context.Context, c client.Client) error {
	observer, object := e.canaryObserver(c)
	return observer.Workloads.ForCanary(object).RestoreTarget(ctx, object)
}
