// Package knative routes traffic with the shares of a Knative Service, between the revision in an annotation, which is the
// primary, and the latest one.
//
// It must not know other providers, clients, or who sets the primary revision.
package knative

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// primaryAnnotation of a Knative Service names its primary revision.
const primaryAnnotation = "flagger.app/primary-revision"

var serviceKind = schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}

// specFields are the fields of the spec that Serin writes. Entries with a tag belong to the user.
var specFields = traffic.Fields{"traffic": {
	Fields: traffic.WholeFields("latestRevision", "revisionName", "percent", "tag"),
	Same: func(was, now map[string]any) bool {
		latest, _ := was["latestRevision"].(bool)
		nowLatest, _ := now["latestRevision"].(bool)
		return latest == nowLatest && was["tag"] == now["tag"]
	},
}}

// Renderer writes the shares of the user's Knative Service.
type Renderer struct{}

// New returns the renderer of the provider knative.
func New() Renderer { return Renderer{} }

// Features are weights, and a status that confirms them.
func (Renderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Confirms: true}
}

// Refs is the Knative Service, which is the target itself.
func (Renderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	return []traffic.Ref{{GVK: serviceKind, Namespace: t.Namespace, Name: t.Canary.Spec.TargetRef.Name, Shared: true}}
}

// Render writes two shares. Entries with tags, which give revisions an address, remain.
func (r Renderer) Render(t traffic.Target, route release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := r.Features(t).Check(t, route); err != nil {
		return nil, err
	}
	ref, service := existing[0].Ref, existing[0].Object
	if service == nil {
		return existing.Unchanged(), nil // the target does not exist, which the workload reports
	}
	obj, err := traffic.Lookup{Ref: ref, Object: before(service)}.Adopt(t, specFields.Names()...)
	if err != nil {
		return nil, err
	}
	primary := service.GetAnnotations()[primaryAnnotation]
	if primary == "" {
		return nil, fmt.Errorf("%s does not name its primary revision yet (annotation %s)", ref, primaryAnnotation)
	}
	live, err := entriesOf(service, "spec")
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	if route.Canary > 0 && live.named != nil && live.share() == route.Canary {
		// While the shares are unchanged, they keep their revision: it changes together with the traffic.
		primary, _ = live.named["revisionName"].(string)
	}
	latest := map[string]any{"latestRevision": true, "percent": int64(route.Canary)}
	named := map[string]any{"revisionName": primary, "percent": int64(release.Total - route.Canary)}
	if latestRevision, ok := live.named["latestRevision"]; ok { // a default of Knative, which would be written repeatedly
		named["latestRevision"] = latestRevision
	}
	spec := traffic.Spec(obj)
	if was, ok := traffic.Spec(service.DeepCopy())["traffic"]; ok {
		spec["traffic"] = was // also if they are not recorded as the user's
	}
	traffic.WriteFields(spec, map[string]any{"traffic": append([]any{latest, named}, live.addresses...)}, specFields)
	return []*unstructured.Unstructured{obj}, nil
}

// before returns the Service as the user had it, as far as that is known: shares that Flagger wrote are not the user's.
func before(existing *unstructured.Unstructured) *unstructured.Unstructured {
	live, err := entriesOf(existing, "spec")
	if err != nil || live.latest == nil || live.named == nil || len(live.addresses) > 0 ||
		live.named["revisionName"] != existing.GetAnnotations()[primaryAnnotation] {
		return existing
	}
	out := existing.DeepCopy()
	delete(traffic.Spec(out), "traffic") // Knative's default: all requests to the latest revision
	return out
}

// entries are the traffic entries, by kind.
type entries struct {
	// latest and named are the first entries for the latest revision, and for a revision by its name.
	latest, named map[string]any
	// canary and primary are the sums of both.
	canary, primary int
	// addresses are the entries with a tag, which gives a revision an address of its own, without their share.
	addresses []any
}

func (e entries) share() int { return traffic.Share(e.primary, e.canary) }

// entriesOf returns the traffic entries of spec or status. An entry without a number counts as 0.
func entriesOf(obj *unstructured.Unstructured, part string) (entries, error) {
	var out entries
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, part, "traffic")
	if err != nil {
		return out, err
	}
	for _, entry := range traffic.Maps(list) {
		percent, err := traffic.Number(entry["percent"])
		if err != nil || percent < 0 {
			return out, fmt.Errorf("%s.traffic has a share of %v, which is not a non-negative number", part, entry["percent"])
		}
		if tag, _ := entry["tag"].(string); tag != "" {
			address := runtime.DeepCopyJSON(entry)
			delete(address, "percent")
			out.addresses = append(out.addresses, address)
			if percent == 0 {
				continue
			}
		}
		switch latest, _ := entry["latestRevision"].(bool); {
		case latest:
			out.canary += int(percent)
			if out.latest == nil {
				out.latest = entry
			}
		default:
			out.primary += int(percent)
			if out.named == nil {
				out.named = entry
			}
		}
	}
	return out, nil
}

// Read reads the shares of the spec. The shares of the status confirm them.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	ref, service := existing[0].Ref, existing[0].Object
	if service == nil || service.GetAnnotations()[primaryAnnotation] == "" {
		return out, nil
	}
	live, err := entriesOf(service, "spec")
	switch {
	case err != nil:
		return out, fmt.Errorf("read %s: %w", ref, err)
	case live.latest == nil && live.named == nil:
		return out, nil
	case live.named == nil && latestReady(service) == service.GetAnnotations()[primaryAnnotation]:
		return out, nil // the user's: all to the latest revision, which is the primary
	case live.primary+live.canary == 0:
		return out, fmt.Errorf("read %s: all shares of spec.traffic are 0: set at least one of them", ref)
	}
	out.Found, out.Route.Canary = true, live.share()
	out.Confirmed, out.Reason = confirmed(ref, service, live)
	return out, nil
}

// confirmed compares the shares that Knative reports with the desired ones. Knative also reports the name of the latest
// revision.
func confirmed(ref traffic.Ref, obj *unstructured.Unstructured, want entries) (traffic.Confirmation, string) {
	reported, err := entriesOf(obj, "status")
	if err != nil || reported.latest == nil && reported.named == nil {
		return traffic.CannotTell, ""
	}
	switch {
	case reported.canary != want.canary || reported.primary != want.primary || want.primary > 0 && reported.named["revisionName"] != want.named["revisionName"]:
		return traffic.ConfirmedNo, fmt.Sprintf("%s: Knative has not applied the shares of spec.traffic yet", ref)
	case want.canary > 0 && reported.latest["revisionName"] != latestReady(obj):
		return traffic.ConfirmedNo, fmt.Sprintf("%s: Knative does not send requests to revision %s yet", ref, latestReady(obj))
	default:
		return traffic.ConfirmedYes, ""
	}
}

// latestReady is the name of the latest ready revision.
func latestReady(obj *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(obj.Object, "status", "latestReadyRevisionName")
	return name
}

// Restore restores the previous shares, whether or not the Service still names a primary.
func (r Renderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	obj, err := traffic.Written{Spec: specFields, NoApexMetadata: true}.Original(t, existing[0])
	return []*unstructured.Unstructured{obj}, err
}
