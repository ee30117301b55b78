package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/rollout"
)

// Autoscaler is an autoscaler with the workload that it scales.
type Autoscaler struct {
	Kind, Name string
	// TargetGroup, TargetKind and TargetName are its scaleTargetRef.
	TargetGroup, TargetKind, TargetName string
}

func (a Autoscaler) String() string { return a.Kind + " " + a.Name }

// Autoscalers contains the autoscalers in the namespace of a Rollout.
type Autoscalers struct {
	All []Autoscaler
	// Unread is the reason why some are unknown; empty: all are known.
	Unread string
}

// results are the checks of the autoscalers that name the Rollout, or the workload that it refers to.
func (a Autoscalers) results(r *argov1.Rollout) []Result {
	const name = "autoscaler"
	fix := fmt.Sprintf("set its scaleTargetRef to apiVersion: %s, kind: %s, name: %s", argov1.SchemeGroupVersion, argov1.RolloutKind, r.Name)
	var out []Result
	for _, one := range a.All {
		ref := r.Spec.WorkloadRef
		switch {
		case one.TargetKind == argov1.RolloutKind && one.TargetName == r.Name && one.TargetGroup == argov1.SchemeGroupVersion.Group:
			out = append(out, passed(name, fmt.Sprintf("%s scales it", one)))
		case one.TargetKind == argov1.RolloutKind && one.TargetName == r.Name:
			out = append(out, failed(name, fmt.Sprintf("%s names a Rollout of the API group %q, which does not exist", one, one.TargetGroup), fix))
		case ref != nil && one.TargetKind == ref.Kind && one.TargetName == ref.Name:
			out = append(out, warning(name, fmt.Sprintf("%s scales %s %s, and not the Rollout, which has the pods", one, ref.Kind, ref.Name), fix))
		}
	}
	if a.Unread != "" {
		out = append(out, skipped(name, a.Unread, ""))
	}
	if len(out) == 0 {
		out = append(out, passed(name, "there is none"))
	}
	return out
}

// RevisionBudgets contains the PodDisruptionBudgets of the pods of a Rollout.
type RevisionBudgets struct {
	// OfAll select the pods of every revision, OfStable only those of the stable one.
	OfAll, OfStable []string
	// Unread is the reason why they are unknown; empty: they are known.
	Unread string
}

func (b RevisionBudgets) result() Result {
	const name = "disruption-budget"
	switch {
	case b.Unread != "":
		return skipped(name, b.Unread, "")
	case len(b.OfAll) > 0:
		return passed(name, "the pods are protected by "+strings.Join(b.OfAll, ", "))
	case len(b.OfStable) > 0:
		return warning(name, strings.Join(b.OfStable, ", ")+" selects the pods of the stable revision, but not those of the next one",
			"remove the labels of the revision from its selector")
	default:
		return passed(name, "there is none")
	}
}

// services is the check of the Services that the strategy names. Their selectors may have the label of a revision, which the controller
// sets.
func (r Rollout) services() []Result {
	const name = "services"
	names := rollout.ServiceNames(r.Object.Spec.Strategy)
	pods := r.Snapshot.Spec.Template.Labels
	if len(names) == 0 || len(pods) == 0 { // the spec names none, or the workload is missing
		return nil
	}
	var problems []string
	for _, service := range names {
		found := r.Snapshot.Services[service]
		if !found.Found {
			problems = append(problems, "Service "+service+" does not exist")
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(found.Selector)) {
			value, ok := pods[key]
			switch {
			case key == argov1.PodTemplateHashLabel, ok && value == found.Selector[key]:
			case !ok:
				problems = append(problems, fmt.Sprintf("Service %s selects %s=%s, but the pods of the Rollout have no label %s", service, key, found.Selector[key], key))
			default:
				problems = append(problems, fmt.Sprintf("Service %s selects %s=%s, but the pods of the Rollout have %s=%s", service, key, found.Selector[key], key, value))
			}
		}
	}
	return passedUnlessAny(name, problems, "correct the selector of the Service, or the strategy", strings.Join(names, ", ")+" select pods of the Rollout")
}
