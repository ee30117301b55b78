package workload

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// form is what differs between the kinds of workload that have a pod template. It is pure: objects are never modified.
type form interface {
	names() names
	// problem returns why a target cannot be released; empty when it can.
	problem(target *unstructured.Unstructured) string
	// template returns the user's pod template, which must not be changed.
	template(obj *unstructured.Unstructured) map[string]any
	// hashed returns the template in the form that Flagger 1.44 hashes.
	hashed(template map[string]any) map[string]any
	// asked returns the desired number of pods.
	asked(obj *unstructured.Unstructured) int64
	// scaled returns the object with that number of desired pods. If the number cannot be set, it returns one that runs
	// for any number above zero.
	scaled(obj *unstructured.Unstructured, pods int64) *unstructured.Unstructured
	// counts returns the numbers of pods in the status.
	counts(obj *unstructured.Unstructured) counts
	// readiness evaluates whether all pods have the newest template, and enough of them are available. threshold is the
	// required share, in percent.
	readiness(obj *unstructured.Unstructured, threshold int) Readiness
	// entry returns the template of an object of the history.
	entry(past *unstructured.Unstructured) entry
	// observed returns the fields of the status that Serin reads, for comparison.
	observed(obj *unstructured.Unstructured) any
}

// names are the names of a kind of workload.
type names struct {
	kind schema.GroupVersionKind
	// plural is the resource; word is the kind in messages.
	plural, word string
	// history is the kind of the objects that contain earlier templates, owned by the workload.
	history schema.GroupVersionKind
	// copied are the fields of the spec that are copied to the primary.
	copied []string
	// peer are the rules by which Flagger 1.44 rewrites names in a template.
	peer rules
}

// counts are numbers of pods.
type counts struct{ total, updated, ready, available int64 }

// entry is an earlier template. number increases with each that becomes the current one; made is its source, if known.
type entry struct {
	number   int64
	template map[string]any
	made     Made
}

// missing returns the problem of a Canary without a target.
func (d templated) missing(c *flaggerv1.Canary) string {
	name := c.Spec.TargetRef.Name
	// The cache names the kind where the API server names the resource, which users know.
	resource := schema.GroupResource{Group: d.kind().Group, Resource: d.form.names().plural}
	return fmt.Sprintf("%s %s.%s get query error: %v", d.word(), name, c.Namespace, apierrors.NewNotFound(resource, name))
}

func (d templated) kind() schema.GroupVersionKind { return d.form.names().kind }
func (d templated) word() string                  { return d.form.names().word }

// creating returns the beginning of the error that a primary could not be created.
func (d templated) creating() string { return "createPrimary" + d.kind().Kind + " failed: " }
