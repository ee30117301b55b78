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

	"github.com/serin-dev/serin/internal/peer"
)

// Peers looks for another controller that lives. It reads caches: its Deployments by an index, and the few leases of its
// name. What it finds counts only if it may act on the release in question, because anyone who may create a Deployment can
// make one that looks like a Flagger.
type Peers struct {
	Client client.Reader
	// Scope is where it looks.
	Scope peer.Scope
	// May tells what service accounts are permitted; nil: every sign is believed.
	May May
	// Leases has those of the peer; nil: Client has.
	Leases client.Reader
	// LeasesUnread is why leases cannot be looked at, as a sentence; empty: they can.
	LeasesUnread string

	kind peerKind
}

// peerKind is how a controller is known.
type peerKind struct {
	name, index string
	possible    func(containers []any) bool
	of          func(*appsv1.Deployment) (peer.Controller, bool)
	// writes is what such a controller must be permitted to update.
	writes Resource
	acting func(scope peer.Scope, namespace string, deployments []peer.Controller, leases []coordinationv1.Lease, now time.Time) []peer.Candidate
}

// Resource is one of the API server, with its subresource.
type Resource struct{ Group, Name, Subresource string }

// May is true where a service account is permitted to update a resource of a namespace.
type May func(ctx context.Context, account peer.Account, resource Resource, namespace string) (bool, error)

// What the controllers write while they act on a release.
var (
	CanaryStatus  = Resource{Group: "flagger.app", Name: "canaries", Subresource: "status"}
	RolloutStatus = Resource{Group: "argoproj.io", Name: "rollouts", Subresource: "status"}
)

// Flagger looks for a Flagger.
func Flagger(c client.Reader) *Peers {
	return &Peers{Client: c, kind: peerKind{"Flagger", "runs-flagger", peer.Possible, peer.Flagger, CanaryStatus, peer.Scope.Acting}}
}

// ArgoRollouts looks for an Argo Rollouts that serves an instance id. The leases are in a cache of their own.
func ArgoRollouts(c, leases client.Reader, instanceID string) *Peers {
	return &Peers{Client: c, Leases: leases, kind: peerKind{
		"Argo Rollouts", "runs-argo-rollouts", peer.ArgoPossible, peer.ArgoRollouts, RolloutStatus,
		func(scope peer.Scope, namespace string, deployments []peer.Controller, leases []coordinationv1.Lease, now time.Time) []peer.Candidate {
			return scope.ActingArgo(namespace, instanceID, deployments, leases, now)
		},
	}}
}

var deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// is is the value under which the index has a peer.
const is = "true"

// Index lets caches find the Deployments that run the peer without looking at all.
func (p *Peers) Index(ctx context.Context, indexer client.FieldIndexer) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(deploymentKind)
	err := indexer.IndexField(ctx, object, p.kind.index, func(object client.Object) []string {
		if _, runs := p.of(object); runs {
			return []string{is}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Deployments by what they run: %w", err)
	}
	return nil
}

// of is the peer that a Deployment runs.
func (p *Peers) of(object client.Object) (peer.Controller, bool) {
	generic, ok := object.(*unstructured.Unstructured)
	if !ok {
		return peer.Controller{}, false
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(generic.Object, "spec", "template", "spec", "containers")
	if list, _ := containers.([]any); !p.kind.possible(list) {
		return peer.Controller{}, false
	}
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(generic.Object, deployment); err != nil {
		return peer.Controller{}, false // the API server has checked it
	}
	return p.kind.of(deployment)
}

// Acting is a sign of a peer that acts on objects of a namespace. nil looks for nobody.
func (p *Peers) Acting(ctx context.Context, namespace string, now time.Time) (peer.Sign, error) {
	if p == nil {
		return peer.Sign{}, nil
	}
	// Others write what is read here, so there are no latest writes of ours to wait for.
	options := []client.ListOption{client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency}
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(deploymentKind.GroupVersion().WithKind("DeploymentList"))
	if err := p.Client.List(ctx, found, append(options, client.MatchingFields{p.kind.index: is})...); err != nil {
		return peer.Sign{}, fmt.Errorf("list the Deployments of %s: %w", p.kind.name, err)
	}
	var deployments []peer.Controller
	for i := range found.Items {
		if controller, runs := p.of(&found.Items[i]); runs {
			deployments = append(deployments, controller)
		}
	}
	var leases coordinationv1.LeaseList
	if p.LeasesUnread == "" {
		reader := p.Leases
		if reader == nil {
			reader = p.Client
		}
		if err := reader.List(ctx, &leases, options...); err != nil {
			return peer.Sign{}, fmt.Errorf("list the leases of %s: %w", p.kind.name, err)
		}
	}
	return Counting(ctx, p.Scope, p.kind.acting(p.Scope, namespace, deployments, leases.Items, now), p.May, p.kind.writes, namespace)
}

// Counting is the first sign that counts: of a namespace that the administrator named, or of a controller that may write
// releases of that namespace.
func Counting(ctx context.Context, scope peer.Scope, candidates []peer.Candidate, may May, resource Resource, namespace string) (peer.Sign, error) {
	for _, c := range candidates {
		if may == nil || scope.Believes(c) {
			return c.Sign, nil
		}
		permitted, err := may(ctx, c.Account, resource, namespace)
		if err != nil {
			return peer.Sign{}, err
		}
		if permitted {
			return c.Sign, nil
		}
	}
	return peer.Sign{}, nil
}

// Told is true for changes by which the peer may have come or gone. A lease that is merely renewed is none: whoever waits
// for its end looks again then. nil looks for nobody.
func (p *Peers) Told(kind schema.GroupKind, before, after client.Object) bool {
	if p == nil {
		return false
	}
	if kind == deploymentKind.GroupKind() {
		old, was := p.at(before)
		now, is := p.at(after)
		return was != is || (old.Ready > 0) != (now.Ready > 0) || !slices.Equal(old.Args, now.Args) || old.ServiceAccount != now.ServiceAccount
	}
	return holder(before) != holder(after)
}

func (p *Peers) at(object client.Object) (peer.Controller, bool) {
	if object == nil {
		return peer.Controller{}, false
	}
	return p.of(object)
}

func holder(object client.Object) string {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return lease.Namespace + "/" + *lease.Spec.HolderIdentity
}
