package watching

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/internal/othercontroller"
)

// OtherController looks for another controller that lives. It reads caches: its Deployments by an index, and the few leases of its
// name. What it finds counts only if it may act on the release in question, because anyone who may create a Deployment can
// make one that looks like a Flagger.
type OtherController struct {
	Client client.Reader
	// Scope is where it looks.
	Scope othercontroller.Scope
	// IsPermitted tells what service accounts are permitted; nil: every sign is believed.
	IsPermitted UpdatePermission
	// Leases has those of the peer; nil: Client has.
	Leases client.Reader
	// LeasesUnreadable is why leases cannot be looked at, as a sentence; empty: they can.
	LeasesUnreadable string

	signature controllerSignature
}

// controllerSignature is how a controller is known.
type controllerSignature struct {
	name, index    string
	mayRun         func(containers []any) bool
	fromDeployment func(*appsv1.Deployment) (othercontroller.Controller, bool)
	// requiredResource is what such a controller must be permitted to update.
	requiredResource Resource
	actingSigns      func(scope othercontroller.Scope, namespace string, deployments []othercontroller.Controller, leases []coordinationv1.Lease, now time.Time) []othercontroller.Candidate
}

// Resource is one of the API server, with its subresource.
type Resource struct{ Group, Name, Subresource string }

// UpdatePermission is true where a service account is permitted to update a resource of a namespace.
type UpdatePermission func(ctx context.Context, account othercontroller.Account, resource Resource, namespace string) (bool, error)

// What the controllers write while they act on a release.
var (
	CanaryStatus  = Resource{Group: "flagger.app", Name: "canaries", Subresource: "status"}
	RolloutStatus = Resource{Group: "argoproj.io", Name: "rollouts", Subresource: "status"}
)

// NewFlaggerWatch looks for a Flagger.
func NewFlaggerWatch(c client.Reader) *OtherController {
	return &OtherController{Client: c, signature: controllerSignature{"Flagger", "runs-flagger", othercontroller.MayRunFlagger, othercontroller.DetectFlagger, CanaryStatus, othercontroller.Scope.FlaggerSigns}}
}

// NewArgoRolloutsWatch looks for an Argo Rollouts that serves an instance id. The leases are in a cache of their own.
func NewArgoRolloutsWatch(c, leases client.Reader, instanceID string) *OtherController {
	return &OtherController{Client: c, Leases: leases, signature: controllerSignature{
		"Argo Rollouts", "runs-argo-rollouts", othercontroller.MayRunArgoRollouts, othercontroller.DetectArgoRollouts, RolloutStatus,
		func(scope othercontroller.Scope, namespace string, deployments []othercontroller.Controller, leases []coordinationv1.Lease, now time.Time) []othercontroller.Candidate {
			return scope.ArgoRolloutsSigns(namespace, instanceID, deployments, leases, now)
		},
	}}
}

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// indexedValue is the value under which the index has a peer.
const indexedValue = "true"

// Index lets caches find the Deployments that run the peer without looking at all.
func (p *OtherController) Index(ctx context.Context, indexer client.FieldIndexer) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(deploymentKind)
	err := indexer.IndexField(ctx, object, p.signature.index, func(object client.Object) []string {
		if _, runs := p.controllerOf(object); runs {
			return []string{indexedValue}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Deployments by what they run: %w", err)
	}
	return nil
}

// controllerOf is the peer that a Deployment runs.
func (p *OtherController) controllerOf(object client.Object) (othercontroller.Controller, bool) {
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		return othercontroller.Controller{}, false
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(generic.Object, "spec", "template", "spec", "containers")
	if list, _ := containers.([]any); !p.signature.mayRun(list) {
		return othercontroller.Controller{}, false
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(generic.Object, deployment); err != nil {
		return othercontroller.Controller{}, false // the API server has checked it
	}
	return p.signature.fromDeployment(deployment)
}

// ActingSign is a sign of a peer that acts on objects of a namespace. nil looks for nobody.
func (p *OtherController) ActingSign(ctx context.Context, namespace string, now time.Time) (othercontroller.Sign, error) {
	if p == nil {
		return othercontroller.Sign{}, nil
	}
	// Others write what is read here, so there are no latest writes of ours to wait for.
	options := []client.ListOption{client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency}
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(deploymentKind.GroupVersion().WithKind("DeploymentList"))
	if err := p.Client.List(ctx, found, append(options, client.MatchingFields{p.signature.index: indexedValue})...); err != nil {
		return othercontroller.Sign{}, fmt.Errorf("list the Deployments of %s: %w", p.signature.name, err)
	}
	var deployments []othercontroller.Controller
	for i := range found.Items {
		if controller, runs := p.controllerOf(&found.Items[i]); runs {
			deployments = append(deployments, controller)
		}
	}
	var leases coordinationv1.LeaseList
	if p.LeasesUnreadable == "" {
		reader := p.Leases
		if reader == nil {
			reader = p.Client
		}
		if err := reader.List(ctx, &leases, options...); err != nil {
			return othercontroller.Sign{}, fmt.Errorf("list the leases of %s: %w", p.signature.name, err)
		}
	}
	return FirstCounting(ctx, p.Scope, p.signature.actingSigns(p.Scope, namespace, deployments, leases.Items, now), p.IsPermitted, p.signature.requiredResource, namespace)
}

// FirstCounting is the first sign that counts: of a namespace that the administrator named, or of a controller that may write
// releases of that namespace.
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
			return c.Sign, nil
		}
	}
	return othercontroller.Sign{}, nil
}

// IsRelevantChange is true for changes by which the peer may have come or gone. A lease that is merely renewed is none: whoever waits
// for its end looks again then. nil looks for nobody.
func (p *OtherController) IsRelevantChange(kind schema.GroupKind, before, after client.Object) bool {
	if p == nil {
		return false
	}
	if kind == deploymentKind.GroupKind() {
		old, was := p.atNamespace(before)
		now, is := p.atNamespace(after)
		return was != is || (old.Ready > 0) != (now.Ready > 0) || !slices.Equal(old.Args, now.Args) || old.ServiceAccount != now.ServiceAccount
	}
	return leaseHolder(before) != leaseHolder(after)
}

func (p *OtherController) atNamespace(object client.Object) (othercontroller.Controller, bool) {
	if object == nil {
		return othercontroller.Controller{}, false
	}
	return p.controllerOf(object)
}

func leaseHolder(object client.Object) string {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return lease.Namespace + "/" + *lease.Spec.HolderIdentity
}
