//go:build linux

// Package gateway describes the playground's gateway: Traefik, which serves
// routes of the Gateway API and of its own.
//
// It knows Traefik's flags and the objects that a gateway needs. It must not
// know routes, releases or applications: its callers create those.
package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Names of the gateway. Routes refer to it with parentRefs: [{name: gateway, namespace: playground}].
const (
	Namespace = "playground"
	Name      = "gateway"
	ClassName = "playground"
)

// Ports on the node's address.
const (
	Port        = 80
	TCPPort     = 9000
	MetricsPort = 8082
)

var (
	crdResource    = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gatewayClasses = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	gateways       = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
	namespaces     = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// TraefikArgs returns Traefik's arguments; its KUBECONFIG must refer to the API server. Traefik reads routes, Services and
// endpoints, batches changes for a tenth of a second, and sends requests to pods, not to Service addresses. With tcp, it also serves
// TCPRoutes, and requires the CRDs of all routes of the experimental channel that it knows.
func TraefikArgs(node netip.Addr, tcp bool) []string {
	args := []string{
		"--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=INFO",
		"--providers.providersThrottleDuration=100ms",
		"--providers.kubernetesgateway=true", "--providers.kubernetescrd=true",
		"--providers.kubernetesgateway.statusaddress.ip=" + node.String(),
		"--entrypoints.web.address=:" + strconv.Itoa(Port),
		"--entrypoints.metrics.address=:" + strconv.Itoa(MetricsPort),
		"--metrics.prometheus=true", "--metrics.prometheus.entrypoint=metrics", "--metrics.prometheus.addserviceslabels=true",
	}
	if tcp {
		args = append(args, "--providers.kubernetesgateway.experimentalchannel=true", "--entrypoints.tcp.address=:"+strconv.Itoa(TCPPort))
	}
	return args
}

// InstallCRDs creates the CustomResourceDefinitions in the files of folder and returns when all of them are established.
func InstallCRDs(
	ctx context.Context, client dynamic.Interface, folder string, wait func(context.Context, string, func(context.Context) error) error,
) error {
	files, err := filepath.Glob(filepath.Join(folder, "gateway.networking*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find the Gateway API's CRDs in %s: %w", folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read the Gateway API's CRDs: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			return fmt.Errorf("read the Gateway API's CRDs: %s: %w", filepath.Base(file), err)
		}
		if err := createObject(ctx, client.Resource(crdResource), object); err != nil {
			return err
		}
	}
	for _, file := range files {
		plural := filepath.Base(file)[len("gateway.networking.k8s.io_"):]
		name := plural[:len(plural)-len(".yaml")] + ".gateway.networking.k8s.io"
		err := wait(ctx, name, func(ctx context.Context) error {
			object, err := client.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return checkCondition(object, "Established")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CreateGateway creates the GatewayClass and the Gateway: one HTTP listener for routes of all namespaces and hosts, and with tcp
// another one for TCPRoutes.
func CreateGateway(ctx context.Context, client dynamic.Interface, tcp bool) error {
	newListener := func(name, protocol string, port int64) any {
		return map[string]any{
			"name": name, "protocol": protocol, "port": port,
			"allowedRoutes": map[string]any{"namespaces": map[string]any{"from": "All"}},
		}
	}
	listeners := []any{newListener("http", "HTTP", Port)}
	if tcp {
		listeners = append(listeners, newListener("tcp", "TCP", TCPPort))
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
	}}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gatewayClasses.GroupVersion().String(), "kind": "GatewayClass", "metadata": map[string]any{"name": ClassName},
		"spec": map[string]any{"controllerName": "traefik.io/gateway-controller"},
	}}
	gateway := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gateways.GroupVersion().String(), "kind": "Gateway",
		"metadata": map[string]any{"name": Name, "namespace": Namespace},
		"spec": map[string]any{
			"gatewayClassName": ClassName,
			"listeners":        listeners,
		},
	}}
	if err := createObject(ctx, client.Resource(namespaces), namespace); err != nil {
		return err
	}
	if err := createObject(ctx, client.Resource(gatewayClasses), class); err != nil {
		return err
	}
	return createObject(ctx, client.Resource(gateways).Namespace(Namespace), gateway)
}

// CheckProgrammed returns nil when Traefik serves the gateway.
func CheckProgrammed(ctx context.Context, client dynamic.Interface) error {
	object, err := client.Resource(gateways).Namespace(Namespace).Get(ctx, Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return checkCondition(object, "Programmed")
}

func createObject(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	_, err := client.Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// checkCondition returns nil when the object's condition is true.
func checkCondition(object *unstructured.Unstructured, kind string) error {
	conditions, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			if c["status"] == "True" {
				return nil
			}
			return fmt.Errorf("%s %s is not %s: %v", object.GetKind(), object.GetName(), kind, c["message"])
		}
	}
	return fmt.Errorf("%s %s is not %s: the condition has not been reported yet", object.GetKind(), object.GetName(), kind)
}
