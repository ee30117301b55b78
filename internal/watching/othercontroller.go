package watching

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/othercontroller"
)

// OtherController detects a running Flagger or Argo Rollouts. It reads caches: the Deployments of the other controller through an
// index, and its few leases. A sign counts only if its service account may act on the release in question, because everyone
// with permission to create a Deployment can create one that looks like Flagger.
type OtherController struct {
	Client client.Reader
	// Scope limits the namespaces in which other controllers are detected.
	Scope othercontroller.Scope
	// IsPermitted returns the permissions of service accounts; nil means that every sign counts.
	IsPermitted UpdatePermission
	// Leases reads the leases of the other controller; nil means Client.
	Leases client.Reader
	// LeasesUnreadable is the reason why leases cannot be read, for users; empty means that they can.
	LeasesUnreadable string

	signature controllerSignature
}

// controllerSignature describes how to recognise a controller.
type controllerSignature struct {
	name, index    string
	mayRun         func(containers []any) bool
	fromDeployment func(*appsv1.Deployment) (othercontroller.Controller, bool)
	// requiredResource is the resource that such a controller must be permitted to update.
	requiredResource Resource
	actingSigns      func(scope othercontroller.Scope, namespace string, deployments []othercontroller.Controller, leases []coordinationv1.Lease, now time.Time) []othercontroller.Candidate
}

// Resource is a resource of the API server, with its subresource.
type Resource struct{ Group, Name, Subresource string }

// UpdatePermission reports whether a service account is permitted to update a resource of a namespace.
type UpdatePermission func(ctx context.Context, account othercontroller.Account, resource Resource, namespace string) (bool, error)

// The resources that the controllers write while they act on a release.
var (
	CanaryStatus  = Resource{Group: "flagger.app", Name: "canaries", Subresource: "status"}
	RolloutStatus = Resource{Group: "argoproj.io", Name: "rollouts", Subresource: "status"}
)

// NewFlaggerWatch returns an OtherController that detects Flagger.
func NewFlaggerWatch(c client.Reader) *OtherController {
	return &OtherController{Client: c, signature: controllerSignature{"Flagger", "runs-flagger", othercontroller.MayRunFlagger, othercontroller.DetectFlagger, CanaryStatus, othercontroller.Scope.FlaggerSigns}}
}

// NewArgoRolloutsWatch returns an OtherController that detects the Argo Rollouts that serves an instance ID. Its leases are in a
// separate cache.
func NewArgoRolloutsWatch(c, leases client.Reader, instanceID string) *OtherController {
	return &OtherController{Client: c, Leases: leases, signature: controllerSignature{
		"Argo Rollouts", "runs-argo-rollouts", othercontroller.MayRunArgoRollouts, othercontroller.DetectArgoRollouts, RolloutStatus,
		func(scope othercontroller.Scope, namespace string, deployments []othercontroller.Controller, leases []coordinationv1.Lease, now time.Time) []othercontroller.Candidate {
			return scope.ArgoRolloutsSigns(namespace, instanceID, deployments, leases, now)
		},
	}}
}

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// indexedValue is the value of the index for Deployments of the other controller.
const indexedValue = "true"

