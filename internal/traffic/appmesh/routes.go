package appmesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/internal/traffic"
)

// The fields of specs that Serin writes. Other tools may write all other fields.
var (
	mappingFields = traffic.Fields{
		"portMapping": {Fields: traffic.WholeFields("port", "protocol")},
		"timeout": {Fields: traffic.Fields{
			"http": {Fields: requestTimeout}, "grpc": {Fields: requestTimeout},
		}},
	}
	durationFields = traffic.WholeFields("unit", "value")
	requestTimeout = traffic.Fields{"perRequest": {Fields: durationFields}}
	listeners      = traffic.Field{Fields: mappingFields, Same: traffic.OnlyItem} // a node and a router have one

	discoveryFields = traffic.Fields{
		"dns":      {Fields: traffic.WholeFields("hostName", "hostname")},
		"cloudMap": {}, "awsCloudMap": {}, // never together with dns
	}
	loggingFields = traffic.Fields{"accessLog": {Fields: traffic.Fields{"file": {Fields: traffic.WholeFields("path")}}}}
	backends      = traffic.Field{
		Fields: traffic.Fields{"virtualService": {Fields: traffic.Fields{
			"virtualServiceName": {}, "virtualServiceRef": {Fields: traffic.WholeFields("name")}, "virtualServiceARN": {},
		}}},
		Same: func(was, now map[string]any) bool { return backendName(was) == backendName(now) },
	}

	ruleFields = traffic.Fields{
		"match": {Fields: traffic.Fields{
			"prefix": {},
			"headers": {
				Fields: traffic.Fields{"name": {}, "match": {Fields: traffic.WholeFields("exact", "prefix", "suffix", "regex", "range")}},
				Same:   traffic.SameField("name"),
			},
		}},
		"action": {Fields: traffic.Fields{"weightedTargets": {
			Fields: traffic.Fields{"virtualNodeName": {}, "virtualNodeRef": {Fields: traffic.WholeFields("name")}, "virtualNodeARN": {}, "weight": {}},
			Same:   func(was, now map[string]any) bool { return nodeOf(was) == nodeOf(now) },
		}}},
		"retryPolicy": {Fields: traffic.Fields{
			"maxRetries": {}, "perRetryTimeoutMillis": {}, "perRetryTimeout": {Fields: durationFields},
			"httpRetryEvents": {}, "tcpRetryEvents": {},
		}},
		"timeout": {Fields: requestTimeout},
	}
)

// routesOfRelease are identified by their names. A route of the same name with other targets belongs to the user, and is
// replaced.
func routesOfRelease(t traffic.Target) traffic.Field {
	return traffic.Field{
		Fields: traffic.Fields{"name": {}, "priority": {}, "http": {Fields: ruleFields}, "httpRoute": {Fields: ruleFields}},
		Same: func(was, now map[string]any) bool {
			return was["name"] == now["name"] && slices.ContainsFunc(weightedTargets(was), func(target map[string]any) bool {
				return nodeOf(target) == t.StableService || nodeOf(target) == t.CanaryService
			})
		},
	}
}

func weightedTargets(route map[string]any) []map[string]any {
	var out []map[string]any
	for _, rule := range []string{"http", "httpRoute"} {
		list, _, _ := unstructured.NestedFieldNoCopy(route, rule, "action", "weightedTargets")
		out = append(out, traffic.Maps(list)...)
	}
	return out
}

// Priorities of the routes of an A/B test: for matching requests, and for all others.
const (
	matchingPriority = 10
	otherPriority    = 20
)

// dialect is the format of routes in one version.
type dialect struct {
	target traffic.Target
	// rule is the field with match and action.
	rule string
	// node returns the reference to a VirtualNode.
	node func(name string) (key string, value any)
	// retryTimeout returns the timeout of one attempt.
	retryTimeout func(d time.Duration) (key string, value any)
	// timeout of a request; nil if routes of this version have none.
	timeout func(t traffic.Target) (map[string]any, error)
}

