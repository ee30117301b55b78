package alb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

const (
	// managedAnnotation lists the annotations that each Rollout wrote on an Ingress.
	managedAnnotation = "rollouts.argoproj.io/managed-alb-annotations"
	// formerAnnotation is its name in earlier versions of Argo Rollouts.
	formerAnnotation = "rollouts.argoproj.io/managed-alb-actions"

	// useAnnotation is the name of a port that makes the controller look for an action of the name of the Service.
	useAnnotation = "use-annotation"
)

// action is the JSON of an action, with the names that the controller reads.
type action struct {
	Type          string
	ForwardConfig forwardConfig
}

type forwardConfig struct {
	TargetGroups                []targetGroup
	TargetGroupStickinessConfig *stickiness `json:",omitempty"`
}

type targetGroup struct {
	ServiceName string
	ServicePort string
	Weight      int
}

type stickiness struct {
	Enabled         bool
	DurationSeconds int64
}

// condition is the JSON of a condition for the requests of an action.
type condition struct {
	Field            string           `json:"field"`
	HTTPHeaderConfig httpHeaderConfig `json:"httpHeaderConfig"`
}

type httpHeaderConfig struct {
	HTTPHeaderName string   `json:"httpHeaderName"`
	Values         []string `json:"values"`
}

// pathFields are the fields that Serin writes in the path of a managed route.
var pathFields = traffic.Fields{"path": {}, "pathType": {}, "backend": {Fields: traffic.Fields{
	"service": {Fields: traffic.Fields{"name": {}, "port": {Fields: traffic.WholeFields("name")}}},
}}}

// editor edits an Ingress of the user.
type editor struct {
	t   traffic.Target
	ref traffic.Ref
}

func (e editor) key(kind, name string) string {
	prefix := strings.TrimSuffix(cmp.Or(configuration(e.t).AnnotationPrefix, DefaultPrefix), "/")
	return prefix + "/" + kind + "." + name
}

func (e editor) group(service string, weight int) targetGroup {
	return targetGroup{ServiceName: service, ServicePort: strconv.Itoa(int(configuration(e.t).ServicePort)), Weight: weight}
}

func (e editor) render(r release.Route, obj *unstructured.Unstructured) error {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	e.removeManaged(annotations)

	groups := []targetGroup{e.group(e.t.CanaryService, r.Canary)}
	for _, d := range r.Others {
		groups = append(groups, e.group(d.Service, d.Weight))
	}
	groups = append(groups, e.group(e.t.StableService, r.Stable()))
	forward := action{Type: "forward", ForwardConfig: forwardConfig{TargetGroups: groups}}
	if sticky := configuration(e.t).StickinessConfig; sticky != nil {
		forward.ForwardConfig.TargetGroupStickinessConfig = &stickiness{Enabled: sticky.Enabled, DurationSeconds: sticky.DurationSeconds}
	}
	written := []string{e.key("actions", rootService(e.t))}
	if err := write(annotations, written[0], forward); err != nil {
		return err
	}
	routes := slices.SortedStableFunc(slices.Values(r.HeaderRoutes), func(a, b release.HeaderRoute) int { return e.t.CompareManagedRoutes(a.Name, b.Name) })
	routes = slices.DeleteFunc(routes, func(route release.HeaderRoute) bool { // without a header, all requests would match
		return !slices.ContainsFunc(route.Match, func(m release.Match) bool { return len(m.Headers) > 0 })
	})
	for _, route := range routes {
		keys, err := e.headerRoute(annotations, route)
		if err != nil {
			return err
		}
		written = append(written, keys...)
	}
	if err := e.recordManaged(annotations, written); err != nil {
		return err
	}
	obj.SetAnnotations(annotations)
	e.paths(obj, routes)
	return nil
}

// headerRoute writes the action and the condition of a managed route, and returns the keys of their annotations.
func (e editor) headerRoute(annotations map[string]string, route release.HeaderRoute) ([]string, error) {
	if route.Name == rootService(e.t) {
		return nil, traffic.Refuse(traffic.ErrInvalid, "managedRoutes has %s, which is the Service of the route itself: give it another name", route.Name)
	}
	var conditions []condition
	for _, m := range route.Match {
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			value := m.Headers[name]
			if value.Exact == "" {
				return nil, traffic.Refuse(traffic.ErrUnsupported, "setHeaderRoute %s matches header %s by a pattern: router alb takes exact only", route.Name, name)
			}
			i := slices.IndexFunc(conditions, func(c condition) bool { return strings.EqualFold(c.HTTPHeaderConfig.HTTPHeaderName, name) })
			if i < 0 {
				i = len(conditions)
				conditions = append(conditions, condition{Field: "http-header", HTTPHeaderConfig: httpHeaderConfig{HTTPHeaderName: name}})
			}
			values := &conditions[i].HTTPHeaderConfig.Values
			*values = append(*values, value.Exact)
		}
	}
	keys := []string{e.key("actions", route.Name), e.key("conditions", route.Name)}
	forward := action{Type: "forward", ForwardConfig: forwardConfig{TargetGroups: []targetGroup{e.group(e.t.CanaryService, release.Total)}}}
	if err := write(annotations, keys[0], forward); err != nil {
		return nil, err
	}
	return keys, write(annotations, keys[1], conditions)
}

// removeManaged removes actions and conditions of managed routes.
func (e editor) removeManaged(annotations map[string]string) {
	for _, name := range e.t.ManagedRoutes() {
		if name != rootService(e.t) {
			delete(annotations, e.key("actions", name))
			delete(annotations, e.key("conditions", name))
		}
	}
}

