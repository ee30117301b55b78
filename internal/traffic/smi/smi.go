// Package smi carries traffic by a TrafficSplit of the Service Mesh Interface, for Linkerd, Open Service Mesh and every
// other mesh that reads one.
//
// It must not know other providers, clients, or which mesh reads the split; what a mesh wants to be told besides comes
// with the name of the provider.
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

// The versions. They differ in how a weight is written: V1Alpha1 has quantities, the others have integers.
const (
	V1Alpha1 Version = "v1alpha1"
	V1Alpha2 Version = "v1alpha2"
	V1Alpha3 Version = "v1alpha3"
)

// gatewaysAnnotation tells the adapter for Istio which gateways the split is for.
const gatewaysAnnotation = "VirtualService.v1alpha3.networking.istio.io/spec.gateways"

// specFields are what of the spec Serin writes. Matches and all else may be written by others.
var specFields = traffic.Fields{"service": {}, "backends": {Fields: traffic.Whole("service", "weight"), Same: traffic.By("service")}}

// Renderer makes a TrafficSplit named as the apex.
type Renderer struct {
	version Version
}

// New makes the renderer of every provider that is served by a TrafficSplit of that version.
func New(version Version) Renderer { return Renderer{version: version} }

// Features are weights alone.
func (Renderer) Features(traffic.Target) traffic.Features { return traffic.Features{Weights: true} }

// Refs is the TrafficSplit.
func (r Renderer) Refs(t traffic.Target) []traffic.Ref {
	gvk := schema.GroupVersionKind{Group: "split.smi-spec.io", Version: string(r.version), Kind: "TrafficSplit"}
	return []traffic.Ref{{GVK: gvk, Namespace: t.Namespace, Name: t.Apex, Owned: true}}
}

// Render makes the TrafficSplit.
func (r Renderer) Render(t traffic.Target, route release.Route, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	obj, err := traffic.Desired(t, r.Refs(t)[0], existing[0])
	if err != nil {
		return nil, err
	}
	if err := setGateways(t, obj); err != nil {
		return nil, err
	}
	backends := []map[string]any{
		{"service": t.CanaryService, "weight": r.weight(route.Canary)},
		{"service": t.Primary, "weight": r.weight(release.Total - route.Canary)},
	}
	traffic.Write(traffic.Spec(obj), map[string]any{"service": root(t), "backends": traffic.List(backends)}, specFields)
	return []*unstructured.Unstructured{obj}, nil
}

// root is the service whose clients are split: a split knows only one.
func root(t traffic.Target) string {
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

// setGateways writes the annotation where the split is made into a VirtualService, and nowhere else.
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
			return fmt.Errorf("note the gateways of %s: %w", t.Apex, err)
		}
		annotations[gatewaysAnnotation] = string(text)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
	return nil
}

// forIstio says whether the provider names Istio as the mesh behind the split: smi:v1alpha1:istio.
func forIstio(t traffic.Target) bool {
	return strings.HasPrefix(t.Provider, "smi:") && strings.HasSuffix(t.Provider, ":istio")
}

// Read takes the weights by the names of the Services. No mesh reports what it serves.
func (r Renderer) Read(t traffic.Target, existing []*unstructured.Unstructured) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	if existing[0] == nil {
		return out, nil
	}
	ref := r.Refs(t)[0]
	weights, _, err := weightsOf(ref, existing[0])
	if err != nil {
		return out, err
	}
	canary, named := weights[t.CanaryService]
	if !named {
		return out, nil
	}
	if weights[t.Primary]+canary == 0 {
		return out, fmt.Errorf("read %s: the weights of %s and %s are both 0: give one of them requests", ref, t.Primary, t.CanaryService)
	}
	out.Found, out.Route.Canary = true, traffic.Share(weights[t.Primary], canary)
	return out, nil
}

// weightsOf are the weights of a split in thousandths, by the names of Services, which come in their order.
func weightsOf(ref traffic.Ref, split *unstructured.Unstructured) (weights map[string]int, names []string, err error) {
	list, _, err := unstructured.NestedFieldNoCopy(split.Object, "spec", "backends")
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", ref, err)
	}
	weights = map[string]int{}
	for _, backend := range traffic.Maps(list) {
		name, _ := backend["service"].(string)
		if weights[name], err = weightOf(backend["weight"]); err != nil {
			return nil, nil, fmt.Errorf("read %s: the weight of %s is %v, which is not a number from 0", ref, name, backend["weight"])
		}
		names = append(names, name)
	}
	return weights, names, nil
}

// thousandths are what a weight is read in.
const thousandths = 1000

// maxWeight keeps sums of weights far from what an integer can hold.
const maxWeight = 1e9

// weightOf is a weight in thousandths, as a quantity may have: 500m is half of 1.
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
		return 0, fmt.Errorf("%v is no weight", v)
	}
	return int(math.Round(weight * thousandths)), nil
}

// Restore gives back service, backends and gateways of an adopted TrafficSplit.
func (r Renderer) Restore(t traffic.Target, existing []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	ours := traffic.Ours{Spec: specFields.Names(), Bare: true}
	if forIstio(t) {
		ours.Annotations = []string{gatewaysAnnotation}
	}
	obj, err := ours.GivenBack(t, r.Refs(t)[0], existing[0])
	return []*unstructured.Unstructured{obj}, err
}
