// Package alb routes traffic with annotations of the user's Ingresses, from which the AWS load balancer controller creates
// target groups with weights.
//
// It must not know other providers, clients, AWS itself, or the reason for a weight.
package alb

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// DefaultPrefix of the annotations that the controller reads.
const DefaultPrefix = "alb.ingress.kubernetes.io"

// Options configure the use of AWS.
type Options struct {
	// VerifyTargetGroups is true if the load balancers are queried to verify that they have the weights of the Ingresses.
	VerifyTargetGroups bool
}

// RolloutRenderer writes actions and conditions on Ingresses of the user.
type RolloutRenderer struct {
	options Options
}

// NewRollout returns the router alb.
func NewRollout(options Options) RolloutRenderer { return RolloutRenderer{options: options} }

// Features are weights, also of experiments, and routes by header.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Others: true, HeaderRoutes: true}
}

func configuration(t traffic.Target) argov1.ALBTrafficRouting {
	if alb := t.Routing().ALB; alb != nil {
		return *alb
	}
	return argov1.ALBTrafficRouting{}
}

// rootService is the Service that the user's rules name, and to which the action applies.
func rootService(t traffic.Target) string {
	return cmp.Or(configuration(t).RootService, t.StableService)
}

// Refs are the Ingresses.
func (RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	c := configuration(t)
	var refs []traffic.Ref
	for _, name := range traffic.UniqueNames(c.Ingress, c.Ingresses) {
		refs = append(refs, traffic.Ref{
			GVK: traffic.IngressKind, Namespace: t.Namespace, Name: name, Shared: true,
			Events: traffic.EventReasons{Changed: "PatchingALBIngress"},
		})
	}
	return refs
}

// Render writes the action of the route on every Ingress, and those of managed routes.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	if len(existing) == 0 {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s", traffic.NoIngress("Ingress", "Ingresses"))
	}
	if specError := specError(t); specError != nil {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s", specError.Detail)
	}
	out := existing.Unchanged()
	for i, x := range existing {
		if fault := traffic.IngressProblem(x, rootService(t)); fault != "" {
			return nil, traffic.Refuse(traffic.ErrInvalid, "%s", fault)
		}
		obj, err := x.EditShared()
		if err != nil {
			return nil, err
		}
		if err := (editor{t: t, ref: x.Ref}).render(r, obj); err != nil {
			return nil, err
		}
		out[i] = obj
	}
	return out, nil
}

// specError is the error in the spec, independent of the Ingresses; nil if there is none.
func specError(t traffic.Target) *field.Error {
	sticky := configuration(t).StickinessConfig
	if sticky == nil || sticky.DurationSeconds >= 1 && sticky.DurationSeconds <= maxStickiness {
		return nil
	}
	return field.Invalid(traffic.RoutingPath().Child("alb", "stickinessConfig", "durationSeconds"), sticky.DurationSeconds,
		fmt.Sprintf("stickinessConfig.durationSeconds is between 1 and %d", maxStickiness))
}

// maxStickiness is a week, in seconds.
const maxStickiness = 604800

// Read reads the weights from the actions. Only AWS knows whether load balancers have them: the result includes the shares to
// verify, if the process is configured to query AWS.
func (rd RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	for _, x := range existing {
		if x.Object == nil {
			continue
		}
		forward, err := (editor{t: t, ref: x.Ref}).read(x.Object, &out)
		if err != nil {
			return traffic.Observed{Confirmed: traffic.CannotTell}, err
		}
		if rd.options.VerifyTargetGroups {
			out.Forwards = append(out.Forwards, forward)
		}
	}
	return out, nil
}

// Validate finds Ingresses that are missing or do not route to the root Service.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	if specError := specError(t); specError != nil {
		return field.ErrorList{specError}
	}
	c := configuration(t)
	return traffic.ValidateIngresses(traffic.RoutingPath().Child("alb"), c.Ingress, c.Ingresses,
		[2]string{"ingress", "ingresses"}, rootService(t), existing)
}

// Restore sends all requests to the root Service, and removes managed routes and the list of managed annotations.
func (RolloutRenderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	for i, x := range existing {
		if x.Object == nil {
			continue
		}
		obj := x.Object.DeepCopy()
		if (editor{t: t, ref: x.Ref}).restore(obj) {
			out[i] = obj
		}
	}
	return out, nil
}
