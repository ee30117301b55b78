package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/workload/flaggerhash"
)

// knativeWorkload is the Workload for targets that are Services of Knative. Knative creates a revision for each template and
// scales it. The primary is not an object but the name of a revision, in an annotation. The traffic is part of the same object
// and is configured by its router.
type knativeWorkload struct {
	*Workloads
	noPods
}

var _ Workload = knativeWorkload{}

var (
	knativeServiceKind = schema.GroupVersionKind{Group: flaggerv1.KnativeGroup, Version: "v1", Kind: "Service"}
	revisionKind       = schema.GroupVersionKind{Group: flaggerv1.KnativeGroup, Version: "v1", Kind: "Revision"}
)

// primaryRevision is the annotation that contains the name of the serving revision.
const primaryRevision = "flagger.app/primary-revision"

// Dependencies returns the Service. Its revisions are known only after it was read.
func (knativeWorkload) Dependencies(c *flaggerv1.Canary) []Object {
	return []Object{{knativeServiceKind, c.Spec.TargetRef.Name}}
}

// Observe reads the Service and the two revisions.
func (k knativeWorkload) Observe(ctx context.Context, c *flaggerv1.Canary, asks ...ObserveOption) (Observation, error) {
	o := Observation{Dependencies: k.Dependencies(c)}
	service, err := k.readService(ctx, c)
	switch {
	case errors.Is(err, ErrNotInstalled):
		o.Problem, o.KindNotInstalled = err.Error(), true
		return o, nil
	case err != nil:
		return Observation{}, err
	case service == nil:
		o.Problem = k.missingTargetProblem(c)
		return o, nil
	}
	latest, primary := latestCreatedRevision(service), service.GetAnnotations()[primaryRevision]
	o.Images = imagesOf(podTemplate(service))
	o.Target = State{Found: true, UID: service.GetUID(), Readiness: Readiness{Message: "Knative has not created a revision of it yet"}}
	if latest != "" {
		o.Dependencies = append(o.Dependencies, Object{revisionKind, latest})
		revision, err := k.readCached(ctx, c, revisionKind, latest)
		if err != nil {
			return Observation{}, err
		}
		o.Target = revisionState(revision, latest, "")
		if revision != nil && slices.Contains(asks, WithHistory) {
			o.NewestTemplate = revision.GetCreationTimestamp().Time
		}
		o.Target.FlaggerHash = flaggerhash.HashText(latest)
	}
	if o.Target.Revision, err = hashRevision(map[string]any{"knative": latest}); err != nil {
		return Observation{}, err
	}
	if primary != "" {
		o.Dependencies = append(o.Dependencies, Object{revisionKind, primary})
		revision, err := k.readCached(ctx, c, revisionKind, primary)
		if err != nil {
			return Observation{}, err
		}
		o.Primary = revisionState(revision, primary, service.GetAnnotations()[promotedAnnotation])
	}
	o.PrimaryUpToDate = primary != "" && primary == latest
	return o, nil
}

func (k knativeWorkload) readService(ctx context.Context, c *flaggerv1.Canary) (*unstructured.Unstructured, error) {
	return k.readCached(ctx, c, knativeServiceKind, c.Spec.TargetRef.Name)
}

func (knativeWorkload) missingTargetProblem(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	return fmt.Sprintf("Knative Service %s.%s get query error: %v", name, c.Namespace,
		apierrors.NewNotFound(schema.GroupResource{Group: knativeServiceKind.Group, Resource: "services"}, name))
}

// latestCreatedRevision returns the revision that Knative created for the newest template; empty means none yet.
func latestCreatedRevision(service *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(service.Object, "status", "latestCreatedRevisionName")
	return name
}

// LatestRevision returns the name of the newest revision of a Knative target, which is analyzed during a release.
func LatestRevision(ctx context.Context, from client.Reader, c *flaggerv1.Canary) (string, error) {
	service, err := getOrNil(ctx, from, c, knativeServiceKind, c.Spec.TargetRef.Name, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", err
	}
	if service == nil {
		return "", newUnusableError(knativeWorkload{}.missingTargetProblem(c))
	}
	return latestCreatedRevision(service), nil
}

// revisionState returns the state of a revision. A ready revision can serve even without pods: Knative starts pods on
// request.
func revisionState(revision *unstructured.Unstructured, name, id string) State {
	state := State{Found: true, PromotionID: id, Replicas: 1, Readiness: Readiness{Message: fmt.Sprintf("Knative Revision %s is not ready: it does not exist", name)}}
	if revision == nil {
		return state
	}
	state.UID = revision.GetUID()
	status, why := readyCondition(revision)
	if status != "True" {
		state.Readiness.Message = fmt.Sprintf("Knative Revision %s is not ready: %s", name, cmp.Or(why, "Knative has not reported its state yet"))
		return state
	}
	return serviceState(revision, id)
}

// readyCondition returns Knative's condition of a revision.
func readyCondition(revision *unstructured.Unstructured) (status, why string) {
	conditions, _, _ := unstructured.NestedFieldNoCopy(revision.Object, "status", "conditions")
	for _, condition := range jsonObjects(conditions) {
		if condition["type"] == "Ready" {
			status, _ = condition["status"].(string)
			reason, _ := condition["reason"].(string)
			message, _ := condition["message"].(string)
			return status, formatReason(reason, message)
		}
	}
	return "", ""
}