// inVirtualService is the dialect of v1beta1.
func inVirtualService(t traffic.Target) dialect {
	return dialect{
		target: t, rule: "http",
		node:         func(name string) (string, any) { return "virtualNodeName", name },
		retryTimeout: func(d time.Duration) (string, any) { return "perRetryTimeoutMillis", d.Milliseconds() },
		timeout:      func(traffic.Target) (map[string]any, error) { return nil, nil },
	}
}

// inVirtualRouter is the dialect of v1beta2.
func inVirtualRouter(t traffic.Target) dialect {
	return dialect{
		target: t, rule: "httpRoute",
		node:         func(name string) (string, any) { return "virtualNodeRef", map[string]any{"name": name} },
		retryTimeout: func(d time.Duration) (string, any) { return "perRetryTimeout", milliseconds(d) },
		timeout:      perRequest,
	}
}

// routes renders the routes of the object of that name. In an A/B test there are two, and the first has the weights.
func (d dialect) routes(name string, r release.Route) ([]any, error) {
	canary := d.weighted(d.target.CanaryService, r.Canary)
	primary := d.weighted(d.target.StableService, release.Total-r.Canary)
	if len(r.Matches) == 0 {
		rule, err := d.ruleFor(nil, canary, primary)
		return []any{map[string]any{"name": name, d.rule: rule}}, err
	}
	matching, err := d.ruleFor(headers(r.Matches), canary, primary)
	if err != nil {
		return nil, err
	}
	rest, err := d.ruleFor(nil, d.weighted(d.target.StableService, release.Total))
	return []any{
		map[string]any{"name": name + "-a", "priority": int64(matchingPriority), d.rule: matching},
		map[string]any{"name": name + "-b", "priority": int64(otherPriority), d.rule: rest},
	}, err
}

func (d dialect) weighted(node string, weight int) any {
	key, value := d.node(node)
	return map[string]any{key: value, "weight": int64(weight)}
}

// ruleFor returns a rule for requests with these headers; without headers, for all requests.
func (d dialect) ruleFor(headers []any, targets ...any) (map[string]any, error) {
	match := map[string]any{"prefix": prefix(d.target)}
	if len(headers) > 0 {
		match["headers"] = headers
	}
	rule := map[string]any{"match": match, "action": map[string]any{"weightedTargets": targets}}
	timeout, err := d.timeout(d.target)
	if err != nil {
		return nil, err
	}
	if timeout != nil {
		rule["timeout"] = timeout
	}
	policy, err := d.retries()
	if err != nil {
		return nil, err
	}
	if policy != nil {
		rule["retryPolicy"] = policy
	}
	return rule, nil
}

// prefix is the first prefix in the matches of the service: a route of App Mesh supports only prefixes of a path.
func prefix(t traffic.Target) string {
	for _, m := range t.Canary.Spec.Service.Match {
		if m.URI != nil && m.URI.Prefix != "" {
			return m.URI.Prefix
		}
	}
	return "/"
}

// headers returns the headers of all matches, sorted by name. A route has one list, all of which must match.
func headers(matches []release.Match) []any {
	var out []any
	for _, m := range matches {
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			header := map[string]any{"name": name}
			condition := map[string]any{}
			for key, value := range map[string]string{
				"exact": m.Headers[name].Exact, "prefix": m.Headers[name].Prefix,
				"suffix": m.Headers[name].Suffix, "regex": m.Headers[name].Regex,
			} {
				if value != "" {
					condition[key] = value
				}
			}
			if len(condition) > 0 { // without a condition, the header must be present
				header["match"] = condition
			}
			out = append(out, header)
		}
	}
	return out
}

func milliseconds(d time.Duration) map[string]any {
	return map[string]any{"unit": "ms", "value": d.Milliseconds()}
}

// perRequest is the timeout of a whole request; nil if none is set.
func perRequest(t traffic.Target) (map[string]any, error) {
	text := t.Canary.Spec.Service.Timeout
	if text == "" {
		return nil, nil
	}
	d, err := duration("spec.service.timeout", text)
	return map[string]any{"perRequest": milliseconds(d)}, err
}

