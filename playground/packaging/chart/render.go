package chart

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Render renders the chart in a folder with values in YAML, for a release called serin, and returns its objects and notes.
func Render(folder, values, namespace string) (rendered []*unstructured.Unstructured, notes string, err error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, "", fmt.Errorf("load the chart: %w", err)
	}
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, "", fmt.Errorf("parse the values: %w", err)
	}
	options := common.ReleaseOptions{Name: "serin", Namespace: namespace, IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(chart, given, options, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, "", err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.HasSuffix(name, "NOTES.txt"):
			notes = files[name]
		case strings.HasSuffix(name, ".yaml"):
			more, err := Objects(files[name])
			if err != nil {
				return nil, "", fmt.Errorf("parse the objects of %s: %w\n%s", name, err, files[name])
			}
			rendered = append(rendered, more...)
		}
	}
	return rendered, notes, nil
}

// Objects parses manifests.
func Objects(manifests string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	decoder := k8syaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}
