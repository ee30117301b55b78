// Package workload makes true what a release asks of the things that hold pods: the primary copy of a target, the copies
// of its configuration and of its autoscaler, the scale of the target, and the three Services.
//
// It observes and it acts. An observation is a value; an action is small, level-triggered and safe to repeat: it
// compares, writes the difference under the resourceVersion that it read, and writes nothing when there is none. It must
// not know phases, weights, gates, deadlines or hooks: what is to be done, and when, is decided above it.
//
// Inside, everything that can be is a pure function from objects to objects; apply.go alone writes. Workloads stay
// unstructured on the way through, because a typed round trip drops the fields that the linked library does not know.
package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// Kind is what a release needs of one kind of target. All methods act on the target of the Canary and on what belongs to
// it, may be called again at any time, and return conflicts of the API server as they are: the caller looks again.
type Kind interface {
	// Reads are the objects that the spec of a Canary makes this kind look at, found or not, the target first. It asks
	// nobody.
	Reads(c *flaggerv1.Canary) []Object
	// Observe says what is. Its error is of the moment (API server, cache); what a person has to mend is in the
	// observation.
	Observe(ctx context.Context, c *flaggerv1.Canary, asks ...Ask) (Observation, error)
	// EnsurePrimary makes the primary of that revision of the target (empty: whichever it has) if there is none, and keeps
	// it like the target while it follows.
	EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error
	// RecreatePrimary makes a primary that was deleted in the middle of a release again, as it was made of that, and undoes
	// what a CopyTemplate with the id undone made of its configuration.
	RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, of Made, undone, id string) error
	// CopyTemplate gives the primary the analysed revision of the target.
	CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error
	// RestoreTemplate takes the last CopyTemplate back.
	RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error
	// RestoreConfigs takes back what a CopyTemplate with that id did before it failed.
	RestoreConfigs(ctx context.Context, c *flaggerv1.Canary, id string) error
	// UpFromZero gives the target pods if it has none.
	UpFromZero(ctx context.Context, c *flaggerv1.Canary) error
	// UpToPrimary gives the target as many pods as the primary has, at least.
	UpToPrimary(ctx context.Context, c *flaggerv1.Canary) error
	// PrimaryUpFromZero gives the primary pods if it has none.
	PrimaryUpFromZero(ctx context.Context, c *flaggerv1.Canary) error
	// DownToZero takes the target's pods away.
	DownToZero(ctx context.Context, c *flaggerv1.Canary) error
	// EnsureScaler makes the primary's autoscaler, and with update brings it up to date.
	EnsureScaler(ctx context.Context, c *flaggerv1.Canary, update bool) error
	// PauseScaler keeps the target's autoscaler from giving it pods.
	PauseScaler(ctx context.Context, c *flaggerv1.Canary) error
	// ResumeScaler lets the target's autoscaler work again.
	ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error
	// EnsureServices makes the Services of canary and primary, and with apex the one that clients call.
	EnsureServices(ctx context.Context, c *flaggerv1.Canary, apex bool) error
	// GiveBackServices makes Services that were the user's what they were.
	GiveBackServices(ctx context.Context, c *flaggerv1.Canary) error
	// CollectConfigs removes copies of configuration that nothing uses any more.
	CollectConfigs(ctx context.Context, c *flaggerv1.Canary) error
	// PodProblem says why the first pod that is stuck is stuck; empty when none is.
	PodProblem(ctx context.Context, c *flaggerv1.Canary, primary bool) (string, error)
}

var _ Kind = templated{}

// Object names one object that a release depends on, in the namespace of its Canary.
type Object struct {
	Kind schema.GroupVersionKind
	Name string
}

// What a caller may have to tell apart.
var (
	// ErrChanged: the target no longer has the revision that was asked for, or the Canary is not any more what that was
	// decided on. Nothing of the primary's template was touched.
	ErrChanged = errors.New("the target has another revision")
	// ErrGone: the history that was asked for is not there any more. Nothing was touched.
	ErrGone = errors.New("the history is gone")
	// ErrForeign: an object with the name of one of ours belongs to somebody else. A person has to sort that out.
	ErrForeign = errors.New("the object belongs to somebody else")
	// ErrNotInstalled: the cluster does not know a kind that is needed. No watch tells when it does.
	ErrNotInstalled = errors.New("the kind is not installed")
	// ErrUnusable: the target or its autoscaler cannot be used as it is, for the reason that an observation gives too.
	// Nothing was touched. A person has to mend it.
	ErrUnusable = errors.New("the target cannot be used")
)

