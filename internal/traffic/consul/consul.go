// Package consul routes traffic with a ServiceSplitter of Consul, whose splits are subsets of a service. A ServiceResolver
// defines the subsets by a filter on the metadata of pods, which are annotations of the pod template.
//
// It must not know other providers, clients, or the reason for a weight.
package consul

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// PluginName is the name of this router under plugins.
const PluginName = "hashicorp/consul"

const (
	// annotationPrefix is the prefix of the annotations of pods that Consul reads as metadata of their service.
	annotationPrefix = "consul.hashicorp.com/service-meta-"
	// defaultKey is the key of the metadata that distinguishes the revisions.
	defaultKey = "version"
)

// The kinds that are written.
var (
	resolverKind = schema.GroupVersionKind{Group: "consul.hashicorp.com", Version: "v1alpha1", Kind: "ServiceResolver"}
	splitterKind = schema.GroupVersionKind{Group: "consul.hashicorp.com", Version: "v1alpha1", Kind: "ServiceSplitter"}
)

// RolloutRenderer writes the revisions of both sides into the subsets of a ServiceResolver of the user, and their weights into a
// ServiceSplitter.
type RolloutRenderer struct{}

// NewRollout returns the renderer of the plugin PluginName.
func NewRollout() RolloutRenderer { return RolloutRenderer{} }

// config is the configuration of the plugin in a Rollout.
type config struct {
	ServiceName      string `json:"serviceName"`
	CanarySubsetName string `json:"canarySubsetName"`
	StableSubsetName string `json:"stableSubsetName"`
	// ServiceMetaAnnotationSuffix is the key of the metadata that distinguishes the revisions.
	ServiceMetaAnnotationSuffix string `json:"serviceMetaAnnotationSuffix"`
}

func configOf(t traffic.Target) (config, error) {
	var c config
	if err := t.ReadPluginConfig(PluginName, &c); err != nil {
		return c, err
	}
	c.ServiceMetaAnnotationSuffix = cmp.Or(c.ServiceMetaAnnotationSuffix, defaultKey)
	for _, required := range []struct{ name, value string }{
		{"serviceName", c.ServiceName}, {"canarySubsetName", c.CanarySubsetName}, {"stableSubsetName", c.StableSubsetName},
	} {
		if required.value == "" {
			return c, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s has no %s: set it", PluginName, required.name)
		}
	}
	if c.CanarySubsetName == c.StableSubsetName {
		return c, traffic.Refuse(traffic.ErrInvalid, "the configuration of plugin %s has the same subset for both sides: use two", PluginName)
	}
	return c, nil
}

// annotation is the annotation of the pod template that distinguishes the revisions.
func (c config) annotation() string { return annotationPrefix + c.ServiceMetaAnnotationSuffix }

var (
	plainKey   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)
	plainValue = regexp.MustCompile(`^([0-9]+|[A-Za-z][A-Za-z0-9]*)$`)
)

// filter selects the pods of a version. The form is that of the original plugin if Consul can parse it.
func (c config) filter(version string) string {
	key := "." + c.ServiceMetaAnnotationSuffix
	if !plainKey.MatchString(c.ServiceMetaAnnotationSuffix) {
		key = "[" + strconv.Quote(c.ServiceMetaAnnotationSuffix) + "]"
	}
	if !plainValue.MatchString(version) {
		version = strconv.Quote(version)
	}
	return "Service.Meta" + key + " == " + version
}

// ValidateConfig implements traffic.ConfigValidator.
func (RolloutRenderer) ValidateConfig(t traffic.Target) error {
	_, err := configOf(t)
	return err
}

// Features are weights. Consul reports whether it has rejected an object.
func (RolloutRenderer) Features(traffic.Target) traffic.Features {
	return traffic.Features{Weights: true, Confirms: true}
}

// The positions of the objects. A subset is updated before it receives traffic.
const (
	resolver = iota
	splitter
)

// Refs are the ServiceResolver and the ServiceSplitter of the service.
func (RolloutRenderer) Refs(t traffic.Target, _ release.Route, _ traffic.Objects) []traffic.Ref {
	c, err := configOf(t)
	if err != nil {
		return nil
	}
	return []traffic.Ref{
		resolver: {GVK: resolverKind, Namespace: t.Namespace, Name: c.ServiceName, Shared: true, SelectsPods: true},
		splitter: {GVK: splitterKind, Namespace: t.Namespace, Name: c.ServiceName, Shared: true},
	}
}

