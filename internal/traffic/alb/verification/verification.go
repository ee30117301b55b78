// Package verification verifies that load balancers of AWS have the state that a Rollout needs: that their rules have the
// weights of the Ingresses, and their target groups the pods of a Service.
//
// It knows how to query AWS and the bindings in the cluster; package alb interprets the results. It must not know phases,
// steps or any reconciler, and nothing waits for it: queries come from a query runner.
package verification

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/queryrunner"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
	"github.com/serin-dev/serin/internal/traffic/alb"
)

// queryTimeout limits all calls for one query.
const queryTimeout = 30 * time.Second

// bindingKind is the kind that binds a target group to a Service.
const bindingKind = "TargetGroupBinding"

// Verifier answers queries by calls of AWS.
type Verifier struct {
	// cluster reads from the API server: bindings and pods are not watched for this.
	cluster  client.Reader
	amazon   *amazon
	bindings schema.GroupVersionKind
}

// Options are settings of the load balancer controller.
type Options struct {
	// Tag is the key of the tag with the purpose of a target group, and BindingAPI group and version of TargetGroupBindings.
	Tag, BindingAPI string
}

// New returns a Verifier. It sends no query yet.
func New(cluster client.Reader, out *outbound.Client, o Options) (*Verifier, error) {
	gv, err := schema.ParseGroupVersion(o.BindingAPI)
	if err != nil {
		return nil, fmt.Errorf("read the API of TargetGroupBindings: %w", err)
	}
	return &Verifier{cluster: cluster, amazon: newAmazon(out, o.Tag), bindings: gv.WithKind(bindingKind)}, nil
}

// Send executes a query whose request is a traffic.LoadBalancerQuery. The detail of the answer is a traffic.LoadBalancerAnswer.
func (v *Verifier) Send(ctx context.Context, _ queryrunner.Key, query release.Query) release.Answer {
	request, ok := query.Request.(traffic.LoadBalancerQuery)
	if !ok {
		return release.Answer{Outcome: release.Broken, Text: "the query is not about load balancers"}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, fmt.Errorf("no answer within %s", queryTimeout))
	defer cancel()
	found := v.answer(ctx, request)
	outcome := release.No
	if found.Verified {
		outcome = release.Yes
	}
	return release.Answer{Outcome: outcome, Text: found.Reason, Detail: found}
}

// The reasons of events, by which users filter them.
const (
	reasonVerified   = "TargetGroupVerified"
	reasonUnverified = "TargetGroupUnverified"
	reasonError      = "TargetGroupVerifyError"
	reasonMissing    = "LoadBalancerNotFound"
	// reasonWeight follows reasonError if a weight could not be verified: users subscribe to either.
	reasonWeight = "WeightVerifyError"
)

// answer verifies everything, so that each event is reported, and stops at the first call that fails: the others would fail
// too.
func (v *Verifier) answer(ctx context.Context, q traffic.LoadBalancerQuery) traffic.LoadBalancerAnswer {
	out := traffic.LoadBalancerAnswer{Verified: true}
	add := func(event traffic.Event) (proceed bool) {
		out.Events = append(out.Events, event)
		if event.Warning && out.Verified {
			out.Verified, out.Reason = false, event.Message
		}
		return event.Reason != reasonError
	}
	for _, forward := range q.Forwards {
		status, event := v.verifyForward(ctx, q.Namespace, forward)
		if status != nil {
			out.Balancers = append(out.Balancers, *status)
		}
		if !add(event) {
			out.Events = append(out.Events, warning(reasonWeight, "Failed to verify weight: "+event.Message))
			return out
		}
	}
	for _, target := range q.Targets {
		if !add(v.verifyTarget(ctx, q.Namespace, target)) {
			return out
		}
	}
	return out
}

func warning(reason, message string) traffic.Event {
	return traffic.Event{Warning: true, Reason: reason, Message: message}
}

