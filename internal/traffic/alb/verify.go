package alb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/traffic"
)

// DefaultResourceTag is the tag in which the load balancer controller stores the purpose of a target group, and
// DefaultBindingAPI the API version of its TargetGroupBindings.
const (
	DefaultResourceTag = "ingress.k8s.aws/resource"
	DefaultBindingAPI  = "elbv2.k8s.aws/v1beta1"
)

// Balancer is a load balancer as AWS describes it.
type Balancer struct {
	ARN, Name string
	// Network is true for a network load balancer, which has no rules. It forwards to an application load balancer.
	Network bool
	Groups  []Group
	Rules   []Rule
}

// Group is one of its target groups. Resource is the value of the tag with its purpose.
type Group struct{ ARN, Name, Resource string }

// Rule is the forwarding of one rule of a load balancer: the weights of target groups, by their ARNs.
type Rule map[string]int

// Binding is a TargetGroupBinding, which registers the addresses of a Service's pods in a target group.
type Binding struct {
	Name, ARN string
	Port      intstr.IntOrString
}

// Target is an address in a target group, and its health according to AWS.
type Target struct {
	Address, State, Why string
}

// resource is the value of the tag for the target group of a share.
func resource(namespace, ingress string, s traffic.ServiceShare) string {
	return fmt.Sprintf("%s/%s-%s:%s", namespace, ingress, s.Service, s.Port)
}

func (b Balancer) group(resource string) (Group, bool) {
	i := slices.IndexFunc(b.Groups, func(g Group) bool { return g.Resource == resource })
	if i < 0 {
		return Group{}, false
	}
	return b.Groups[i], true
}

// Status is the status of a load balancer in a Rollout, as far as it is known.
func (b Balancer) Status(namespace string, f traffic.Forward) argov1.ALBStatus {
	status := argov1.ALBStatus{Ingress: f.Ingress, LoadBalancer: argov1.AWSResourceRef{Name: b.Name, ARN: b.ARN, FullName: after(b.ARN, ":loadbalancer/")}}
	if len(f.Shares) == 0 {
		return status
	}
	for share, into := range map[int]*argov1.AWSResourceRef{0: &status.CanaryTargetGroup, len(f.Shares) - 1: &status.StableTargetGroup} {
		if g, ok := b.group(resource(namespace, f.Ingress, f.Shares[share])); ok {
			*into = argov1.AWSResourceRef{Name: g.Name, ARN: g.ARN, FullName: after(g.ARN, ":")}
		}
	}
	return status
}

// after returns the part of an ARN after the last occurrence of a separator, which is the name in metrics.
func after(arn, mark string) string { return arn[strings.LastIndex(arn, mark)+len(mark):] }

// Unforwarded describes a desired share that a load balancer does not have; empty if it has all of them. Only rules that
// forward to both sides of the release are compared: a rule with the stable Service alone may belong to another path, and a
// rule with the canary alone is a header route.
func (b Balancer) Unforwarded(namespace string, f traffic.Forward) string {
	if len(f.Shares) < 2 {
		return fmt.Sprintf("Ingress %s has no action with both Services yet", f.Ingress)
	}
	var groups []Group
	for _, share := range f.Shares {
		group, ok := b.group(resource(namespace, f.Ingress, share))
		if !ok {
			return fmt.Sprintf("load balancer %s has no target group for %s yet", b.Name, resource(namespace, f.Ingress, share))
		}
		groups = append(groups, group)
	}
	found := false
	for _, rule := range b.Rules {
		_, canary := rule[groups[0].ARN]
		_, stable := rule[groups[len(groups)-1].ARN]
		if !canary || !stable {
			continue
		}
		found = true
		for i, share := range f.Shares {
			if has := rule[groups[i].ARN]; has != share.Weight {
				return fmt.Sprintf("load balancer %s gives Service %s weight %d, and %d is wanted", b.Name, share.Service, has, share.Weight)
			}
		}
	}
	if !found {
		return fmt.Sprintf("no rule of load balancer %s forwards to Services %s and %s yet", b.Name, f.Shares[0].Service, f.Shares[len(f.Shares)-1].Service)
	}
	return ""
}

// BindingsOf returns the bindings of a Service whose target groups register addresses of pods. Target groups that register
// nodes do not show which pods are reached.
func BindingsOf(service string, all []unstructured.Unstructured) []Binding {
	var out []Binding
	for _, obj := range all {
		spec, _ := obj.Object["spec"].(map[string]any)
		name, _, _ := unstructured.NestedString(spec, "serviceRef", "name")
		arn, _ := spec["targetGroupARN"].(string)
		if kind, _ := spec["targetType"].(string); name != service || kind != "ip" || arn == "" {
			continue
		}
		binding := Binding{Name: obj.GetName(), ARN: arn}
		switch port, _, _ := unstructured.NestedFieldNoCopy(spec, "serviceRef", "port"); port := port.(type) {
		case int64:
			binding.Port = intstr.FromInt32(int32(port)) //nolint:gosec // a port
		case string:
			binding.Port = intstr.FromString(port)
		}
		out = append(out, binding)
	}
	return out
}

// Addresses are the addresses of the ready pods that a target group must have for a port of their Service.
func Addresses(service corev1.Service, port intstr.IntOrString, pods []corev1.Pod) ([]string, error) {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return port.Type == intstr.Int && p.Port == port.IntVal || port.Type == intstr.String && p.Name == port.StrVal
	})
	if i < 0 {
		return nil, fmt.Errorf("port %s is none of Service %s", port.String(), service.Name)
	}
	var out []string
	for _, pod := range pods {
		if !ready(pod) {
			continue
		}
		number, ok := targetPort(service.Spec.Ports[i], pod)
		if !ok {
			return nil, fmt.Errorf("pod %s has no port %s, to which Service %s leads", pod.Name, service.Spec.Ports[i].TargetPort.String(), service.Name)
		}
		out = append(out, Address(pod.Status.PodIP, number))
	}
	return out, nil
}

// Address formats an address for a comparison and for messages.
func Address(ip string, port int32) string { return ip + " port " + strconv.Itoa(int(port)) }

func ready(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.PodIP != "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// targetPort is the number of the port of a pod to which a port of a Service routes.
func targetPort(port corev1.ServicePort, pod corev1.Pod) (number int32, ok bool) {
	switch {
	case port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0:
		return port.TargetPort.IntVal, true
	case port.TargetPort.Type == intstr.Int:
		return port.Port, true
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, p := range container.Ports {
			if p.Name == port.TargetPort.StrVal {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

// Unreached describes an address that a target group does not reach; empty if it reaches all. In a target group without
// health checks, an address is reached if it is registered.
func Unreached(binding Binding, addresses []string, targets []Target) string {
	for _, address := range addresses {
		i := slices.IndexFunc(targets, func(t Target) bool { return t.Address == address })
		switch {
		case i < 0:
			return fmt.Sprintf("the target group of TargetGroupBinding %s does not have %s yet", binding.Name, address)
		case targets[i].State == "healthy" || targets[i].State == "unavailable" && targets[i].Why == "Target.HealthCheckDisabled":
			continue
		}
		state := targets[i].State
		if targets[i].Why != "" {
			state += " (" + targets[i].Why + ")"
		}
		return fmt.Sprintf("in the target group of TargetGroupBinding %s, %s is %s and not healthy", binding.Name, address, state)
	}
	return ""
}
