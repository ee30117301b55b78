package workload

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// form is what differs between the kinds of workload that have a pod template. All else is the same for them. It is
// pure: objects go in and are not changed.
type form interface {
	names() names
	// problem says why a target cannot be released as it is; empty when it can.
	problem(target *unstructured.Unstructured) string
	// template is the pod template as its user wrote it, not to be changed.
	template(obj *unstructured.Unstructured) map[string]any
	// hashed is such a template as Flagger 1.44 hashes it.
	hashed(template map[string]any) map[string]any
	// asked is how many pods are asked for.
	asked(obj *unstructured.Unstructured) int64
	// scaled is the object when it asks for so many pods, or, where their number is not for anybody to choose, for any.
	scaled(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured
	// counts are what Kubernetes counts of it.
	counts(obj *unstructured.Unstructured) counts
	// readiness says whether its pods are all of its newest template, and enough of them available. threshold is the
	// share that must be, in per cent.
	readiness(obj *unstructured.Unstructured, threshold int) Readiness
	// entry is what an object of its history remembers.
	entry(past *unstructured.Unstructured) entry
	// observed is what is read of its status, to be compared with what was read before.
	observed(obj *unstructured.Unstructured) any
}

// names are those of a form.
type names struct {
	kind schema.GroupVersionKind
	// plural is the resource, word what texts call one of them.
	plural, word string
	// history is the kind of the objects that remember earlier templates, owned by the workload.
	history schema.GroupVersionKind
	// copied are the fields of the spec that go to the primary as they are.
	copied []string
	// peer are the rules by which Flagger 1.44 rewrites names in a template.
	peer rules
}

// counts are numbers of pods.
type counts struct{ total, updated, ready, available int64 }

// entry is one template of the past. number grows with each that became the current one; made is what it was made of, as
// far as that is known.
type entry struct {
	number   int64
	template map[string]any
	made     Made
}

// missing is the problem of a Canary without its target.
func (d templated) missing(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	// The cache names the kind where the API server names the resource; people know the latter.
	resource := schema.GroupResource{Group: d.kind().Group, Resource: d.form.names().plural}
	return fmt.Sprintf("%s %s.%s get query error: %v", d.word(), name, c.Namespace, apierrors.NewNotFound(resource, name))
}

func (d templated) kind() schema.GroupVersionKind { return d.form.names().kind }
func (d templated) word() string                  { return d.form.names().word }

// creating says that a primary could not be made.
func (d templated) creating() string { return "createPrimary" + d.kind().Kind + " failed: " }