func duration(where, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond {
		return 0, traffic.Refuse(traffic.ErrInvalid, "%s is %q, which is not a duration of at least 1ms: write for example 15s", where, text)
	}
	return d, nil
}

// Defaults of a retry policy.
const (
	defaultRetryTimeout = 250 * time.Millisecond
	defaultRetryEvent   = "gateway-error"
)

// The events on which App Mesh retries. They are never changed.
var (
	httpEvents = []string{"server-error", "gateway-error", "client-error", "stream-error"}
	tcpEvents  = []string{"connection-error"}
)

// retries is the policy of the service; nil if it has none.
func (d dialect) retries() (map[string]any, error) {
	retries := d.target.Canary.Spec.Service.Retries
	if retries == nil {
		return nil, nil
	}
	timeout := defaultRetryTimeout
	if retries.PerTryTimeout != "" {
		var err error
		if timeout, err = duration("spec.service.retries.perTryTimeout", retries.PerTryTimeout); err != nil {
			return nil, err
		}
	}
	key, value := d.retryTimeout(timeout)
	policy := map[string]any{"maxRetries": int64(max(retries.Attempts, 1)), key: value}
	events := []string{defaultRetryEvent}
	if retries.RetryOn != "" {
		events = strings.Split(retries.RetryOn, ",")
	}
	for _, event := range events {
		event = strings.TrimSpace(event)
		list := ""
		switch {
		case slices.Contains(httpEvents, event):
			list = "httpRetryEvents"
		case slices.Contains(tcpEvents, event):
			list = "tcpRetryEvents"
		default:
			return nil, traffic.Refuse(traffic.ErrInvalid, "spec.service.retries.retryOn names %q, which App Mesh does not know: use %s",
				event, strings.Join(append(slices.Clone(httpEvents), tcpEvents...), ", "))
		}
		known, _ := policy[list].([]any)
		policy[list] = append(known, event)
	}
	return policy, nil
}

// Read reads the weights from the first route that names the canary. App Mesh does not report what its proxies serve.
func (r Renderer) Read(t traffic.Target, existing traffic.Objects) (traffic.Observed, error) {
	out := traffic.Observed{Confirmed: traffic.CannotTell}
	routed := existing[slices.IndexFunc(r.parts(t), func(p part) bool { return p.routed })]
	if routed.Object == nil {
		return out, nil
	}
	list, _, err := unstructured.NestedFieldNoCopy(routed.Object.Object, "spec", "routes")
	if err != nil {
		return out, fmt.Errorf("read %s: %w", routed.Ref, err)
	}
	routes := traffic.Maps(list)
	for i, route := range routes {
		weights, err := t.SideWeights(weightedTargets(route), nodeOf)
		if err != nil {
			return out, fmt.Errorf("read %s: spec.routes: %w", routed.Ref, err)
		}
		if _, named := weights[t.CanaryService]; named {
			out, err = traffic.ObserveShare(routed.Ref, weights, t.StableService, t.CanaryService)
			out.Matched = slices.ContainsFunc(routes[i+1:], func(other map[string]any) bool { // the route for all other requests
				weights, err := t.SideWeights(weightedTargets(other), nodeOf)
				return err == nil && len(weights) > 0 && weights[t.CanaryService] == 0
			})
			return out, err
		}
	}
	return out, nil
}

// nodeOf is the name of the node of a weighted target.
func nodeOf(target map[string]any) string {
	if node, _ := target["virtualNodeName"].(string); node != "" {
		return node
	}
	node, _, _ := unstructured.NestedString(target, "virtualNodeRef", "name")
	return node
}

// backendName is the name or ARN of a service that a node may call.
func backendName(backend map[string]any) string {
	service, _ := backend["virtualService"].(map[string]any)
	name, _ := service["virtualServiceName"].(string)
	arn, _ := service["virtualServiceARN"].(string)
	ref, _, _ := unstructured.NestedString(service, "virtualServiceRef", "name")
	return name + arn + ref
}
