// Package scaffold chooses the manifest of a release for a workload that has none, and prints it with comments that explain each
// choice, for serin init.
//
// It is a function from objects of the cluster to text. It must not know clients, clocks, commands or how the objects were read:
// package cluster reads those that Kinds lists. A further router is an entry of Kinds, a reader in routes.go, and for each kind of
// release a writer in canary.go or rollout.go; TestEveryKindIsUsed fails if an entry of Kinds is never read.
package scaffold

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
)

// ReadKind is a kind of object that the choice depends on.
type ReadKind struct {
	Group string
	// Versions are those that may be served, the preferred one first.
	Versions []string
	Kind     string
	// ClusterScoped is true for a kind without namespaces.
	ClusterScoped bool
}

// Kinds returns the kinds of Input.Objects. All of them may be missing in a cluster.
func Kinds() []ReadKind {
	return []ReadKind{
		{Group: flaggerv1.GroupName, Versions: []string{"v1beta1"}, Kind: flaggerv1.CanaryKind},
		{Group: argov1.GroupName, Versions: []string{"v1alpha1"}, Kind: argov1.RolloutKind},
		{Versions: []string{"v1"}, Kind: kindService},
		{Group: "autoscaling", Versions: []string{"v2"}, Kind: kindAutoscaler},
		{Group: "keda.sh", Versions: []string{"v1alpha1"}, Kind: kindScaledObject},
		{Group: "gateway.networking.k8s.io", Versions: []string{"v1", "v1beta1"}, Kind: kindHTTPRoute},
		{Group: "networking.istio.io", Versions: []string{"v1beta1"}, Kind: kindVirtualService},
		{Group: "traefik.io", Versions: []string{"v1alpha1"}, Kind: kindTraefikService},
		{Group: "traefik.io", Versions: []string{"v1alpha1"}, Kind: kindIngressRoute},
		{Group: "projectcontour.io", Versions: []string{"v1"}, Kind: kindHTTPProxy},
		{Group: "apisix.apache.org", Versions: []string{"v2"}, Kind: kindApisixRoute},
		{Group: "networking.k8s.io", Versions: []string{"v1"}, Kind: kindIngress},
		{Group: "networking.k8s.io", Versions: []string{"v1"}, Kind: kindIngressClass, ClusterScoped: true},
	}
}

// The kinds.
const (
	kindDeployment     = "Deployment"
	kindDaemonSet      = "DaemonSet"
	kindService        = "Service"
	kindAutoscaler     = "HorizontalPodAutoscaler"
	kindScaledObject   = "ScaledObject"
	kindHTTPRoute      = "HTTPRoute"
	kindVirtualService = "VirtualService"
	kindTraefikService = "TraefikService"
	kindIngressRoute   = "IngressRoute"
	kindHTTPProxy      = "HTTPProxy"
	kindApisixRoute    = "ApisixRoute"
	kindIngress        = "Ingress"
	kindIngressClass   = "IngressClass"
)

// The kinds of releases.
var (
	canaryKind  = schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.CanaryKind}
	rolloutKind = schema.GroupKind{Group: argov1.GroupName, Kind: argov1.RolloutKind}
)

// Input is everything that the manifest depends on.
type Input struct {
	// Kind is the kind of the release: Canary or Rollout.
	Kind string
	// Provider routes the traffic; empty: that of the existing route.
	Provider string
	// Port of the Service; 0: that of the existing Service or of the containers.
	Port int32
	// Workload is the Deployment or DaemonSet.
	Workload *unstructured.Unstructured
	// Objects are the objects of Kinds, in the namespace of the workload.
	Objects []*unstructured.Unstructured
	// Unread are the kinds that the user has no permission to read.
	Unread []string
	// SelectorLabels are the labels by which the controller distinguishes the pods of target and primary, in order of preference.
	SelectorLabels []string
}

// RefusedError is the reason why there is no manifest for a workload, and what the user can do.
type RefusedError struct{ message string }

func (e *RefusedError) Error() string { return e.message }

