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
	"github.com/serin-dev/serin/internal/workload/peerhash"
)

// knative is the Kind for targets that are Services of Knative. Knative creates a revision for each template, and
// scales it. The primary is not an object but the name of a revision, in an annotation. The traffic is part of the same
// object, and configured by its router.
type knative struct {
	*Workloads
	podless
}

var _ Kind = knative{}

var (
	knativeServiceKind = schema.GroupVersionKind{Group: flaggerv1.KnativeGroup, Version: "v1", Kind: "Service"}
	revisionKind       = schema.GroupVersionKind{Group: flaggerv1.KnativeGroup, Version: "v1", Kind: "Revision"}
)

// primaryRevision is the annotation that contains the name of the serving revision.
const primaryRevision = "flagger.app/primary-revision"

// Reads returns the Service. Its revisions are known only after it was read.
func (knative) Reads(c *flaggerv1.Canary) []Object {
	return []Object{{knativeServiceKind, c.Spec.TargetRef.Name}}
}

// Observe reads the Service and the two revisions.
func (k knative) Observe(ctx context.Context, c *flaggerv1.Canary, asks ...Ask) (Observation, error) {
	o := Observation{Reads: k.Reads(c)}
	service, err := k.service(ctx, c)
	switch {
	case errors.Is(err, ErrNotInstalled):
		o.Problem, o.NotInstalled = err.Error(), true
		return o, nil
	case err != nil:
		return Observation{}, err
	case service == nil:
		o.Problem = k.missing(c)
		return o, nil
	}
	latest, primary := latestRevision(service), service.GetAnnotations()[primaryRevision]
	o.Target = State{Found: true, UID: service.GetUID(), Readiness: Readiness{Message: "Knative has not made a revision of it yet"}}
	if latest != "" {
		o.Reads = append(o.Reads, Object{revisionKind, latest})
		revision, err := k.read(ctx, c, revisionKind, latest)
		if err != nil {
			return Observation{}, err
		}
		o.Target = stateOfRevision(revision, latest, "")
		if revision != nil && slices.Contains(asks, AskHistory) {
			o.NewestTemplate = revision.GetCreationTimestamp().Time
		}
		o.Target.PeerHash = peerhash.OfText(latest)
	}
	if o.Target.Revision, err = identityOf(map[string]any{"knative": latest}); err != nil {
		return Observation{}, err
	}
	if primary != "" {
		o.Reads = append(o.Reads, Object{revisionKind, primary})
		revision, err := k.read(ctx, c, revisionKind, primary)
		if err != nil {
			return Observation{}, err
		}
		o.Primary = stateOfRevision(revision, primary, service.GetAnnotations()[promotedAnnotation])
	}
	o.Same = primary != "" && primary == latest
	return o, nil
}

func (k knative) service(ctx context.Context, c *flaggerv1.Canary) (*unstructured.Unstructured, error) {
	return k.read(ctx, c, knativeServiceKind, c.Spec.TargetRef.Name)
}

func (knative) missing(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	return fmt.Sprintf("Knative Service %s.%s get query error: %v", name, c.Namespace,
		apierrors.NewNotFound(schema.GroupResource{Group: knativeServiceKind.Group, Resource: "services"}, name))
}

// latestRevision returns the revision that Knative created for the newest template; empty: none yet.
func latestRevision(service *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(service.Object, "status", "latestCreatedRevisionName")
	return name
}

// LatestRevision returns the name of the newest revision of a Knative target, which is analyzed during a release.
func LatestRevision(ctx context.Context, from client.Reader, c *flaggerv1.Canary) (string, error) {
	service, err := get(ctx, from, c, knativeServiceKind, c.Spec.TargetRef.Name, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", err
	}
	if service == nil {
		return "", unusable(knative{}.missing(c))
	}
	return latestRevision(service), nil
}

// stateOfRevision returns the state of a revision. A ready revision can serve even without pods: Knative starts pods on
// request.
func stateOfRevision(revision *unstructured.Unstructured, name, id string) State {
	state := State{Found: true, ID: id, Replicas: 1, Readiness: Readiness{Message: fmt.Sprintf("Knative Revision %s is not ready: it does not exist", name)}}
	if revision == nil {
		return state
	}
	state.UID = revision.GetUID()
	status, why := readyCondition(revision)
	if status != "True" {
		state.Readiness.Message = fmt.Sprintf("Knative Revision %s is not ready: %s", name, cmp.Or(why, "Knative has not said anything about it yet"))
		return state
	}
	ready := standing(revision, id)
	return ready
}

// readyCondition returns Knative's condition of a revision.
func readyCondition(revision *unstructured.Unstructured) (status, why string) {
	conditions, _, _ := unstructured.NestedFieldNoCopy(revision.Object, "status", "conditions")
	for _, condition := range objects(conditions) {
		if condition["type"] == "Ready" {
			status, _ = condition["status"].(string)
			reason, _ := condition["reason"].(string)
			message, _ := condition["message"].(string)
			return status, join(reason, message)
		}
	}
	return "", ""
}