// MarkedKind implements traffic.Marker.
func (RolloutRenderer) MarkedKind() schema.GroupVersionKind { return resolverKind }

// Render writes the filters of the subsets, and the weights of the splits.
func (rd RolloutRenderer) Render(t traffic.Target, r release.Route, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	if err := rd.Features(t).Check(t, r); err != nil {
		return nil, err
	}
	c, err := configOf(t)
	if err != nil {
		return nil, err
	}
	subsets, err := existing[resolver].EditShared()
	if err != nil {
		return nil, err
	}
	splits, err := existing[splitter].EditShared()
	if err != nil {
		return nil, err
	}
	if err := t.MarkManaged(existing[resolver].Ref, subsets); err != nil {
		return nil, err
	}
	if err := c.setFilters(t, existing[resolver].Ref, subsets); err != nil {
		return nil, err
	}
	canary, stable, fault := c.splits(splits)
	if fault != "" {
		return nil, traffic.Refuse(traffic.ErrInvalid, "%s %s", existing[splitter].Ref, fault)
	}
	canary["weight"], stable["weight"] = int64(r.Canary), int64(r.Stable())
	return []*unstructured.Unstructured{resolver: subsets, splitter: splits}, nil
}

// setFilters makes both subsets select the pods of their revisions, or of all revisions if there is none.
func (c config) setFilters(t traffic.Target, ref traffic.Ref, obj *unstructured.Unstructured) error {
	canary, stable, fault := c.subsets(obj)
	if fault != "" {
		return traffic.Refuse(traffic.ErrInvalid, "%s %s", ref, fault)
	}
	versions := map[string]string{}
	for _, side := range []struct {
		subset map[string]any
		hash   string
	}{{canary, t.CanaryHash}, {stable, t.StableHash}} {
		annotations, known := t.PodAnnotations[side.hash]
		version := annotations[c.annotation()]
		switch {
		case side.hash == "":
			side.subset["filter"] = ""
		case !known: // its pods no longer exist
		case version == "":
			return traffic.Refuse(traffic.ErrInvalid,
				"the pods of revision %s have no annotation %s, by which router %s distinguishes revisions: set it in the pod template",
				side.hash, c.annotation(), PluginName)
		default:
			side.subset["filter"], versions[side.hash] = c.filter(version), version
		}
	}
	if version, other := versions[t.CanaryHash], versions[t.StableHash]; t.CanaryHash != t.StableHash && version != "" && version == other {
		return traffic.Refuse(traffic.ErrInvalid,
			"the annotation %s is %q in the pods of both revisions, so that Consul cannot distinguish them: change it with each release",
			c.annotation(), version)
	}
	return nil
}

// subsets returns the subsets of both sides, which are not copies, or why a ServiceResolver cannot be used.
func (c config) subsets(obj *unstructured.Unstructured) (canary, stable map[string]any, fault string) {
	all, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "subsets")
	subsets, _ := all.(map[string]any)
	for _, side := range []struct {
		name   string
		subset *map[string]any
	}{{c.CanarySubsetName, &canary}, {c.StableSubsetName, &stable}} {
		found, ok := subsets[side.name].(map[string]any)
		if !ok {
			return nil, nil, fmt.Sprintf("has no subset %s in spec.subsets", side.name)
		}
		*side.subset = found
	}
	return canary, stable, ""
}

// splits returns the splits of both sides, which are not copies, or why a ServiceSplitter cannot be used. Consul requires weights
// that add up to 100, so that there is no place for a third one.
func (c config) splits(obj *unstructured.Unstructured) (canary, stable map[string]any, fault string) {
	list, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "splits")
	all := traffic.Maps(list)
	for _, split := range all {
		switch split["serviceSubset"] {
		case c.CanarySubsetName:
			canary = split
		case c.StableSubsetName:
			stable = split
		}
	}
	if len(all) != 2 || canary == nil || stable == nil {
		return nil, nil, fmt.Sprintf("has %d splits: it needs exactly two, with the subsets %s and %s", len(all), c.StableSubsetName, c.CanarySubsetName)
	}
	return canary, stable, ""
}