func refuse(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// target is the workload of the release.
type target struct {
	kind, namespace, name string
	appsv1.Deployment     // a DaemonSet has the same fields, as far as they are used
}

func (t *target) String() string { return t.kind + " " + t.name }

// observation is the input in the form that the choice needs.
type observation struct {
	in     Input
	target target
	// services are those that select the pods, the preferred one first. taken has the selectors of all Services by their names.
	services    []corev1.Service
	taken       map[string]map[string]string
	autoscalers []autoscaler
	// routes lead to one of the services, the preferred one first.
	routes []route
	// notes are for the user to check.
	notes []string
}

// autoscaler scales the workload.
type autoscaler struct{ apiVersion, kind, name string }

// Manifest returns the manifest of a release, as YAML with comments. The error is a RefusedError.
func Manifest(in Input) (string, error) {
	if err := checkProvider(in); err != nil {
		return "", err
	}
	o, err := observe(in)
	if err != nil {
		return "", err
	}
	if in.Kind == argov1.RolloutKind {
		return o.rollout()
	}
	return o.canary()
}

func observe(in Input) (*observation, error) {
	o := &observation{in: in, taken: map[string]map[string]string{}}
	o.target.kind, o.target.namespace, o.target.name = in.Workload.GetKind(), in.Workload.GetNamespace(), in.Workload.GetName()
	if err := decode(in.Workload, &o.target.Deployment); err != nil {
		return nil, refuse("%s cannot be read: %s", &o.target, err)
	}
	objects := slices.Clone(in.Objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	if err := o.checkManaged(objects); err != nil {
		return nil, err
	}
	for _, object := range objects {
		o.addService(object)
		o.addAutoscaler(object)
	}
	o.sortServices()
	// An object of KEDA creates an autoscaler: it is the one to name.
	slices.SortStableFunc(o.autoscalers, func(a, b autoscaler) int { return -strings.Compare(a.kind, b.kind) })
	o.readRoutes(objects)
	return o, nil
}

// decode reads an object into the fields that are needed.
func decode(object *unstructured.Unstructured, into any) error {
	text, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func groupKind(object *unstructured.Unstructured) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}

// note adds a paragraph for the user to check.
func (o *observation) note(format string, args ...any) {
	o.notes = append(o.notes, fmt.Sprintf(format, args...))
}

// checkManaged returns an error if the workload already has a release.
func (o *observation) checkManaged(objects []*unstructured.Unstructured) error {
	t := &o.target
	if owner := metav1.GetControllerOf(t); owner != nil {
		group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group
		if group == flaggerv1.GroupName || group == argov1.GroupName {
			return refuse("%s belongs to %s %s: name the workload that this release has as its target", t, owner.Kind, owner.Name)
		}
		o.note("%s belongs to %s %s, whose controller must tolerate that Serin changes its replicas.", t, owner.Kind, owner.Name)
	}
	for _, object := range objects {
		switch groupKind(object) {
		case canaryKind:
			var c flaggerv1.Canary
			if err := decode(object, &c); err == nil && c.Spec.TargetRef.Kind == t.kind && c.Spec.TargetRef.Name == t.name {
				return refuse("%s is already released by Canary %s: show it with: serin why canary/%s -n %s", t, c.Name, c.Name, t.namespace)
			}
		case rolloutKind:
			var r argov1.Rollout
			if err := decode(object, &r); err != nil {
				continue
			}
			if ref := r.Spec.WorkloadRef; ref != nil && ref.Kind == t.kind && ref.Name == t.name {
				return refuse("%s is already released by Rollout %s: show it with: serin why rollout/%s -n %s", t, r.Name, r.Name, t.namespace)
			}
			if r.Name == t.name && o.in.Kind == argov1.RolloutKind {
				return refuse("Rollout %s exists in namespace %s, and has other pods than %s: delete one of the two", r.Name, t.namespace, t)
			}
		}
	}
	if o.in.Kind != argov1.RolloutKind {
		for _, object := range objects {
			if groupKind(object) == canaryKind && object.GetName() == t.name {
				return refuse("Canary %s exists in namespace %s, and has another target than %s: delete it, or rename it", t.name, t.namespace, t)
			}
		}
		if t.kind == kindDaemonSet && o.updateStrategy() == string(appsv1.OnDeleteDaemonSetStrategyType) {
			return refuse("%s has the update strategy OnDelete, with which the end of an update cannot be detected: set spec.updateStrategy.type to RollingUpdate", t)
		}
	}
	return nil
}

// updateStrategy returns the update strategy of a DaemonSet.
func (o *observation) updateStrategy() string {
	text, _, _ := unstructured.NestedString(o.in.Workload.Object, "spec", "updateStrategy", "type")
	return text
}

// addAutoscaler adds an autoscaler of the workload.
func (o *observation) addAutoscaler(object *unstructured.Unstructured) {
	if kind := object.GetKind(); kind != kindAutoscaler && kind != kindScaledObject {
		return
	}
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == kindScaledObject {
		return
	}
	var scaler struct {
		Spec struct {
			ScaleTargetRef struct{ APIVersion, Kind, Name string }
		}
	}
	if err := decode(object, &scaler); err != nil {
		o.note("%s %s cannot be read: %s", object.GetKind(), object.GetName(), err)
		return
	}
	ref := scaler.Spec.ScaleTargetRef
	if object.GetKind() == kindScaledObject && ref.Kind == "" { // the default of KEDA
		ref.Kind = kindDeployment
	}
	if group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group; group != "" && group != "apps" {
		return
	}
	if ref.Kind == o.target.kind && ref.Name == o.target.name {
		o.autoscalers = append(o.autoscalers, autoscaler{object.GetAPIVersion(), object.GetKind(), object.GetName()})
	}
}

// header writes what applies to the whole manifest, before it.
func (o *observation) header(d *document) {
	d.comment(0, "%s for %s in namespace %s. Check each choice before you apply it: serin init has only read the cluster, and has changed nothing.",
		o.in.Kind, &o.target, o.target.namespace)
	for _, kind := range slices.Sorted(slices.Values(o.in.Unread)) {
		d.comment(0, "")
		d.comment(0, "%s could not be read: permission is missing. This manifest does not consider them.", pluralOf(kind))
	}
	for _, note := range o.notes {
		d.comment(0, "")
		d.comment(0, "%s", note)
	}
}

func pluralOf(kind string) string {
	switch {
	case strings.HasSuffix(kind, "y") && !strings.HasSuffix(kind, "ay"):
		return strings.TrimSuffix(kind, "y") + "ies"
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	default:
		return kind + "s"
	}
}

// footer writes the next commands, after the manifest.
func (o *observation) footer(d *document) {
	name, file := o.target.name, o.target.name+".yaml"
	d.comment(0, "Next steps, with this text in %s:", file)
	for _, line := range []string{
		"serin lint -f " + file,
		"serin plan -f " + file,
		"kubectl apply -f " + file,
		"serin watch " + strings.ToLower(o.in.Kind) + "/" + name + " -n " + o.target.namespace,
	} {
		d.disabled(0, "  "+line)
	}
}

// head writes the beginning of an object.
func (o *observation) head(d *document, apiVersion, kind, name string) {
	d.field(0, "apiVersion", apiVersion)
	d.field(0, "kind", kind)
	d.object(0, "metadata")
	d.field(1, "name", name)
	d.field(1, "namespace", o.target.namespace)
}

// names joins names for a comment.
func names(all []string) string { return strings.Join(all, ", ") }