// EnsurePrimary records the newest revision as the serving one, if none is recorded and it has that revision. With
// follow it updates the record.
func (k knative) EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error {
	service, err := k.existing(ctx, c)
	if err != nil {
		return err
	}
	latest, primary := latestRevision(service), service.GetAnnotations()[primaryRevision]
	if latest == "" || primary == latest || primary != "" && !follow {
		return nil // Knative has not created one yet: the change of its status requeues the release
	}
	if err := k.still(c, service, revision); err != nil {
		return err
	}
	if primary != "" {
		if err := k.unchanged(ctx, c); err != nil {
			return err
		}
	}
	return k.annotate(ctx, c, service, map[string]string{primaryRevision: latest, promotedAnnotation: id})
}

// still returns ErrChanged if the Service has another revision; empty is any.
func (knative) still(c *flaggerv1.Canary, service *unstructured.Unstructured, revision string) error {
	latest := latestRevision(service)
	now, err := identityOf(map[string]any{"knative": latest})
	if err == nil && revision != "" && now != revision {
		err = refuse(ErrChanged, "Knative Service %s.%s has revision %s, not the analysed one", service.GetName(), c.Namespace, latest)
	}
	return err
}

// existing returns the Service, or an error if it does not exist.
func (k knative) existing(ctx context.Context, c *flaggerv1.Canary) (*unstructured.Unstructured, error) {
	service, err := k.service(ctx, c)
	if err == nil && service == nil {
		err = unusable(k.missing(c))
	}
	return service, err
}

func (k knative) annotate(ctx context.Context, c *flaggerv1.Canary, service *unstructured.Unstructured, with map[string]string) error {
	wanted, _ := edited(service)
	annotate(wanted, with)
	if err := k.update(ctx, service, wanted); err != nil {
		return fmt.Errorf("updating Knative Service %s.%s failed: %w", service.GetName(), c.Namespace, err)
	}
	return nil
}

// CopyTemplate records the analyzed revision as the serving one.
func (k knative) CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error {
	service, err := k.existing(ctx, c)
	if err != nil {
		return err
	}
	if id != "" && service.GetAnnotations()[promotedAnnotation] == id {
		return nil
	}
	latest := latestRevision(service)
	if err := k.still(c, service, revision); err != nil {
		return err
	}
	return k.annotate(ctx, c, service, map[string]string{
		primaryRevision: latest, promotedAnnotation: id, previousAnnotation: service.GetAnnotations()[primaryRevision],
	})
}

// RestoreTemplate records the revision again that served before the last CopyTemplate. ErrGone: the Service does not
// contain it.
func (k knative) RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error {
	service, err := k.existing(ctx, c)
	if err != nil {
		return err
	}
	if service.GetAnnotations()[promotedAnnotation] == id {
		return nil
	}
	previous := service.GetAnnotations()[previousAnnotation]
	if previous == "" {
		return refuse(ErrGone, "Knative Service %s.%s does not say in its annotation %s which revision served before the promotion: name it in %s",
			service.GetName(), c.Namespace, previousAnnotation, primaryRevision)
	}
	return k.annotate(ctx, c, service, map[string]string{primaryRevision: previous, promotedAnnotation: id, previousAnnotation: ""})
}

// RecreatePrimary records the revision that receives traffic again, if the annotation was removed during a release.
// ErrGone: there is none.
func (k knative) RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, _ Made, _, id string) error {
	service, err := k.existing(ctx, c)
	if err != nil {
		return err
	}
	if service.GetAnnotations()[primaryRevision] != "" {
		return nil
	}
	traffic, _, _ := unstructured.NestedFieldNoCopy(service.Object, "spec", "traffic")
	for _, share := range objects(traffic) {
		if name, _ := share["revisionName"].(string); name != "" {
			return k.annotate(ctx, c, service, map[string]string{primaryRevision: name, promotedAnnotation: id})
		}
	}
	return refuse(ErrGone, "Knative Service %s.%s lost its annotation %s in the middle of a release, and its traffic names no revision: "+
		"name the one that shall serve there", service.GetName(), c.Namespace, primaryRevision)
}

// EnsureServices does nothing: Knative creates its own.
func (knative) EnsureServices(context.Context, *flaggerv1.Canary, bool) error { return nil }

// GiveBackServices removes our annotations. The router restores the traffic.
func (k knative) GiveBackServices(ctx context.Context, c *flaggerv1.Canary) error {
	service, err := k.service(ctx, c)
	if err != nil || service == nil {
		return err
	}
	return k.annotate(ctx, c, service, map[string]string{primaryRevision: "", promotedAnnotation: "", previousAnnotation: ""})
}
