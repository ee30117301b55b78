package demo

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The environment variables of the application that are a version.
const (
	versionVariable = "VERSION"
	errorsVariable  = "ERROR_PERCENT"
)

// brokenErrorPercent is the percentage of requests that a broken version fails.
const brokenErrorPercent = "50"

// Version is a version of the application.
type Version struct {
	// Number is that of v1, v2, and so on.
	Number int
	// IsBroken is true if it fails half of its requests.
	IsBroken bool
}

// String returns the version as the application returns it.
func (v Version) String() string { return "v" + strconv.Itoa(v.Number) }

// Next returns the version after this one.
func (v Version) Next(isBroken bool) Version {
	return Version{Number: v.Number + 1, IsBroken: isBroken}
}

// Broken returns the version that fails: this one if it is being released, else the next one.
func (v Version) Broken(inProgress bool) Version {
	if inProgress {
		return Version{Number: v.Number, IsBroken: true}
	}
	return v.Next(true)
}

// VersionOf returns the version of the workload.
func VersionOf(workload *unstructured.Unstructured) (Version, error) {
	containers, _, err := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		return Version{}, unknownVersionError(workload)
	}
	container, _ := containers[0].(map[string]any)
	variables, _, err := unstructured.NestedSlice(container, "env")
	if err != nil {
		return Version{}, unknownVersionError(workload)
	}
	var v Version
	for _, item := range variables {
		variable, _ := item.(map[string]any)
		switch value, _ := variable["value"].(string); variable["name"] {
		case versionVariable:
			v.Number, _ = strconv.Atoi(strings.TrimPrefix(value, "v"))
		case errorsVariable:
			v.IsBroken = true
		}
	}
	if v.Number < 1 {
		return Version{}, unknownVersionError(workload)
	}
	return v, nil
}

func unknownVersionError(workload *unstructured.Unstructured) error {
	return fmt.Errorf("%s %s was changed, so its version is unknown: delete the demo with --delete, and start it again", workload.GetKind(), workload.GetName())
}

// Patch returns the JSON patch that releases a version.
func (v Version) Patch() ([]byte, error) {
	environment := []any{map[string]any{"name": versionVariable, "value": v.String()}}
	if v.IsBroken {
		environment = append(environment, map[string]any{"name": errorsVariable, "value": brokenErrorPercent})
	}
	return json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec/template/spec/containers/0/env", "value": environment}})
}
