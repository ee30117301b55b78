package analysis

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// secretPlaceholder replaces the content of a Secret when a metric is not measured, for example when it is validated.
const secretPlaceholder = "*****"

// argumentTag matches a reference to an argument, such as {{args.service-name}}.
var argumentTag = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// maxResolvedBytes is the maximum size of all metrics of a run after arguments are replaced by their values, in bytes.
// Without it, a small run could use unlimited memory: a metric may refer to the same large value any number of times.
// An object that the API server stores is always smaller.
const maxResolvedBytes = 4 << 20

// ResolveMetric returns a metric whose references to arguments are replaced by their values. secret returns the content
// of a key of a Secret; if it is nil, a placeholder is used instead. ResolveMetric fails if an argument does not exist
// or has no value, if secret fails, and if the result is not a valid metric.
func ResolveMetric(metric argov1.Metric, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (argov1.Metric, error) {
	remainingBytes := maxResolvedBytes
	return resolveMetricWithin(&remainingBytes, metric, args, secret)
}

// ResolveMetricName returns the name of a metric of a run as its status contains it: with the values of arguments, except
// secrets. A name whose arguments cannot be resolved is unchanged.
func ResolveMetricName(name string, args []argov1.Argument) string {
	if !strings.Contains(name, "{{") {
		return name
	}
	resolved, err := ResolveMetric(argov1.Metric{Name: name}, args, nil)
	if err != nil {
		return name
	}
	return resolved.Name
}

// resolveMetricWithin is ResolveMetric within a budget of bytes, from which it subtracts the size of the metric.
func resolveMetricWithin(remainingBytes *int, metric argov1.Metric, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (argov1.Metric, error) {
	text, err := json.Marshal(metric)
	if err != nil {
		return metric, fmt.Errorf("encode metric %s: %w", metric.Name, err)
	}
	var firstErr error
	*remainingBytes -= len(text)
	resolved := argumentTag.ReplaceAllStringFunc(string(text), func(reference string) string {
		if firstErr != nil {
			return reference
		}
		name := strings.TrimSpace(reference[2 : len(reference)-2])
		value, err := argumentValue(name, args, secret)
		if *remainingBytes -= len(value); err == nil && *remainingBytes < 0 {
			err = fmt.Errorf("metric %s exceeds %d MiB after its arguments are resolved: shorten the arguments", metric.Name, maxResolvedBytes>>20)
		}
		if err != nil {
			firstErr = err
			return reference
		}
		quoted, _ := json.Marshal(value) // a string can always be encoded
		return string(quoted[1 : len(quoted)-1])
	})
	if firstErr != nil {
		return metric, firstErr
	}
	var out argov1.Metric
	if err := json.Unmarshal([]byte(resolved), &out); err != nil {
		return metric, fmt.Errorf("decode metric %s after its arguments are resolved: %w", metric.Name, err)
	}
	return out, nil
}

func argumentValue(name string, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (string, error) {
	arg, ok := strings.CutPrefix(name, "args.")
	i := slices.IndexFunc(args, func(a argov1.Argument) bool { return a.Name == arg })
	switch {
	case !ok || i < 0:
		return "", fmt.Errorf("failed to resolve {{%s}}", name)
	case args[i].Value != nil:
		return *args[i].Value, nil
	case args[i].ValueFrom != nil && args[i].ValueFrom.SecretKeyRef != nil && secret != nil:
		return secret(*args[i].ValueFrom.SecretKeyRef)
	case args[i].ValueFrom != nil && args[i].ValueFrom.SecretKeyRef != nil:
		return secretPlaceholder, nil
	default:
		return "", fmt.Errorf("argument %q was not supplied", arg)
	}
}