// Options are the same for all Canaries.
type Options struct {
	// SelectorLabels are the labels that may tell the target's pods from others, in order of preference. Empty:
	// app, name, app.kubernetes.io/name.
	SelectorLabels []string
	// IncludePrefixes are the prefixes of the labels that go from the target's metadata to the primary's; * is all.
	// Empty: none.
	IncludePrefixes []string
	// ConfigTracking copies the ConfigMaps and Secrets of the target for the primary and makes a change of them a new
	// revision.
	ConfigTracking bool
}

func (o Options) selectorLabels() []string {
	if len(o.SelectorLabels) == 0 {
		return []string{"app", "name", "app.kubernetes.io/name"}
	}
	return o.SelectorLabels
}

// Workloads has the Kind of every target. It is used by pointer; its zero memory is ready.
type Workloads struct {
	// Client reads from caches and writes, and never shows an object older than its own last write of it (package
	// ownwrites). Workloads, Services and autoscalers are read unstructured (the client must cache unstructured
	// objects, else every look is a request), ConfigMaps and Secrets as metadata.
	Client client.Client
	// Reader reads live. It is asked for the content of a ConfigMap or Secret whose resourceVersion changed, for
	// histories and pods when they are asked for by name of the method, for what is given back, for an object that
	// somebody else made first, and for the Canary before its primary follows the target.
	Reader client.Reader
	// Options of the process.
	Options Options

	memory memory
}

// Of is the Kind of a Canary's target; nil where the target is of no kind that can be released.
func (w *Workloads) Of(c *flaggerv1.Canary) Kind {
	switch ref := c.Spec.TargetRef; {
	case ref.Kind == deploymentKind.Kind:
		return templated{w, deployments{}}
	case ref.Kind == daemonSetKind.Kind:
		return templated{w, daemonSets{}}
	case ref.Knative():
		return knative{Workloads: w}
	case ref.Kind == serviceKind.Kind:
		return coreService{Workloads: w}
	default:
		return nil
	}
}

// Forget drops what is remembered of a Canary that is gone.
func (w *Workloads) Forget(key types.NamespacedName) { w.memory.forget(key) }

// Keys are the Canaries of which something is remembered.
func (w *Workloads) Keys() []types.NamespacedName { return w.memory.keys() }

// templated is the Kind for targets that have a pod template.
type templated struct {
	*Workloads
	form form
}

// suffix is what makes the name of a primary out of a name.
const suffix = "-primary"

var (
	deploymentKind         = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	daemonSetKind          = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	replicaSetKind         = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	controllerRevisionKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}
	serviceKind            = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
)

// refusal is a sentence for a person that callers can also tell apart by its kind.
type refusal struct {
	kind error
	text string
}

func (r refusal) Error() string { return r.text }
func (r refusal) Unwrap() error { return r.kind }

func refuse(kind error, format string, args ...any) error {
	return refusal{kind: kind, text: fmt.Sprintf(format, args...)}
}

func unusable(problem string) error { return refusal{kind: ErrUnusable, text: problem} }

// foreign says whose an object is that we would have made.
func foreign(c *flaggerv1.Canary, kind string, obj metav1.Object) error {
	owner := "was not made for Canary " + c.Name
	if ref := metav1.GetControllerOf(obj); ref != nil {
		owner = fmt.Sprintf("is controlled by %s %s", ref.Kind, ref.Name)
		if ref.Kind == flaggerv1.CanaryKind && ref.Name == c.Name {
			owner = "is controlled by an earlier Canary of the same name"
		}
	}
	return refuse(ErrForeign, "%s %s.%s %s, so it is left alone: rename or delete it, or give Canary %s other names",
		kind, obj.GetName(), c.Namespace, owner, c.Name)
}

func controlledBy(obj metav1.Object, c *flaggerv1.Canary) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && ref.UID == c.UID
}

func ownedBy(c *flaggerv1.Canary) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))
}

func keyOf(c *flaggerv1.Canary) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// edited is a copy of an object whose metadata and spec may be given other fields. What is below them is shared with the
// object and must not be changed.
func edited(obj *unstructured.Unstructured) (copied *unstructured.Unstructured, spec map[string]any) {
	copied = &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	if metadata, ok := copied.Object["metadata"].(map[string]any); ok {
		copied.Object["metadata"] = maps.Clone(metadata)
	}
	of, _ := copied.Object["spec"].(map[string]any)
	if spec = maps.Clone(of); spec == nil {
		spec = map[string]any{}
	}
	copied.Object["spec"] = spec
	return copied, spec
}

func newObject(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
