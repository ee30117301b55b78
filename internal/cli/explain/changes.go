package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TemplateChange is one difference between the pod templates of two revisions. Values that may be confidential, such as those of
// environment variables, are omitted.
type TemplateChange struct {
	// Path of the changed part, for example: container app, image.
	Path string `json:"path"`
	// Old and New are the values; both are empty if they are omitted.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Kind is added, removed or changed.
	Kind string `json:"kind"`
}

// The kinds of changes.
const (
	added   = "added"
	removed = "removed"
	changed = "changed"
)

// TemplateChanges returns the differences between two pod templates, in a stable order.
func TemplateChanges(old, current corev1.PodTemplateSpec) []TemplateChange {
	out := mapChanges("annotation ", old.Annotations, current.Annotations)
	out = append(out, mapChanges("label ", old.Labels, current.Labels)...)
	for _, group := range []struct {
		word         string
		old, current []corev1.Container
	}{{"init container ", old.Spec.InitContainers, current.Spec.InitContainers}, {"container ", old.Spec.Containers, current.Spec.Containers}} {
		before, after := byName(group.old), byName(group.current)
		for _, name := range keysOfBoth(before, after) {
			b, wasThere := before[name]
			a, isThere := after[name]
			switch path := group.word + name; {
			case !wasThere:
				out = append(out, TemplateChange{Path: path, New: a.Image, Kind: added})
			case !isThere:
				out = append(out, TemplateChange{Path: path, Old: b.Image, Kind: removed})
			default:
				out = append(out, containerChanges(path, b, a)...)
			}
		}
	}
	return append(out, podChanges(old.Spec, current.Spec)...)
}

func byName(containers []corev1.Container) map[string]corev1.Container {
	out := map[string]corev1.Container{}
	for _, container := range containers {
		out[container.Name] = container
	}
	return out
}

func keysOfBoth[T any](a, b map[string]T) []string {
	names := slices.Sorted(maps.Keys(a))
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// mapChanges compares labels or annotations, without their values: annotations may contain anything.
func mapChanges(word string, old, current map[string]string) []TemplateChange {
	var out []TemplateChange
	for _, key := range keysOfBoth(old, current) {
		if isOwnKey(key) {
			continue
		}
		before, wasThere := old[key]
		after, isThere := current[key]
		if kind := kindOfChange(wasThere, isThere, before == after); kind != "" {
			out = append(out, TemplateChange{Path: word + key, Kind: kind})
		}
	}
	return out
}

// isOwnKey reports whether a controller sets the label or annotation, so that its change is no change of the user.
func isOwnKey(key string) bool {
	return key == argov1.PodTemplateHashLabel || strings.Contains(key, "serin.dev/") || strings.Contains(key, "flagger")
}

// primarySuffix is the suffix of the names that a primary has instead of those of the target: of its label, and of the copies of its
// configuration.
const primarySuffix = "-primary"

// targetTemplate returns the template of a primary with the names that the target has instead. It returns the template itself if it
// cannot be converted.
func targetTemplate(primary corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	text, err := json.Marshal(primary)
	if err != nil {
		return primary
	}
	var out corev1.PodTemplateSpec
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), primarySuffix+`"`, `"`)), &out); err != nil {
		return primary
	}
	return out
}

// kindOfChange returns the kind of a change; empty: there is none.
func kindOfChange(wasThere, isThere, equal bool) string {
	switch {
	case !wasThere:
		return added
	case !isThere:
		return removed
	case !equal:
		return changed
	default:
		return ""
	}
}

// containerChanges compares two versions of a container.
func containerChanges(path string, old, current corev1.Container) []TemplateChange {
	var out []TemplateChange
	if old.Image != current.Image {
		out = append(out, TemplateChange{Path: path + ", image", Old: old.Image, New: current.Image, Kind: changed})
	}
	before, after := envByName(old), envByName(current)
	for _, name := range keysOfBoth(before, after) {
		b, wasThere := before[name]
		a, isThere := after[name]
		if kind := kindOfChange(wasThere, isThere, equality.Semantic.DeepEqual(a, b)); kind != "" {
			out = append(out, TemplateChange{Path: path + ", environment variable " + name, Kind: kind})
		}
	}
	for _, resource := range []struct {
		word         string
		old, current corev1.ResourceList
	}{{"requests", old.Resources.Requests, current.Resources.Requests}, {"limits", old.Resources.Limits, current.Resources.Limits}} {
		for _, name := range keysOfBoth(toTexts(resource.old), toTexts(resource.current)) {
			b, a := toTexts(resource.old)[name], toTexts(resource.current)[name]
			if kind := kindOfChange(b != "", a != "", a == b); kind != "" {
				out = append(out, TemplateChange{Path: fmt.Sprintf("%s, %s of %s", path, resource.word, name), Old: b, New: a, Kind: kind})
			}
		}
	}
	// Images, variables and resources have been compared in detail.
	old.Image, old.Env, old.Resources = current.Image, current.Env, current.Resources
	for _, part := range []struct {
		word         string
		old, current any
	}{
		{"command", old.Command, current.Command},
		{"arguments", old.Args, current.Args},
		{"ports", old.Ports, current.Ports},
		{"sources of environment variables", old.EnvFrom, current.EnvFrom},
		{"volume mounts", old.VolumeMounts, current.VolumeMounts},
		{"probes", []*corev1.Probe{old.LivenessProbe, old.ReadinessProbe, old.StartupProbe}, []*corev1.Probe{current.LivenessProbe, current.ReadinessProbe, current.StartupProbe}},
		{"security context", old.SecurityContext, current.SecurityContext},
		{"lifecycle", old.Lifecycle, current.Lifecycle},
	} {
		if !equality.Semantic.DeepEqual(part.old, part.current) {
			out = append(out, TemplateChange{Path: path + ", " + part.word, Kind: changed})
		}
	}
	return out
}

func envByName(container corev1.Container) map[string]corev1.EnvVar {
	out := map[string]corev1.EnvVar{}
	for _, variable := range container.Env {
		out[variable.Name] = variable
	}
	return out
}

func toTexts(resources corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, quantity := range resources {
		out[string(name)] = quantity.String()
	}
	return out
}

// podChanges compares the parts of two pod specs outside their containers.
func podChanges(old, current corev1.PodSpec) []TemplateChange {
	var out []TemplateChange
	if old.ServiceAccountName != current.ServiceAccountName {
		out = append(out, TemplateChange{Path: "service account", Old: old.ServiceAccountName, New: current.ServiceAccountName, Kind: changed})
	}
	before, after := map[string]corev1.Volume{}, map[string]corev1.Volume{}
	for _, volume := range old.Volumes {
		before[volume.Name] = volume
	}
	for _, volume := range current.Volumes {
		after[volume.Name] = volume
	}
	for _, name := range keysOfBoth(before, after) {
		b, wasThere := before[name]
		a, isThere := after[name]
		if kind := kindOfChange(wasThere, isThere, equality.Semantic.DeepEqual(a, b)); kind != "" {
			out = append(out, TemplateChange{Path: "volume " + name, Kind: kind})
		}
	}
	old.ServiceAccountName, old.DeprecatedServiceAccount, old.Volumes, old.Containers, old.InitContainers = current.ServiceAccountName, current.DeprecatedServiceAccount, current.Volumes, current.Containers, current.InitContainers
	if !equality.Semantic.DeepEqual(old, current) {
		out = append(out, TemplateChange{Path: "other fields of the pod", Kind: changed})
	}
	return out
}