// Index adds an index to a cache that finds the Deployments of the other controller without reading all.
func (o *OtherController) Index(ctx context.Context, indexer client.FieldIndexer) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(deploymentKind)
	err := indexer.IndexField(ctx, object, o.signature.index, func(object client.Object) []string {
		if _, runs := o.controllerOf(object); runs {
			return []string{indexedValue}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index the Deployments of %s: %w", o.signature.name, err)
	}
	return nil
}

// controllerOf returns the other controller that a Deployment runs, if any.
func (o *OtherController) controllerOf(object client.Object) (othercontroller.Controller, bool) {
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		return othercontroller.Controller{}, false
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(generic.Object, "spec", "template", "spec", "containers")
	if list, _ := containers.([]any); !o.signature.mayRun(list) {
		return othercontroller.Controller{}, false
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(generic.Object, deployment); err != nil {
		return othercontroller.Controller{}, false // impossible: the API server has validated the Deployment
	}
	return o.signature.fromDeployment(deployment)
}

// ActingSign returns a sign of another controller that acts on the objects of a namespace. A nil OtherController detects none.
func (o *OtherController) ActingSign(ctx context.Context, namespace string, now time.Time) (othercontroller.Sign, error) {
	if o == nil {
		return othercontroller.Sign{}, nil
	}
	// Serin does not write these objects, so there are no own writes to wait for.
	options := []client.ListOption{client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency}
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(deploymentKind.GroupVersion().WithKind("DeploymentList"))
	if err := o.Client.List(ctx, found, append(options, client.MatchingFields{o.signature.index: indexedValue})...); err != nil {
		return othercontroller.Sign{}, fmt.Errorf("list the Deployments of %s: %w", o.signature.name, err)
	}
	var deployments []othercontroller.Controller
	for i := range found.Items {
		if controller, runs := o.controllerOf(&found.Items[i]); runs {
			deployments = append(deployments, controller)
		}
	}
	var leases coordinationv1.LeaseList
	if o.LeasesUnreadable == "" {
		reader := o.Leases
		if reader == nil {
			reader = o.Client
		}
		if err := reader.List(ctx, &leases, options...); err != nil {
			return othercontroller.Sign{}, fmt.Errorf("list the leases of %s: %w", o.signature.name, err)
		}
	}
	return FirstCounting(ctx, o.Scope, o.signature.actingSigns(o.Scope, namespace, deployments, leases.Items, now), o.IsPermitted, o.signature.requiredResource, namespace)
}

// FirstCounting returns the first sign that counts: that of a namespace that the administrator has configured, or that of a
// controller that may write the releases of the namespace.
func FirstCounting(ctx context.Context, scope othercontroller.Scope, candidates []othercontroller.Candidate, may UpdatePermission, resource Resource, namespace string) (othercontroller.Sign, error) {
	for _, c := range candidates {
		if may == nil || scope.IsTrusted(c) {
			return c.Sign, nil
		}
		permitted, err := may(ctx, c.Account, resource, namespace)
		if err != nil {
			return othercontroller.Sign{}, err
		}
		if permitted {
			c.Sign.ByPermission = true
			return c.Sign, nil
		}
	}
	return othercontroller.Sign{}, nil
}

// permissionCheckInterval is the minimum time after which NextCheck requires another check of permissions.
const permissionCheckInterval = time.Minute

// NextCheck returns the time at which a ceded release must be reconciled again: when the sign expires. For a sign that depends on
// permissions, this is up to one and a half minutes later, because no watch notifies of changed permissions. The time depends on
// the release, because all releases are ceded at once. Zero means that a watch notifies of every change.
func NextCheck(sign othercontroller.Sign, key types.NamespacedName, now time.Time) time.Time {
	switch {
	case !sign.Until.IsZero():
		return sign.Until
	case !sign.ByPermission:
		return time.Time{}
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key.String()))
	return now.Add(permissionCheckInterval + time.Duration(hash.Sum64()%uint64(permissionCheckInterval/2)))
}

// IsRelevantChange reports whether the other controller may have started or stopped with a change. The renewal of a lease is not
// relevant: a release that waits for its expiry schedules its own reconciliation. A nil OtherController detects none.
func (o *OtherController) IsRelevantChange(kind schema.GroupKind, before, after client.Object) bool {
	if o == nil {
		return false
	}
	if kind == deploymentKind.GroupKind() {
		old, existed := o.controllerOrNone(before)
		current, exists := o.controllerOrNone(after)
		return existed != exists || (old.Ready > 0) != (current.Ready > 0) ||
			!slices.Equal(old.Args, current.Args) || old.ServiceAccount != current.ServiceAccount
	}
	return leaseHolder(before) != leaseHolder(after)
}

func (o *OtherController) controllerOrNone(object client.Object) (othercontroller.Controller, bool) {
	if object == nil {
		return othercontroller.Controller{}, false
	}
	return o.controllerOf(object)
}

func leaseHolder(object client.Object) string {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return lease.Namespace + "/" + *lease.Spec.HolderIdentity
}
