package analysis

import (
	"fmt"
	"slices"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// Template is the content of one AnalysisTemplate or ClusterAnalysisTemplate.
type Template struct {
	Name    string
	Cluster bool
	Spec    argov1.AnalysisTemplateSpec
}

// CollectTemplates returns the referenced templates and the templates that they reference in turn, each of them once:
// AnalysisTemplates first, then ClusterAnalysisTemplates, both in the order in which they were found. It fails if
// lookup fails.
func CollectTemplates(refs []argov1.AnalysisTemplateRef, lookup TemplateLookup) ([]Template, error) {
	var found []Template
	for len(refs) > 0 {
		var nested []argov1.AnalysisTemplateRef
		for _, ref := range refs {
			cluster := ref.ClusterScope != nil && *ref.ClusterScope
			known := func(t Template) bool { return t.Name == ref.TemplateName && t.Cluster == cluster }
			if slices.ContainsFunc(found, known) {
				continue
			}
			spec, err := lookup(ref.TemplateName, cluster)
			if err != nil {
				return nil, err
			}
			found = append(found, Template{Name: ref.TemplateName, Cluster: cluster, Spec: spec})
			nested = append(nested, spec.Templates...)
		}
		refs = nested
	}
	slices.SortStableFunc(found, func(a, b Template) int {
		switch {
		case a.Cluster == b.Cluster:
			return 0
		case b.Cluster:
			return -1
		default:
			return 1
		}
	})
	return found, nil
}

// RunOptions are the settings that the creator of a run specifies in addition to the templates.
type RunOptions struct {
	// Args are the values of arguments. Arguments that no template declares are ignored.
	Args                 []argov1.Argument
	DryRun               []argov1.DryRun
	MeasurementRetention []argov1.MeasurementRetention
}

// MergeTemplates combines templates into the spec of one run. It fails if metrics, rules or arguments contradict each
// other, or if an argument has no value.
func MergeTemplates(templates []Template, caller RunOptions) (argov1.AnalysisRunSpec, error) {
	spec := argov1.AnalysisRunSpec{DryRun: slices.Clone(caller.DryRun), MeasurementRetention: slices.Clone(caller.MeasurementRetention)}
	var declared []argov1.Argument
	for _, t := range templates {
		spec.Metrics = append(spec.Metrics, t.Spec.Metrics...)
		spec.DryRun = append(spec.DryRun, t.Spec.DryRun...)
		spec.MeasurementRetention = append(spec.MeasurementRetention, t.Spec.MeasurementRetention...)
		var err error
		if declared, err = declareArguments(declared, t.Spec.Args); err != nil {
			return spec, err
		}
	}
	if name, duplicate := findDuplicate(spec.Metrics, func(m argov1.Metric) string { return m.Name }); duplicate {
		return spec, fmt.Errorf("two metrics have the same name '%s'", name)
	}
	if name, duplicate := findDuplicate(spec.DryRun, func(r argov1.DryRun) string { return r.MetricName }); duplicate {
		return spec, fmt.Errorf("two Dry-Run metric rules have the same name '%s'", name)
	}
	if name, duplicate := findDuplicate(spec.MeasurementRetention, func(r argov1.MeasurementRetention) string { return r.MetricName }); duplicate {
		return spec, fmt.Errorf("two Measurement Retention metric rules have the same name '%s'", name)
	}
	var err error
	spec.Args, err = resolveArguments(declared, caller.Args)
	return spec, err
}

// declareArguments adds the arguments that one template declares. Several templates may declare the same argument
// unless their values differ.
func declareArguments(declared, added []argov1.Argument) ([]argov1.Argument, error) {
	for _, arg := range added {
		i := slices.IndexFunc(declared, func(old argov1.Argument) bool { return old.Name == arg.Name })
		switch {
		case i < 0:
			declared = append(declared, arg)
		case declared[i].Value == nil && declared[i].ValueFrom == nil:
			declared[i] = arg
		case arg.Value != nil && declared[i].Value != nil && *arg.Value != *declared[i].Value:
			return nil, fmt.Errorf("Argument `%s` specified multiple times with different values: '%s', '%s'", arg.Name, *declared[i].Value, *arg.Value) //nolint:staticcheck // the text is part of the API
		}
	}
	return declared, nil
}

// resolveArguments returns the declared arguments with their values. Those of the caller override those of templates.
func resolveArguments(declared, values []argov1.Argument) ([]argov1.Argument, error) {
	out := slices.Clone(declared)
	for i := range out {
		for _, value := range values {
			if value.Name == out[i].Name && (value.Value != nil || value.ValueFrom != nil) {
				out[i].Value, out[i].ValueFrom = value.Value, value.ValueFrom
			}
		}
		if out[i].Value == nil && out[i].ValueFrom == nil {
			return out, fmt.Errorf("args.%s was not resolved", out[i].Name)
		}
	}
	return out, nil
}

func findDuplicate[T any](all []T, name func(T) string) (string, bool) {
	seen := map[string]bool{}
	for _, item := range all {
		if seen[name(item)] {
			return name(item), true
		}
		seen[name(item)] = true
	}
	return "", false
}