// verifyForward verifies that the load balancers of an Ingress split requests as desired. The status is that of the first
// one. The load balancer controller also lists the network load balancer that it may create in front of them.
func (v *Verifier) verifyForward(ctx context.Context, namespace string, f traffic.Forward) (*argov1.ALBStatus, traffic.Event) {
	if len(f.Hosts) == 0 {
		return nil, warning(reasonMissing, fmt.Sprintf("Ingress %s has no load balancer in its status yet", f.Ingress))
	}
	var status *argov1.ALBStatus
	for _, host := range f.Hosts {
		balancer, err := v.amazon.balancer(ctx, host)
		switch {
		case err != nil:
			return status, warning(reasonError, fmt.Sprintf("The weights of Ingress %s cannot be verified: %v", f.Ingress, err))
		case balancer == nil:
			return status, warning(reasonMissing, fmt.Sprintf("Ingress %s: AWS knows no load balancer %s in this region", f.Ingress, host))
		}
		if balancer.Network {
			continue
		}
		if status == nil {
			status = new(balancer.Status(namespace, f))
		}
		if missing := balancer.Unforwarded(namespace, f); missing != "" {
			return status, warning(reasonUnverified, fmt.Sprintf("Ingress %s: %s", f.Ingress, missing))
		}
	}
	if status == nil {
		return nil, warning(reasonMissing, fmt.Sprintf("Ingress %s: its status contains only a network load balancer, and the verification needs the host name of the application load balancer: "+
			"remove the annotation frontend-nlb-status-only of the Ingress", f.Ingress))
	}
	var shares []string
	for _, share := range f.Shares {
		shares = append(shares, fmt.Sprintf("%s=%d", share.Service, share.Weight))
	}
	return status, traffic.Event{Reason: reasonVerified, Message: fmt.Sprintf("Ingress %s: load balancer has %s", f.Ingress, strings.Join(shares, " "))}
}

// verifyTarget verifies that target groups that are bound to a Service have its pods.
func (v *Verifier) verifyTarget(ctx context.Context, namespace string, b traffic.BackendTarget) traffic.Event {
	missing, err := v.missingTarget(ctx, namespace, b)
	switch {
	case err != nil:
		return warning(reasonError, fmt.Sprintf("The target groups of Service %s cannot be verified: %v", b.Service, err))
	case missing != "":
		return warning(reasonUnverified, fmt.Sprintf("Service %s: %s", b.Service, missing))
	default:
		return traffic.Event{Reason: reasonVerified, Message: fmt.Sprintf("Service %s: its target groups have the pods of %s", b.Service, b.Hash)}
	}
}

// missingTarget describes a pod that the target groups of a Service do not have; empty if they have all of its pods, or it
// has none.
func (v *Verifier) missingTarget(ctx context.Context, namespace string, b traffic.BackendTarget) (string, error) {
	bindings, err := v.bindingsOf(ctx, namespace, b.Service)
	if err != nil || len(bindings) == 0 {
		return "", err
	}
	var service corev1.Service
	if err := v.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: b.Service}, &service); err != nil {
		return "", fmt.Errorf("get Service %s: %w", b.Service, err)
	}
	selector := client.MatchingLabels{argov1.PodTemplateHashLabel: b.Hash}
	for key, value := range service.Spec.Selector {
		if key != argov1.PodTemplateHashLabel {
			selector[key] = value
		}
	}
	var pods corev1.PodList
	if err := v.cluster.List(ctx, &pods, client.InNamespace(namespace), selector); err != nil {
		return "", fmt.Errorf("list the pods of Service %s: %w", b.Service, err)
	}
	for _, binding := range bindings {
		addresses, err := alb.Addresses(service, binding.Port, pods.Items)
		if err != nil {
			return "", err
		}
		if len(addresses) == 0 && b.Pods > 0 {
			return fmt.Sprintf("no pod of %s is ready", b.Hash), nil
		}
		targets, err := v.amazon.targets(ctx, binding.ARN)
		if err != nil {
			return "", err
		}
		if missing := alb.Unreached(binding, addresses, targets); missing != "" {
			return missing, nil
		}
	}
	return "", nil
}

// bindingsOf returns the TargetGroupBindings of a Service; none if the cluster does not know the kind.
func (v *Verifier) bindingsOf(ctx context.Context, namespace, service string) ([]alb.Binding, error) {
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(v.bindings.GroupVersion().WithKind(v.bindings.Kind + "List"))
	err := v.cluster.List(ctx, &all, client.InNamespace(namespace))
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsForbidden(err):
		return nil, errors.New("the controller may not list TargetGroupBindings: give it that right")
	case err != nil:
		return nil, fmt.Errorf("list TargetGroupBindings: %w", err)
	}
	return alb.BindingsOf(service, all.Items), nil
}
