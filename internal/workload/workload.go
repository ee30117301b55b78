// Package workload manages the workloads of a release: the primary copy of a target, the copies of its configuration and of its
// autoscaler, the scale of the target, and the three Services.
//
// It observes and it acts. An observation is a value. An action is small, level-triggered and idempotent: it compares the actual
// with the desired state and writes only the difference, under the resourceVersion that it read. It must not know phases,
// weights, gates, deadlines or webhooks: its callers decide what to do, and when.
//
// Most functions are pure, from objects to objects; only apply.go writes. Workloads remain unstructured, because a typed round
// trip drops the fields that the linked library does not know.
package workload

import (
	"context"
	"encoding/json"
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

// Workload contains the operations of a release on one kind of target. All methods act on the target of the Canary and on its
// dependent objects. They are idempotent, and return conflicts of the API server unchanged: the caller reconciles again.
type Workload interface {
	// Dependencies returns the objects that this kind reads for the spec of a Canary, whether they exist or not, the target
	// first. It sends no request.
	Dependencies(c *flaggerv1.Canary) []Object
	// Observe returns the observed state. Its error is transient (API server, cache); the observation contains problems that the
	// user must fix.
	Observe(ctx context.Context, c *flaggerv1.Canary, asks ...ObserveOption) (Observation, error)
	// Ownership returns which of the generated objects belong to the Canary, from the cache. Several Canaries may have one target.
	Ownership(ctx context.Context, c *flaggerv1.Canary) (Ownership, error)
	// EnsurePrimary creates the primary from the given revision of the target (empty means the current one) if there is none.
	// With follow it updates an existing primary.
	EnsurePrimary(ctx context.Context, c *flaggerv1.Canary, revision, id string, follow bool) error
	// RecreatePrimary restores a primary that was deleted, with the template from the given source. It also
	// reverts the changes of configuration by a CopyTemplate with the ID undone.
	RecreatePrimary(ctx context.Context, c *flaggerv1.Canary, source TemplateSource, undone, id string) error
	// CopyTemplate copies the analyzed revision of the target to the primary.
	CopyTemplate(ctx context.Context, c *flaggerv1.Canary, revision, id string) error
	// RestoreTemplate reverts the last CopyTemplate.
	RestoreTemplate(ctx context.Context, c *flaggerv1.Canary, id string) error
	// RestoreConfigs reverts the changes of configuration by a failed CopyTemplate with the given ID.
	RestoreConfigs(ctx context.Context, c *flaggerv1.Canary, id string) error
	// UpFromZero scales up a target without pods.
	UpFromZero(ctx context.Context, c *flaggerv1.Canary) error
	// UpToPrimary scales the target up to at least the number of pods of the primary.
	UpToPrimary(ctx context.Context, c *flaggerv1.Canary) error
	// PrimaryUpFromZero scales up a primary without pods.
	PrimaryUpFromZero(ctx context.Context, c *flaggerv1.Canary) error
	// DownToZero scales the target to zero.
	DownToZero(ctx context.Context, c *flaggerv1.Canary) error
	// EnsureScaler creates the primary's autoscaler, and with update updates it.
	EnsureScaler(ctx context.Context, c *flaggerv1.Canary, update bool) error
	// PauseScaler prevents the target's autoscaler from adding pods.
	PauseScaler(ctx context.Context, c *flaggerv1.Canary) error
	// ResumeScaler reverts PauseScaler.
	ResumeScaler(ctx context.Context, c *flaggerv1.Canary) error
	// EnsureServices creates and updates the Services of canary and primary, and with apex also the one that clients call.
	EnsureServices(ctx context.Context, c *flaggerv1.Canary, apex bool) error
	// RestoreServices restores the user's original Services.
	RestoreServices(ctx context.Context, c *flaggerv1.Canary) error
	// HandOverServices makes the Service that clients call independent of the Canary, so that RestoreServices restores it and it
	// is not deleted with the Canary.
	HandOverServices(ctx context.Context, c *flaggerv1.Canary) error
	// RestoreTarget sets the template of the target to that of the primary.
	RestoreTarget(ctx context.Context, c *flaggerv1.Canary) error
	// CollectConfigs deletes unused copies of configuration.
	CollectConfigs(ctx context.Context, c *flaggerv1.Canary) error
	// Pods returns the pods of the target (or the primary), to find out why they are not ready.
	Pods(ctx context.Context, c *flaggerv1.Canary, primary bool) (Pods, error)
}

// Object identifies an object that a release depends on, in the namespace of its Canary.
type Object struct {
	Kind schema.GroupVersionKind
	Name string
}

// Errors that callers distinguish.
var (
	// ErrTargetChanged means that the target no longer has the given revision, or that the Canary has changed since the decision. The
	// primary's template is unchanged.
	ErrTargetChanged = errors.New("the target has another revision")
	// ErrHistoryGone means that the requested entry of the history no longer exists. Nothing was changed.
	ErrHistoryGone = errors.New("the history no longer exists")
	// ErrNotOwned means that an object with the name of one of Serin's has another owner. The user must resolve the conflict.
	ErrNotOwned = errors.New("the object has another owner")
	// ErrNotInstalled means that the CRD of a required kind is not installed. No watch reports its installation.
	ErrNotInstalled = errors.New("the kind is not installed")
	// ErrUnusable means that the target or its autoscaler cannot be used, for the reason that the observation contains too.
	// Nothing was changed. The user must fix the problem.
	ErrUnusable = errors.New("the target cannot be used")
)

// Options apply to all Canaries.
type Options struct {
	// SelectorLabels are the labels that may identify the target's pods, in order of preference. Empty means app, name,
	// app.kubernetes.io/name.
	SelectorLabels []string
	// IncludePrefixes are the prefixes of labels that are copied from the target's metadata to the primary's; * means all, empty
	// means none.
	IncludePrefixes []string
	// ConfigTracking copies the ConfigMaps and Secrets of the target for the primary, and treats a change of them as a
	// new revision.
	ConfigTracking bool
}

func (o Options) selectorLabels() []string {
	if len(o.SelectorLabels) == 0 {
		return []string{"app", "name", "app.kubernetes.io/name"}
	}
	return o.SelectorLabels
}

// Workloads returns the Workload of every target. It must be used by pointer.
type Workloads struct {
	// Client reads from caches and writes, and never returns an object older than its own last write of it (package
	// readyourwrites). Workloads, Services and autoscalers are read unstructured (the client must cache unstructured
	// objects, otherwise every read is a request), ConfigMaps and Secrets as metadata.
	Client client.Client
	// APIReader reads from the API server: the content of a ConfigMap or Secret whose resourceVersion changed, histories,
	// pods, objects to restore, an object that another client created first, and the Canary before its primary follows
	// the target.
	APIReader client.Reader
	// Options are the options of the process.
	Options Options

	cache derivedCache
}

// Forget drops the cached state of a deleted Canary.
func (w *Workloads) Forget(key types.NamespacedName) { w.cache.dropCanary(key) }

// CachedKeys returns the Canaries with cached state.
func (w *Workloads) CachedKeys() []types.NamespacedName { return w.cache.keys() }

// primarySuffix is appended to a name to form the name of the primary.
const primarySuffix = "-primary"

var (
	deploymentKind         = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	daemonSetKind          = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	replicaSetKind         = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}
	controllerRevisionKind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ControllerRevision"}
	serviceKind            = schema.GroupVersionKind{Version: "v1", Kind: "Service"}
)