// Read reads the weights from the ServiceSplitter, and the revisions from the filters of the ServiceResolver.
func (RolloutRenderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	c, err := configOf(t)
	if err != nil {
		return out, nil //nolint:nilerr // validation reports it
	}
	for _, x := range existing {
		if x.Object == nil {
			continue
		}
		if reason := rejection(x.Ref, x.Object); reason != "" && out.Confirmed != traffic.ConfirmedNo {
			out.Confirmed, out.Reason = traffic.ConfirmedNo, reason
		}
		if x.Ref.SelectsPods {
			if canary, stable, fault := c.subsets(x.Object); fault == "" {
				out.CanaryHash, out.StableHash = c.revisionOf(t, canary, t.CanaryHash), c.revisionOf(t, stable, t.StableHash)
			}
			continue
		}
		canary, _, fault := c.splits(x.Object)
		if fault != "" {
			continue
		}
		if out.Route.Canary, err = traffic.Weight(c.CanarySubsetName, canary["weight"]); err != nil {
			return traffic.Observed{Confirmed: traffic.CannotTell}, fmt.Errorf("read %s: %w", x.Ref, err)
		}
		out.Found = true
	}
	if !out.Found {
		out.Confirmed, out.Reason = traffic.CannotTell, ""
	}
	return out, nil
}

// revisionOf is the revision whose pods a subset selects; empty if it is none or unknown. Several revisions may have the same
// version: the expected one is preferred.
func (c config) revisionOf(t traffic.Target, subset map[string]any, expected string) string {
	selects := func(hash string) bool {
		version := t.PodAnnotations[hash][c.annotation()]
		return version != "" && subset["filter"] == c.filter(version)
	}
	if selects(expected) {
		return expected
	}
	found := ""
	for hash := range t.PodAnnotations {
		if selects(hash) {
			found = max(found, hash) // independent of the order
		}
	}
	return found
}

// rejection is why Consul does not use an object; empty if it does, or has not reported it. It does not report which generation it
// has read.
func rejection(ref traffic.Ref, obj *unstructured.Unstructured) string {
	list, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	for _, condition := range traffic.Maps(list) {
		if condition["type"] == "Synced" && condition["status"] == "False" {
			return fmt.Sprintf("%s is not synced with Consul: %v", ref, cmp.Or(condition["message"], condition["reason"]))
		}
	}
	return ""
}

// Validate finds errors in the configuration, objects that are missing or lack a side, and a pod template without the version.
func (RolloutRenderer) Validate(t traffic.Target, existing traffic.Objects) field.ErrorList {
	path := traffic.RoutingPath().Child("plugins").Key(PluginName)
	c, err := configOf(t)
	if err != nil {
		return field.ErrorList{field.Invalid(path, string(t.Routing().Plugins[PluginName]), err.Error())}
	}
	var all field.ErrorList
	for _, x := range existing {
		fault := "not found"
		switch {
		case x.Object == nil:
		case x.Ref.SelectsPods:
			_, _, fault = c.subsets(x.Object)
		default:
			_, _, fault = c.splits(x.Object)
		}
		if fault != "" {
			all = append(all, field.Invalid(path, x.Ref.Name, x.Ref.String()+" "+fault))
		}
	}
	if t.Rollout.Spec.WorkloadRef == nil && t.Rollout.Spec.Template.Annotations[c.annotation()] == "" {
		all = append(all, field.Required(field.NewPath("spec", "template", "metadata", "annotations").Key(c.annotation()),
			"router "+PluginName+" distinguishes revisions by it: set it, and change it with each release"))
	}
	return all
}

// Restore removes the mark, and makes the subsets select all pods: they are of no revision any longer. Weights remain.
func (RolloutRenderer) Restore(t traffic.Target, existing traffic.Objects) ([]*unstructured.Unstructured, error) {
	out := existing.Unchanged()
	c, err := configOf(t)
	if err != nil {
		return out, nil //nolint:nilerr // nothing was written for an invalid configuration
	}
	for i, x := range existing {
		if x.Object == nil || !x.Ref.SelectsPods {
			continue
		}
		obj := x.Object.DeepCopy()
		if !t.UnmarkManaged(obj) {
			continue // another Rollout's, or no longer managed
		}
		if canary, stable, fault := c.subsets(obj); fault == "" {
			canary["filter"], stable["filter"] = "", ""
		}
		out[i] = obj
	}
	return out, nil
}