// EnsurePrimary records the newest revision as the serving one, if none is recorded and the target has the given revision. With
// follow it updates the record.
func (k knativeWorkload) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	service, err := k.requireService(ctx, c)
	if err != nil {
		return err
	}
	latest, primary := latestCreatedRevision(service), service.GetAnnotations()[primaryRevision]
	if latest == "" || primary != "" && !follow {
		return nil // Knative has not created one yet: the change of its status requeues the release
	}
	if err := k.verifyRevision(c, service, revision); err != nil || primary == latest {
		return err
	}
	if primary != "" {
		if err := k.verifyCanaryUnchanged(ctx, c); err != nil {
			return err
		}
	}
	return k.setServiceAnnotation(ctx, c, service, map[string]string{primaryRevision: latest, promotedAnnotation: id})
}

// verifyRevision returns ErrTargetChanged if the Service has another revision; an empty revision matches any.
func (knativeWorkload) verifyRevision(c *flaggerv1.Canary, service *unstructured.Unstructured, revision string) error {
	latest := latestCreatedRevision(service)
	now, err := hashRevision(map[string]any{"knative": latest})
	if err == nil && revision != "" && now != revision {
		err = newRefusedError(ErrTargetChanged, "Knative Service %s.%s has revision %s, not the analysed one", service.GetName(), c.Namespace, latest)
	}
	return err
}

// requireService returns the Service, or an error if it does not exist.
func (k knativeWorkload) requireService(ctx context.Context, c *flaggerv1.Canary) (*unstructured.Unstructured, error) {
	service, err := k.readService(ctx, c)
	if err == nil && service == nil {
		err = newUnusableError(k.missingTargetProblem(c))
	}
	return service, err
}

func (k knativeWorkload) setServiceAnnotation(ctx context.Context, c *flaggerv1.Canary, service *unstructured.Unstructured, with map[string]string) error {
	wanted, _ := shallowCopy(service)
	setAnnotations(wanted, with)
	if err := k.updateObject(ctx, service, wanted); err != nil {
		return fmt.Errorf("updating Knative Service %s.%s failed: %w", service.GetName(), c.Namespace, err)
	}
	return nil
}

// CopyTemplate records the analyzed revision as the serving one.
func (k knativeWorkload) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	service, err := k.requireService(ctx, c)
	if err != nil {
		return err
	}
	if id != "" && service.GetAnnotations()[promotedAnnotation] == id {
		return nil
	}
	latest := latestCreatedRevision(service)
	if err := k.verifyRevision(c, service, revision); err != nil {
		return err
	}
	return k.setServiceAnnotation(ctx, c, service, map[string]string{
		primaryRevision: latest, promotedAnnotation: id, previousAnnotation: service.GetAnnotations()[primaryRevision],
	})
}

// RestoreTemplate records the revision that served before the last CopyTemplate. It returns ErrHistoryGone if the Service does not
// contain it.
func (k knativeWorkload) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	service, err := k.requireService(ctx, c)
	if err != nil {
		return err
	}
	if service.GetAnnotations()[promotedAnnotation] == id {
		return nil
	}
	previous := service.GetAnnotations()[previousAnnotation]
	if previous == "" {
		return newRefusedError(ErrHistoryGone, "Knative Service %s.%s lacks the revision before the promotion in annotation %s: set the revision in annotation %s",
			service.GetName(), c.Namespace, previousAnnotation, primaryRevision)
	}
	return k.setServiceAnnotation(ctx, c, service, map[string]string{primaryRevision: previous, promotedAnnotation: id, previousAnnotation: ""})
}

// RecreatePrimary records the revision that receives traffic, if the annotation was removed during a release. It returns
// ErrHistoryGone if no revision receives traffic.
func (k knativeWorkload) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, _ TemplateSource, _, id string) error {
	service, err := k.requireService(ctx, c)
	if err != nil {
		return err
	}
	if service.GetAnnotations()[primaryRevision] != "" {
		return nil
	}
	traffic, _, _ := unstructured.NestedFieldNoCopy(service.Object, "spec", "traffic")
	for _, share := range jsonObjects(traffic) {
		if name, _ := share["revisionName"].(string); name != "" {
			return k.setServiceAnnotation(ctx, c, service, map[string]string{primaryRevision: name, promotedAnnotation: id})
		}
	}
	return newRefusedError(ErrHistoryGone, "Knative Service %s.%s lost its annotation %s in the middle of a release, and its traffic names no revision: "+
		"name the one that shall serve there", service.GetName(), c.Namespace, primaryRevision)
}

// EnsureServices does nothing: Knative creates its own.
func (knativeWorkload) EnsureServices(context.Context, *flaggerv1.Canary, bool) error { return nil }

// RestoreServices removes our annotations. The router restores the traffic.
func (k knativeWorkload) RestoreServices(ctx context.Context, c *flaggerv1.Canary) error {
	service, err := k.readService(ctx, c)
	if err != nil || service == nil {
		return err
	}
	return k.setServiceAnnotation(ctx, c, service, map[string]string{primaryRevision: "", promotedAnnotation: "", previousAnnotation: ""})
}