// refusedError is an error with a message for the user and a sentinel that callers test for.
type refusedError struct {
	kind error
	text string
}

func (r refusedError) Error() string { return r.text }
func (r refusedError) Unwrap() error { return r.kind }

func newRefusedError(kind error, format string, args ...any) error {
	return refusedError{kind: kind, text: fmt.Sprintf(format, args...)}
}

func newUnusableError(problem string) error { return refusedError{kind: ErrUnusable, text: problem} }

// newNotOwnedError returns an error that names the owner of an object that Serin would have created.
func newNotOwnedError(c *flaggerv1.Canary, kind string, obj metav1.Object) error {
	owner := "was not created for Canary " + c.Name
	if ref := metav1.GetControllerOf(obj); ref != nil {
		owner = fmt.Sprintf("is controlled by %s %s", ref.Kind, ref.Name)
		if ref.Kind == flaggerv1.CanaryKind && ref.Name == c.Name {
			owner = "is controlled by an earlier Canary of the same name"
		}
	}
	return newRefusedError(ErrNotOwned, "%s %s.%s %s, so Serin does not change it: rename or delete it, or choose other names for Canary %s",
		kind, obj.GetName(), c.Namespace, owner, c.Name)
}

func controlledBy(obj metav1.Object, c *flaggerv1.Canary) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && ref.UID == c.UID
}

// belongsTo reports whether a Canary controls an object or, if the object has no controller, has taken it over.
func belongsTo(obj metav1.Object, c *flaggerv1.Canary) bool {
	if metav1.GetControllerOf(obj) != nil {
		return controlledBy(obj, c)
	}
	var original struct {
		Canary string `json:"canary"`
	}
	err := json.Unmarshal([]byte(obj.GetAnnotations()[originalAnnotation]), &original)
	return err == nil && original.Canary == objectKey(c).String()
}

func ownedBy(c *flaggerv1.Canary) metav1.OwnerReference {
	return *metav1.NewControllerRef(c, flaggerv1.SchemeGroupVersion.WithKind(flaggerv1.CanaryKind))
}

func objectKey(c *flaggerv1.Canary) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

// shallowCopy returns a copy of an object whose metadata and spec may be modified. Deeper values are shared with the object
// and must not be changed.
func shallowCopy(obj *unstructured.Unstructured) (copied *unstructured.Unstructured, spec map[string]any) {
	copied = &unstructured.Unstructured{Object: maps.Clone(obj.Object)}
	if metadata, ok := copied.Object["metadata"].(map[string]any); ok {
		copied.Object["metadata"] = maps.Clone(metadata)
	}
	original, _ := copied.Object["spec"].(map[string]any)
	if spec = maps.Clone(original); spec == nil {
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
