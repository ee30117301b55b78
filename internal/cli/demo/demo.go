// Package demo builds the objects of serin demo, chooses its versions and decides which objects of a namespace belong to it, pure:
// options and objects in, objects out.
//
// It must not know clients, clocks, commands or terminals. The manifests are in the folder manifests.
package demo

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// Name is the name of the release and of its workload.
const Name = "demo"

// Label is the label of all objects that the demo creates.
const (
	Label      = "serin.dev/demo"
	labelValue = "true"
)

// Labels returns the labels of all objects.
func Labels() map[string]string { return map[string]string{Label: labelValue} }

// The traffic providers of the demo.
const (
	ProviderKubernetes = "kubernetes"
	ProviderGatewayAPI = "gatewayapi"
)

// Providers returns the traffic providers, the default first.
func Providers() []string { return []string{ProviderKubernetes, ProviderGatewayAPI} }

// Gateway is the Gateway that routes the requests of users.
type Gateway struct {
	Namespace, Name string
	// Address is the address at which it is reached, with the port of an HTTP listener unless that is 80.
	Address string
}

// Options select what is built.
type Options struct {
	Namespace, Image string
	Kind             explain.Kind
	// Gateway routes the requests; nil: without a gateway.
	Gateway *Gateway
}

// host returns the host name of the route.
func (o Options) host() string { return Name + "." + o.Namespace + ".example" }

//go:embed manifests/*.yaml
var manifests embed.FS

// Objects returns the objects of the demo with its first version, in the order of their creation.
func Objects(o Options) ([]*unstructured.Unstructured, error) {
	files := []string{"load", "canary"}
	if o.Kind == explain.KindRollout {
		files = []string{"load", "rollout"}
		if o.Gateway != nil {
			files = []string{"load", "route", "rollout"}
		}
	}
	var out []*unstructured.Unstructured
	for _, file := range files {
		objects, err := readManifests(file, o)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			object.SetNamespace(o.Namespace)
			object.SetLabels(Labels())
			if o.Gateway != nil {
				if err := useGateway(object, o); err != nil {
					return nil, fmt.Errorf("route %s %s through the gateway: %w", object.GetKind(), object.GetName(), err)
				}
			}
			out = append(out, object)
		}
	}
	return out, nil
}

// readManifests reads a file of manifests and replaces its placeholders.
func readManifests(file string, o Options) ([]*unstructured.Unstructured, error) {
	values := map[string]any{}
	if file != templateFile {
		template, err := readManifests(templateFile, o)
		if err != nil {
			return nil, err
		}
		values["TEMPLATE"] = template[0].Object
	}
	text, err := manifests.ReadFile("manifests/" + file + ".yaml")
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("read %s.yaml: %w", file, err)
		}
		var fields map[string]any
		if err := utiljson.Unmarshal(content, &fields); err != nil {
			return nil, fmt.Errorf("read %s.yaml: %w", file, err)
		}
		fields, _ = replacePlaceholders(fields, o, values).(map[string]any)
		out = append(out, &unstructured.Unstructured{Object: fields})
	}
}

// templateFile contains the pod template.
const templateFile = "template"

// replacePlaceholders returns a value with the placeholders of manifests replaced. A placeholder of values is a whole string.
func replacePlaceholders(value any, o Options, values map[string]any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			value[key] = replacePlaceholders(field, o, values)
		}
	case []any:
		for i, item := range value {
			value[i] = replacePlaceholders(item, o, values)
		}
	case string:
		if whole, ok := values[value]; ok {
			return whole
		}
		return strings.NewReplacer("NAMESPACE", o.Namespace, "IMAGE", o.Image, "HOST", o.host()).Replace(value)
	}
	return value
}

// useGateway changes an object for a gateway that routes the requests of users.
func useGateway(object *unstructured.Unstructured, o Options) error {
	parent := map[string]any{"namespace": o.Gateway.Namespace, "name": o.Gateway.Name}
	set := func(value any, fields ...string) error {
		return unstructured.SetNestedField(object.Object, value, fields...)
	}
	switch object.GetKind() {
	case "Deployment":
		if object.GetName() == Name {
			return nil
		}
		return setArguments(object, "demo-app", "load", "--canary-url=http://"+Name+"-canary."+o.Namespace, "--url=http://"+o.Gateway.Address, "--host="+o.host())
	case "HTTPRoute":
		return set([]any{parent}, "spec", "parentRefs")
	case string(explain.KindRollout):
		routing := map[string]any{"plugins": map[string]any{"argoproj-labs/gatewayAPI": map[string]any{"httpRoute": Name, "namespace": o.Namespace}}}
		return errors.Join(set(Name+"-stable", "spec", "strategy", "canary", "stableService"), set(routing, "spec", "strategy", "canary", "trafficRouting"))
	case string(explain.KindCanary):
		unstructured.RemoveNestedField(object.Object, "spec", "analysis", "iterations")
		return errors.Join(
			set("gatewayapi:v1", "spec", "provider"), set([]any{o.host()}, "spec", "service", "hosts"), set([]any{parent}, "spec", "service", "gatewayRefs"),
			set(int64(25), "spec", "analysis", "stepWeight"), set(int64(75), "spec", "analysis", "maxWeight"))
	default:
		return nil
	}
}

// setArguments sets the arguments of the only container of a Deployment.
func setArguments(object *unstructured.Unstructured, arguments ...string) error {
	fields := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(object.Object, fields...)
	if err != nil {
		return err
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("the container is not an object")
	}
	args := make([]any, len(arguments))
	for i, argument := range arguments {
		args[i] = argument
	}
	container["args"] = args
	return unstructured.SetNestedSlice(object.Object, containers, fields...)
}

// repository is the image repository of a release, which the chart uses too.
const repository = "ghcr.io/serin-dev/serin"

var (
	releasePattern = regexp.MustCompile(`^v(\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?)$`)
	// pseudoPattern matches the end of the version that the Go toolchain gives a commit without a tag.
	pseudoPattern = regexp.MustCompile(`[-.]\d{14}-[0-9a-f]{12}$`)
)

// Image returns the image of the release that this binary belongs to. A binary that is no release has none.
func Image(version string) (string, error) {
	match := releasePattern.FindStringSubmatch(version)
	if match == nil || pseudoPattern.MatchString(version) {
		return "", fmt.Errorf("this binary (version %s) is not a release, so it has no published image: use --image with an image of Serin that the cluster can pull", version)
	}
	return repository + ":" + match[1], nil
}
