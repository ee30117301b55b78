// Package smi routes traffic with a TrafficSplit of the Service Mesh Interface, for Linkerd, Open Service Mesh and every
// other mesh that supports it.
//
// It must not know other providers, clients, or which mesh reads the split; the name of the provider determines what a mesh
// needs in addition.
package smi

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// Version of the API that is written.
type Version string

// The versions. They differ in the type of a weight: V1Alpha1 has quantities, the others have integers.
const (
	V1Alpha1 Version = "v1alpha1"
	V1Alpha2 Version = "v1alpha2"
	V1Alpha3 Version = "v1alpha3"
)

// gatewaysAnnotation names, for the adapter for Istio, the gateways of the split.
const gatewaysAnnotation = "VirtualService.v1alpha3.networking.istio.io/spec.gateways"

// specFields are the fields of the spec that Serin writes. Other tools may write matches and all other fields.
var specFields = traffic.Fields{"service": {}, "backends": {Fields: traffic.WholeFields("service", "weight"), Same: traffic.SameField("service")}}

// Renderer creates a TrafficSplit with the name of the apex.
type Renderer struct {
	version Version
}

// New returns the renderer of every provider that uses a TrafficSplit of that version.
func New(version Version) Renderer { return Renderer{version: version} }

// Features are weights only.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TrafficSplit.
func (r Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	gvk := schema.GroupVersionKind{Group: "split.smi-spec.io", Version: string(r.version), Kind: "TrafficSplit"}
	return []traffic.Ref{{GVK: gvk, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render renders the TrafficSplit.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := existing[0].Adopt(t)
	if err != nil {
		return nil, err
	}
	if err := setGateways(t, obj); err != nil {
		return nil, err
	}
	backends := []map[string]any{
		{"service": t.CanaryService, "weight": r.weight(route.Canary)},
		{"service": t.StableService, "weight": r.weight(release.Total - route.Canary)},
	}
	traffic.WriteFields(traffic.Spec(obj), map[string]any{"service": rootService(t), "backends": traffic.List(backends)}, specFields)
	return []*unstructured.Unstructured{obj}, nil
}

// rootService is the Service whose requests are split: a split has only one.
func rootService(t traffic.Target) string {
	if hosts := t.Canary.Spec.Service.Hosts; len(hosts) > 0 {
		return hosts[0]
	}
	return t.Apex
}

func (r Renderer) weight(percent int) any {
	if r.version == V1Alpha1 {
		return strconv.Itoa(percent)
	}
	return int64(percent)
}

// setGateways writes the annotation if an adapter converts the split to a VirtualService.
func setGateways(t traffic.Target, obj *unstructured.Unstructured) error {
	if !forIstio(t) {
		return nil
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, gatewaysAnnotation)
	if gateways := t.Canary.Spec.Service.Gateways; len(gateways) > 0 {
		text, err := json.Marshal(gateways)
		if err != nil {
			return fmt.Errorf("record the gateways of %s: %w", t.Apex, err)
		}
		annotations[gatewaysAnnotation] = string(text)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
	return nil
}

// forIstio reports whether the provider names Istio as the mesh behind the split: smi:v1alpha1:istio.
func forIstio(t traffic.Target) bool {
	return strings.HasPrefix(t.Provider, "smi:") && strings.HasSuffix(t.Provider, ":istio")
}

// Read reads the weights by the names of the Services. No mesh reports what it serves.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0].Object == nil {
		return out, nil
	}
	weights, _, err := weightsOf(existing[0])
	if err != nil {
		return out, err
	}
	if _, named := weights[t.CanaryService]; !named {
		return out, nil
	}
	return traffic.ObserveShare(existing[0].Ref, weights, t.StableService, t.CanaryService)
}

// weightsOf returns the weights of a split in thousandths, by the names of Services, and these names in their order.
func weightsOf(split traffic.Lookup) (weights map[string]int, names []string, err error) {
	list, _, err := unstructured.NestedFieldNoCopy(split.Object.Object, "spec", "backends")
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", split.Ref, err)
	}
	weights = map[string]int{}
	for _, backend := range traffic.Maps(list) {
		name, _ := backend["service"].(string)
		if weights[name], err = weightOf(backend["weight"]); err != nil {
			return nil, nil, fmt.Errorf("read %s: the weight of %s is %v, which is not a non-negative number", split.Ref, name, backend["weight"])
		}
		names = append(names, name)
	}
	return weights, names, nil
}

// thousandths is the unit in which weights are read.
const thousandths = 1000

// maxWeight prevents overflows of sums of weights.
const maxWeight = 1e9

// weightOf is a weight in thousandths, which a quantity may have: 500m is half of 1.
func weightOf(v any) (int, error) {
	weight, err := 0.0, error(nil)
	if text, ok := v.(string); ok {
		var quantity resource.Quantity
		quantity, err = resource.ParseQuantity(text)
		weight = quantity.AsApproximateFloat64()
	} else {
		weight, err = traffic.Number(v)
	}
	if err != nil || !(weight >= 0 && weight <= maxWeight) {
		return 0, fmt.Errorf("%v is not a weight", v)
	}
	return int(math.Round(weight * thousandths)), nil
}

// Restore restores service, backends and gateways of an adopted TrafficSplit.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	written := traffic.Written{Spec: specFields, NoApexMetadata: true}
	if forIstio(t) {
		written.Annotations = []string{gatewaysAnnotation}
	}
	obj, err := written.Original(t, existing[0])
	return []*unstructured.Unstructured{obj}, err
}

// SplitsService implements traffic.ServiceSplitter.
func (Renderer) SplitsService() {}
