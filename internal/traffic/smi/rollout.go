package smi

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// RolloutRenderer creates a TrafficSplit for a Rollout.
type RolloutRenderer struct {
	canary Renderer
}

// NewRollout returns the router smi. An empty version means V1Alpha1.
func NewRollout(version Version) RolloutRenderer {
	return RolloutRenderer{canary: New(cmp.Or(version, V1Alpha1))}
}

// Features are weights, also of experiments.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Others: true}
}

func configuration(t traffic.Target) argov1.SMITrafficRouting {
	if smi := t.Routing().SMI; smi != nil {
		return *smi
	}
	return argov1.SMITrafficRouting{}
}

// Refs is the TrafficSplit.
func (rd RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return []traffic.Ref{{
		GVK:       schema.GroupVersionKind{Group: "split.smi-spec.io", Version: string(rd.canary.version), Kind: "TrafficSplit"},
		Namespace: t.Namespace, Name: cmp.Or(configuration(t).TrafficSplitName, t.Rollout.Name), Owned: true,
		Events: traffic.EventReasons{Created: "TrafficSplitCreated", NotCreated: "TrafficSplitNotCreated"},
	}}
}

// Render renders the TrafficSplit: the canary, experiments, and the stable side.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	obj, err := existing[0].EditOwned(t)
	if err != nil {
		return nil, err
	}
	backends := []map[string]any{{"service": t.CanaryService, "weight": rd.canary.weight(r.Canary)}}
	for _, d := range r.Others {
		backends = append(backends, map[string]any{"service": d.Service, "weight": rd.canary.weight(d.Weight)})
	}
	backends = append(backends, map[string]any{"service": t.StableService, "weight": rd.canary.weight(r.Stable())})
	root := cmp.Or(configuration(t).RootService, t.StableService)
	traffic.WriteFields(traffic.Spec(obj), map[string]any{"service": root, "backends": traffic.List(backends)}, specFields)
	return []*unstructured.Unstructured{obj}, nil
}

// Read reads the weights by the names of the Services. No mesh reports what it serves.
func (rd RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0].Object == nil {
		return out, nil
	}
	weights, names, err := weightsOf(existing[0])
	if err != nil {
		return out, err
	}
	for _, name := range names {
		switch weight := weights[name] / thousandths; name {
		case t.CanaryService:
			out.Found, out.Route.Canary = true, weight
		case t.StableService:
		default:
			out.Route.Others = append(out.Route.Others, release.Destination{Service: name, Weight: weight})
		}
	}
	return out, nil
}

// Restore has nothing to restore: the TrafficSplit was created for the Rollout.
func (RolloutRenderer) Restore(_ traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	return existing.Unchanged(), nil
}