// paths inserts a path to the action of each managed route first in every rule, and removes those of other managed routes.
func (e editor) paths(obj *unstructured.Unstructured, routes []release.HeaderRoute) {
	spec, _ := obj.Object["spec"].(map[string]any)
	for _, rule := range traffic.Maps(spec["rules"]) {
		http, ok := rule["http"].(map[string]any)
		if !ok {
			continue
		}
		var paths []map[string]any
		all := traffic.Maps(http["paths"])
		for _, route := range routes {
			path := map[string]any{"path": "/*", "pathType": "ImplementationSpecific", "backend": map[string]any{
				"service": map[string]any{"name": route.Name, "port": map[string]any{"name": useAnnotation}},
			}}
			i := slices.IndexFunc(all, func(was map[string]any) bool {
				return e.managed(was) && traffic.IngressBackend(was)["name"] == route.Name
			})
			if i >= 0 {
				path = traffic.PreserveUnknownFields(path, all[i], pathFields)
			}
			paths = append(paths, path)
		}
		http["paths"] = traffic.List(append(paths, slices.DeleteFunc(all, e.managed)...))
	}
}

// managed reports whether a path belongs to a managed route.
func (e editor) managed(path map[string]any) bool {
	service := traffic.IngressBackend(path)
	name, _ := service["name"].(string)
	port, _, _ := unstructured.NestedString(service, "port", "name")
	return port == useAnnotation && name != rootService(e.t) && slices.Contains(e.t.ManagedRoutes(), name)
}

// recordManaged records the written annotations in addition to those of other Rollouts.
func (e editor) recordManaged(annotations map[string]string, written []string) error {
	managedByRollout, err := e.managedByRollout(annotations)
	if err != nil {
		return traffic.Refuse(traffic.ErrInvalid, "%s: annotation %s cannot be read: remove it, or correct it: %v", e.ref, managedAnnotation, err)
	}
	managedByRollout[e.t.Rollout.Name] = written
	return write(annotations, managedAnnotation, managedByRollout)
}

func (editor) managedByRollout(annotations map[string]string) (map[string][]string, error) {
	managedByRollout := map[string][]string{}
	if text := annotations[managedAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &managedByRollout); err != nil {
			return nil, err
		}
	}
	if managedByRollout == nil { // null
		managedByRollout = map[string][]string{}
	}
	return managedByRollout, nil
}

func write(annotations map[string]string, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write annotation %s: %w", key, err)
	}
	if !sameJSON(annotations[key], text) {
		annotations[key] = string(text)
	}
	return nil
}

// sameJSON reports whether an annotation has this value already, in any format.
func sameJSON(text string, value []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, []byte(text)) == nil && bytes.Equal(compact.Bytes(), value)
}

// read adds the action of an Ingress to the observed route, and returns the desired shares of its load balancers.
func (e editor) read(obj *unstructured.Unstructured, out *traffic.Observed) (traffic.Forward, error) {
	wanted := traffic.Forward{Ingress: obj.GetName(), Hosts: hosts(obj)}
	for _, name := range e.t.ManagedRoutes() {
		if _, exists := obj.GetAnnotations()[e.key("actions", name)]; exists && name != rootService(e.t) {
			out.ManagedRoutes = append(out.ManagedRoutes, name)
		}
	}
	key := e.key("actions", rootService(e.t))
	text, ok := obj.GetAnnotations()[key]
	if !ok {
		return wanted, nil
	}
	var forward action
	if err := json.Unmarshal([]byte(text), &forward); err != nil {
		return wanted, fmt.Errorf("read %s: annotation %s: %w", e.ref, key, err)
	}
	var canary, others, stable []traffic.ServiceShare
	for _, group := range forward.ForwardConfig.TargetGroups {
		share := traffic.ServiceShare{Service: group.ServiceName, Port: group.ServicePort, Weight: group.Weight}
		switch group.ServiceName {
		case e.t.CanaryService:
			canary = []traffic.ServiceShare{share}
		case e.t.StableService:
			stable = []traffic.ServiceShare{share}
		default:
			others = append(others, share)
		}
	}
	if len(canary) == 0 {
		return wanted, nil
	}
	if !out.Found || canary[0].Weight > out.Route.Canary {
		out.Route.Canary, out.Route.Others = canary[0].Weight, nil
		for _, other := range others {
			out.Route.Others = append(out.Route.Others, release.Destination{Service: other.Service, Weight: other.Weight})
		}
	}
	out.Found = true
	if len(stable) > 0 {
		wanted.Shares = slices.Concat(canary, others, stable)
	}
	return wanted, nil
}

// hosts are the host names of an Ingress's load balancers.
func hosts(obj *unstructured.Unstructured) []string {
	balancers, _, _ := unstructured.NestedSlice(obj.Object, "status", "loadBalancer", "ingress")
	var names []string
	for _, balancer := range traffic.Maps(balancers) {
		if name, _ := balancer["hostname"].(string); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// restore reports whether the Ingress had anything that this Rollout wrote.
func (e editor) restore(obj *unstructured.Unstructured) bool {
	annotations := obj.GetAnnotations()
	managedByRollout, err := e.managedByRollout(annotations)
	if _, ours := managedByRollout[e.t.Rollout.Name]; err != nil || !ours {
		return false
	}
	delete(managedByRollout, e.t.Rollout.Name)
	e.removeManaged(annotations)
	delete(annotations, formerAnnotation)
	own := action{Type: "forward", ForwardConfig: forwardConfig{TargetGroups: []targetGroup{e.group(rootService(e.t), release.Total)}}}
	failed := write(annotations, e.key("actions", rootService(e.t)), own)
	if len(managedByRollout) == 0 {
		delete(annotations, managedAnnotation)
	} else if failed == nil {
		failed = write(annotations, managedAnnotation, managedByRollout)
	}
	obj.SetAnnotations(annotations)
	e.paths(obj, nil)
	return failed == nil
}
