package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// templateKind contains the differences between the kinds of workload that have a pod template. It is pure: objects are never
// modified.
type templateKind interface {
	kindNames() kindNames
	// problem returns the reason why a target cannot be released; empty means that it can.
	problem(target *unstructured.Unstructured) string
	// template returns the user's pod template, which must not be changed.
	template(obj *unstructured.Unstructured) map[string]any
	// templateForFlaggerHash returns the template in the form that Flagger 1.44 hashes.
	templateForFlaggerHash(template map[string]any) map[string]any
	// desiredReplicas returns the desired number of pods.
	desiredReplicas(obj *unstructured.Unstructured) int64
	// withReplicas returns the object with the given number of desired pods. A kind without such a number distinguishes only zero
	// from other numbers.
	withReplicas(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured
	// podCounts returns the numbers of pods in the status.
	podCounts(obj *unstructured.Unstructured) podCounts
	// readiness reports whether all pods have the newest template, and enough of them are available. threshold is the required
	// share, in percent.
	readiness(obj *unstructured.Unstructured, threshold int) Readiness
	// historyEntry returns the template of an object of the history.
	historyEntry(past *unstructured.Unstructured) historyEntry
	// observedFields returns the fields of the status that Serin reads, for comparison.
	observedFields(obj *unstructured.Unstructured) any
}

// kindNames are the names of a kind of workload.
type kindNames struct {
	kind schema.GroupVersionKind
	// plural is the name of the resource; displayName is the kind in messages.
	plural, displayName string
	// history is the kind of the objects that contain earlier templates, owned by the workload.
	history schema.GroupVersionKind
	// copiedFields are the fields of the spec that are copied to the primary.
	copiedFields []string
	// flaggerRules are the rules by which Flagger 1.44 rewrites names in a template.
	flaggerRules rewriteRules
}

// podCounts are numbers of pods.
type podCounts struct{ total, updated, ready, available int64 }

// historyEntry is an earlier template. number is higher for each template that becomes the current one; source may be unknown.
type historyEntry struct {
	number   int64
	template map[string]any
	source   TemplateSource
}

// targetPair is a target with a pod template, and its primary.
type targetPair struct {
	*Workloads
	templateKind templateKind
}

// targetAndPrimary reads target and primary. Client returns no version older than our own last write: a decision on an older one
// would repeat that write, or treat a target that was just scaled up as one without pods.
func (d targetPair) targetAndPrimary(ctx context.Context, c *flaggerv1.Canary) (target, primary *unstructured.Unstructured, err error) {
	if target, err = d.readCached(ctx, c, d.kind(), c.Spec.TargetRef.Name); err != nil {
		return nil, nil, err
	}
	if primary, err = d.readCached(ctx, c, d.kind(), c.Spec.TargetRef.Name+primarySuffix); err != nil {
		return nil, nil, err
	}
	return target, primary, nil
}

// missingTargetProblem returns the problem of a Canary without a target.
func (d targetPair) missingTargetProblem(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	// An error of the cache contains the kind, one of the API server the resource, which users know.
	resource := schema.GroupResource{Group: d.kind().Group, Resource: d.templateKind.kindNames().plural}
	return fmt.Sprintf("%s %s.%s get query error: %v", d.displayName(), name, c.Namespace, apierrors.NewNotFound(resource, name))
}

func (d targetPair) kind() schema.GroupVersionKind { return d.templateKind.kindNames().kind }
func (d targetPair) displayName() string           { return d.templateKind.kindNames().displayName }

// creationErrorPrefix returns the prefix of errors of the creation of a primary.
func (d targetPair) creationErrorPrefix() string {
	return "createPrimary" + d.kind().Kind + " failed: "
}
