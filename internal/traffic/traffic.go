// Package traffic tells routers how requests are shared between the two sides of a release, and asks them what holds.
//
// It has the contracts of a provider (Renderer for Canaries, RolloutRenderer for Rollouts: a Route to objects and back,
// pure), the registries of providers, and the Applier, which does the writing for all of them. It must not know phases, steps, windows or any reconciler: a route
// is the same to it whatever it is for. A provider package below it knows the objects of one mesh and nothing of its
// siblings.
package traffic

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/release"
)

// Target is the release whose traffic is routed.
type Target struct {
	// Canary as stored. Renderers never change it; service and analysis of its spec say everything about a route that
	// is not a weight.
	Canary *flaggerv1.Canary
	// Namespace of the release and of its route.
	Namespace string
	// Apex, Primary and CanaryService are the names of the three Services.
	Apex, Primary, CanaryService string
	// SelectorLabel is the label that the selectors of the Services use. Where spec.service.apex is set, the object of
	// the route carries it with the name of the apex, as the apex Service does.
	SelectorLabel string
	// SelectorValue is what the target's pods have there, and the primary's with -primary. Empty: the target's name.
	SelectorValue string
	// Provider is the name of the provider, as Normalize gives it.
	Provider string
}

// TargetOf is the target that a Canary describes.
func TargetOf(c *flaggerv1.Canary, provider, selectorLabel string) Target {
	apex := c.Spec.Service.Name
	if apex == "" {
		apex = c.Spec.TargetRef.Name
	}
	return Target{
		Canary:        c,
		Namespace:     c.Namespace,
		Apex:          apex,
		Primary:       apex + "-primary",
		CanaryService: apex + "-canary",
		SelectorLabel: selectorLabel,
		Provider:      provider,
	}
}

// Ref names one object that a renderer writes or reads.
type Ref struct {
	GVK schema.GroupVersionKind
	// Namespace is empty for kinds that have none.
	Namespace, Name string
	// Owned objects are made for the release. The others are the user's, and only read: they are never created, never
	// changed, and never deleted.
	Owned bool
	// Shared is true of an object of the user in which the route is written. It is never created and never deleted.
	Shared bool
	// Derived is true where the name is made of others, so that no user chose it for the route: an object of that name
	// that was not made for the release is a stranger's, and is not taken over.
	Derived bool
	// Joins is true of an object by which a mesh knows pods: it must be there before they are made. No traffic follows it.
	Joins bool
	// Selector finds objects by their labels, where no name is given; each is a reference of its own then.
	Selector string
	// Told are the events that a person is told about the object; those of a Canary come from its machine.
	Told Told
}

// String names the object as texts for people do: HTTPRoute cart.web.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.GVK.Kind + " " + r.Name
	}
	return r.GVK.Kind + " " + r.Name + "." + r.Namespace
}

// Confirmation says whether a router serves the route that was read.
type Confirmation string

// The confirmations.
const (
	ConfirmedYes Confirmation = "yes"
	ConfirmedNo  Confirmation = "no"
	// CannotTell is the answer of routers that do not report, or have not reported yet: do not wait for them.
	CannotTell Confirmation = "cannot-tell"
)

// Observed is what the objects of a route say.
type Observed struct {
	// Found is false where there is no route of this release: its object is missing, or is the user's and names
	// neither of the two Services.
	Found bool
	// Route has the canary's weight and the mirror as they were read. All else is in the Canary.
	Route release.Route
	// Confirmed is about Route: who waits for a weight compares the weight first, as a cache may be behind.
	Confirmed Confirmation
	// Reason says for people why the route is not confirmed; empty unless Confirmed is ConfirmedNo.
	Reason string
	// Managed are the names of the managed routes of a Rollout that there are, whatever they hold.
	Managed []string
	// Forwards are what only the load balancers can confirm; nil where nobody is to ask them.
	Forwards []Forward
}

// Renderer turns a Route into the objects of one provider and back. It is pure: no client, no clock, and neither the
// target nor existing is ever changed.
//
// Existing is aligned with Refs, nil where an object is absent, and so are the results. Desired objects are complete:
// the existing one with our fields set, fields that the renderer does not know untouched. Nil in a result means that
// the object shall not exist; to leave an object alone, return it.
type Renderer interface {
	// Features are what the provider can do for this target. What is not declared is refused with ErrUnsupported.
	Features(t Target) Features
	// Refs are the objects, in the order in which they are written.
	Refs(t Target) []Ref
	// Render gives the objects that make the route so. Errors: ErrUnsupported, ErrInvalid, ErrForeign.
	Render(t Target, r release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error)
	// Read says what route the objects make. An error is a route that cannot be understood.
	Read(t Target, existing []*unstructured.Unstructured) (Observed, error)
	// Restore gives adopted objects back as they were before the first change. With ErrNoOriginal, the result holds all
	// the same: what can be restored is in it.
	Restore(t Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error)
}

// What a caller may want to tell apart. The text of an error that wraps one of them is a sentence for the user.
var (
	// ErrUnsupported: the provider cannot do what the route asks for. A person has to change the Canary or Rollout.
	ErrUnsupported = errors.New("not supported by the provider")
	// ErrInvalid: the spec of the release cannot be made into a route. A person has to change it, or what it names.
	ErrInvalid = errors.New("invalid route")
	// ErrForeign: an object of the name that is needed belongs to somebody else.
	ErrForeign = errors.New("object of somebody else")
	// ErrNotInstalled: the cluster does not know a kind that the provider needs.
	ErrNotInstalled = errors.New("kind not installed")
	// ErrUnreachable: the objects are in another cluster, which does not answer. It goes away by itself, or whoever runs that
	// cluster has to act; the release waits.
	ErrUnreachable = errors.New("the cluster of the route does not answer")
	// ErrChanged: the objects are not any more what a decision was made on. It has to be made anew.
	ErrChanged = errors.New("the route has changed since that was decided")
	// ErrNoOriginal: an adopted object does not say how it was before.
	ErrNoOriginal = errors.New("original not known")
)

// Refuse makes an error that is a sentence for the user and that errors.Is finds to be of that kind.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{kind: kind, sentence: fmt.Sprintf(format, args...)}
}

// refusal keeps the kind out of the text: a sentence begins with what is wrong.
type refusal struct {
	kind     error
	sentence string
}

func (e *refusal) Error() string { return e.sentence }
func (e *refusal) Unwrap() error { return e.kind }

// Share is the canary's share, in per cent, of two weights of any total. It is exact where they add up to 100, and
// never 0 or 100 where both sides get requests.
func Share(primary, canary int) int {
	total := primary + canary
	switch {
	case canary <= 0 || total <= 0:
		return 0
	case primary <= 0:
		return release.Total
	default:
		return min(max((canary*release.Total+total/2)/total, 1), release.Total-1)
	}
}
