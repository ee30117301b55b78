package analysis

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// placeholder stands for the content of a Secret where a metric is only looked at.
const placeholder = "*****"

// tag is a place for an argument.
var tag = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// maxResolved bounds the metrics of a run with the values of their arguments, in bytes: a value may be put in any number of
// times. An object that the API server stores is smaller.
const maxResolved = 4 << 20

// Resolved is a metric with the values of its arguments. Secret gives the content of a key of a Secret, once a
// measurement is made; nil: placeholders stand for it. Errors: an argument that is not there, or has no value; those of
// secret; a metric that is none with these values.
func Resolved(metric argov1.Metric, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (argov1.Metric, error) {
	room := maxResolved
	return resolvedWithin(&room, metric, args, secret)
}

// resolvedWithin is Resolved where room is left for so many bytes; it takes what the metric needs.
func resolvedWithin(room *int, metric argov1.Metric, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (argov1.Metric, error) {
	text, err := json.Marshal(metric)
	if err != nil {
		return metric, fmt.Errorf("write metric %s: %w", metric.Name, err)
	}
	var failed error
	*room -= len(text)
	resolved := tag.ReplaceAllStringFunc(string(text), func(found string) string {
		if failed != nil {
			return found
		}
		name := strings.TrimSpace(found[2 : len(found)-2])
		value, err := valueOf(name, args, secret)
		if *room -= len(value); err == nil && *room < 0 {
			err = fmt.Errorf("metric %s needs more than %d MiB with its arguments: shorten them", metric.Name, maxResolved>>20)
		}
		if err != nil {
			failed = err
			return found
		}
		quoted, _ := json.Marshal(value) // a string always has a form
		return string(quoted[1 : len(quoted)-1])
	})
	if failed != nil {
		return metric, failed
	}
	var out argov1.Metric
	if err := json.Unmarshal([]byte(resolved), &out); err != nil {
		return metric, fmt.Errorf("read metric %s with its arguments: %w", metric.Name, err)
	}
	return out, nil
}

func valueOf(name string, args []argov1.Argument, secret func(argov1.SecretKeyRef) (string, error)) (string, error) {
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
		return placeholder, nil
	default:
		return "", fmt.Errorf("argument %q was not supplied", arg)
	}
}
