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
	// managedAnnotation lists what each Rollout wrote on an Ingress.
	managedAnnotation = "rollouts.argoproj.io/managed-alb-annotations"
	// formerAnnotation is what it was called before.
	formerAnnotation = "rollouts.argoproj.io/managed-alb-actions"

	// useAnnotation is the name of a port that makes the controller look for an action of the name of the Service.
	useAnnotation = "use-annotation"
)

// action is what the controller does with requests, by the names that it reads.
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

// condition is what requests of an action have to be like.
type condition struct {
	Field            string           `json:"field"`
	HTTPHeaderConfig httpHeaderConfig `json:"httpHeaderConfig"`
}

type httpHeaderConfig struct {
	HTTPHeaderName string   `json:"httpHeaderName"`
	Values         []string `json:"values"`
}

// pathFields are what of the path of a managed route Serin writes.
var pathFields = traffic.Fields{"path": {}, "pathType": {}, "backend": {Fields: traffic.Fields{
	"service": {Fields: traffic.Fields{"name": {}, "port": {Fields: traffic.Whole("name")}}},
}}}

// editor writes on an Ingress that is the user's.
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
	written := []string{e.key("actions", root(e.t))}
	if err := write(annotations, written[0], forward); err != nil {
		return err
	}
	routes := slices.SortedStableFunc(slices.Values(r.HeaderRoutes), func(a, b release.HeaderRoute) int { return e.t.CompareManagedRoutes(a.Name, b.Name) })
	routes = slices.DeleteFunc(routes, func(route release.HeaderRoute) bool { // nothing to match is no reason to send everybody to the canary
		return !slices.ContainsFunc(route.Match, func(m release.Match) bool { return len(m.Headers) > 0 })
	})
	for _, route := range routes {
		keys, err := e.headerRoute(annotations, route)
		if err != nil {
			return err
		}
		written = append(written, keys...)
	}
	if err := e.book(annotations, written); err != nil {
		return err
	}
	obj.SetAnnotations(annotations)
	e.paths(obj, routes)
	return nil
}

// headerRoute writes action and condition of a managed route, and says under which names.
func (e editor) headerRoute(annotations map[string]string, route release.HeaderRoute) ([]string, error) {
	if route.Name == root(e.t) {
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

// removeManaged takes actions and conditions of managed routes away.
func (e editor) removeManaged(annotations map[string]string) {
	for _, name := range e.t.ManagedRoutes() {
		if name != root(e.t) {
			delete(annotations, e.key("actions", name))
			delete(annotations, e.key("conditions", name))
		}
	}
}

// paths leads to the actions of managed routes first in every rule, and takes away those that are not in force.
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

// managed says whether a path leads to a managed route.
func (e editor) managed(path map[string]any) bool {
	service := traffic.IngressBackend(path)
	name, _ := service["name"].(string)
	port, _, _ := unstructured.NestedString(service, "port", "name")
	return port == useAnnotation && name != root(e.t) && slices.Contains(e.t.ManagedRoutes(), name)
}

// book notes what was written, beside what other Rollouts note.
func (e editor) book(annotations map[string]string, written []string) error {
	books, err := e.books(annotations)
	if err != nil {
		return traffic.Refuse(traffic.ErrInvalid, "%s: annotation %s cannot be read: remove it, or correct it: %v", e.ref, managedAnnotation, err)
	}
	books[e.t.Rollout.Name] = written
	return write(annotations, managedAnnotation, books)
}

func (editor) books(annotations map[string]string) (map[string][]string, error) {
	books := map[string][]string{}
	if text := annotations[managedAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &books); err != nil {
			return nil, err
		}
	}
	if books == nil { // null
		books = map[string][]string{}
	}
	return books, nil
}

func write(annotations map[string]string, key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write annotation %s: %w", key, err)
	}
	if !same(annotations[key], text) {
		annotations[key] = string(text)
	}
	return nil
}

// same says whether an annotation has these contents already, however it is written.
func same(text string, value []byte) bool {
	var compact bytes.Buffer
	return json.Compact(&compact, []byte(text)) == nil && bytes.Equal(compact.Bytes(), value)
}

// read adds what the action of an Ingress says to what was observed, and returns what its load balancers shall do.
func (e editor) read(obj *unstructured.Unstructured, out *traffic.Observed) (traffic.Forward, error) {
	wanted := traffic.Forward{Ingress: obj.GetName(), Hosts: hosts(obj)}
	for _, name := range e.t.ManagedRoutes() {
		if _, there := obj.GetAnnotations()[e.key("actions", name)]; there && name != root(e.t) {
			out.ManagedRoutes = append(out.ManagedRoutes, name)
		}
	}
	key := e.key("actions", root(e.t))
	text, ok := obj.GetAnnotations()[key]
	if !ok {
		return wanted, nil
	}
	var forward action
	if err := json.Unmarshal([]byte(text), &forward); err != nil {
		return wanted, fmt.Errorf("read %s: annotation %s: %w", e.ref, key, err)
	}
	var canary, others, stable []traffic.Portion
	for _, group := range forward.ForwardConfig.TargetGroups {
		share := traffic.Portion{Service: group.ServiceName, Port: group.ServicePort, Weight: group.Weight}
		switch group.ServiceName {
		case e.t.CanaryService:
			canary = []traffic.Portion{share}
		case e.t.StableService:
			stable = []traffic.Portion{share}
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

// hosts are the names of the load balancers that an Ingress has.
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

// restore says whether there was anything of this Rollout.
func (e editor) restore(obj *unstructured.Unstructured) bool {
	annotations := obj.GetAnnotations()
	books, err := e.books(annotations)
	if _, ours := books[e.t.Rollout.Name]; err != nil || !ours {
		return false
	}
	delete(books, e.t.Rollout.Name)
	e.removeManaged(annotations)
	delete(annotations, formerAnnotation)
	own := action{Type: "forward", ForwardConfig: forwardConfig{TargetGroups: []targetGroup{e.group(root(e.t), release.Total)}}}
	failed := write(annotations, e.key("actions", root(e.t)), own)
	if len(books) == 0 {
		delete(annotations, managedAnnotation)
	} else if failed == nil {
		failed = write(annotations, managedAnnotation, books)
	}
	obj.SetAnnotations(annotations)
	e.paths(obj, nil)
	return failed == nil
}
