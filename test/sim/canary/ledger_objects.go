package canary

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/cluster"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// primarySuffix is appended to the names of the target's objects to name those of the primary.
const primarySuffix = "-primary"

func (r *record) apexName() string {
	if name := r.canary.Spec.Service.Name; name != "" {
		return name
	}
	return r.targetRef.Name
}

// routeKind returns the kind of the object that contains the weights, or an empty kind.
func (r *record) routeKind() schema.GroupKind {
	kind, _ := cluster.RouteKind(r.canary.Spec.Provider)
	return kind
}

// hasWeights reports whether an object contains the weights.
func (r *record) hasWeights(at oracle.ObjectKey) bool {
	return at.Kind == r.routeKind() && at.Key.Name == r.apexName() && at.Key.Namespace == r.Key.Namespace
}

// objectKeys returns the keys of the objects of a release, whether or not they exist.
func (r *record) objectKeys() []oracle.ObjectKey {
	var out []oracle.ObjectKey
	add := func(kind schema.GroupKind, name string) {
		at := oracle.KeyOf(kind, types.NamespacedName{Namespace: r.Key.Namespace, Name: name})
		if name != "" && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	target, apex := r.targetRef.Name, r.apexName()
	add(r.kind, target)
	add(r.kind, target+primarySuffix)
	for _, name := range []string{apex, apex + primarySuffix, apex + "-canary"} {
		add(actors.ServiceKind, name)
	}
	if kind := r.routeKind(); kind.Kind != "" {
		add(kind, apex)
		switch kind {
		case cluster.VirtualServiceKind:
			add(cluster.DestinationRuleKind, apex+primarySuffix)
			add(cluster.DestinationRuleKind, apex+"-canary")
		case cluster.RouteTableKind:
			add(cluster.UpstreamKind, upstreamOf(apex, "primary"))
			add(cluster.UpstreamKind, upstreamOf(apex, "canary"))
		}
	}
	if ref := r.canary.Spec.AutoscalerRef; ref != nil {
		add(actors.AutoscalerKind, ref.Name)
		add(actors.AutoscalerKind, ref.Name+primarySuffix)
	}
	template, _ := r.target.template.(map[string]any)
	for _, ref := range configsIn(template) {
		add(ref.Kind, ref.Key.Name)
		add(ref.Kind, ref.Key.Name+primarySuffix)
	}
	return out
}

// weightsIn returns the weights after a write.
func (r *record) weightsIn(e *store.Event) weights {
	if e.Type == store.Deleted {
		return weights{}
	}
	return r.weightsOf(e.New)
}

// weightsOf reads a route. The last rule that names the canary determines how traffic is split, because the rules for clients
// with a cookie come first.
func (r *record) weightsOf(v *store.Version) weights {
	primary, canary := r.apexName()+primarySuffix, r.apexName()+"-canary"
	var out weights
	rules, ordered := actors.Destinations(v.Content()), v.Kind() == cluster.HTTPRouteKind || v.Kind() == cluster.VirtualServiceKind
	for i, destinations := range rules {
		var split weights
		sum := 0
		for _, to := range destinations {
			weight, isInteger := integer(to["weight"])
			if to["weight"] == nil {
				weight, isInteger = 1, true // the default of the Gateway API; without any weights, all shares are equal
			}
			if !isInteger || weight < 0 || weight > 100 {
				out.problem = "a weight is not an integer from 0 to 100"
			}
			sum += weight
			switch serviceOf(to, r.apexName()) {
			case primary:
				split.primary = weight
			case canary:
				split.found, split.canary = true, weight
			}
		}
		if split.found {
			out.found, out.canary, out.primary, out.matched = true, split.canary, split.primary, ordered && i < len(rules)-1
			if sum != 100 {
				out.problem = "the weights of a rule do not add up to 100"
			}
		}
	}
	spec := nested(v.Content(), "spec")
	for _, rule := range slices.Concat(actors.Items(spec["http"]), actors.Items(spec["rules"])) {
		out.mirrored = out.mirrored || mirrors(rule, canary)
	}
	return out
}

// mirrors reports whether a rule mirrors requests to a Service.
func mirrors(rule map[string]any, service string) bool {
	if host, _ := nested(rule, "mirror")["host"].(string); host == service {
		return true
	}
	for _, mirror := range actors.Items(rule["mirrors"]) {
		if host, _ := nested(mirror, "destination")["host"].(string); host == service {
			return true
		}
	}
	for _, filter := range actors.Items(rule["filters"]) {
		if name, _ := nested(filter, "requestMirror", "backendRef")["name"].(string); name == service {
			return true
		}
	}
	return false
}

func integer(value any) (int, bool) {
	switch n := value.(type) {
	case int64:
		return int(n), true
	case float64:
		return int(n), n == float64(int(n))
	default:
		return 0, false
	}
}

// nested returns the object at a path, or nil, which can be read like an empty object.
func nested(object map[string]any, path ...string) map[string]any {
	for _, field := range path {
		object, _ = object[field].(map[string]any)
	}
	return object
}

func number(object map[string]any, field string, absent int64) int64 {
	if n, ok := object[field].(int64); ok {
		return n
	}
	return absent
}

// desiredPods returns how many pods are desired of a workload. A DaemonSet that is scaled to zero has a node selector that
// matches no node.
func desiredPods(v *store.Version) int64 {
	if v.Kind() != actors.DaemonSetKind {
		return number(nested(v.Content(), "spec"), "replicas", 1)
	}
	if len(nested(v.Content(), "spec", "template", "spec", "nodeSelector")) > 0 {
		return 0
	}
	return max(1, number(nested(v.Content(), "status"), "desiredNumberScheduled", 0))
}

// readWorkload translates a write of a workload into the terms of a release.
func (l *ledger) readWorkload(e oracle.Write, r *record) workloadWritten {
	h := workloadWritten{Write: e, record: r, state: &r.target}
	if e.Key.Name == r.targetRef.Name+primarySuffix {
		h.primary, h.state = true, &r.primary
	}
	if h.primary && isControlledByCanary(e.New) {
		// A process that does not know yet that a Canary was deleted creates objects for the deleted one, not for a new one of
		// the same name.
		h.BySerin = e.BySerin && actors.ControllerOf(e.New.Meta()).UID == r.UID
	} else {
		h.BySerin = e.BySerin && l.ownsTarget(r)
	}
	if e.Old != nil {
		h.previousReplicas = desiredPods(e.Old)
	}
	if e.Type == store.Deleted {
		return h
	}
	spec := nested(e.New.Content(), "spec")
	h.replicas = desiredPods(e.New)
	if template := spec["template"]; h.state.version == nil || !oracle.SameMap(template, h.state.template) {
		if content := l.contentOf(e.New, h.primary); content != h.state.content {
			h.content = content
		}
	}
	return h
}

func (c *recorder) recordWorkload(h workloadWritten) {
	p := h.state
	if h.Type == store.Deleted {
		p.version, p.template, p.content, p.replicas, p.available = nil, nil, "", 0, 0
		p.recordCount(c.Now())
		p.removed = c.Now()
		c.setReady(p, false, false)
		return
	}
	if !h.BySerin && h.Subresource != "status" {
		p.writtenByOthers, p.disturbedAt = c.Now(), c.Now()
	}
	switch {
	case h.replicas > 0:
		p.scaledToZero = time.Time{}
	case h.BySerin && h.previousReplicas > 0:
		p.scaledToZero = c.Now()
	}
	c.recordPods(h.record, p, h.New, h.content)
	if h.content != "" && h.primary {
		c.recordStable(h.record, h.BySerin, h.content)
	}
}

// recordStable records that the primary runs another content.
func (c *recorder) recordStable(r *record, ours bool, content string) {
	switch {
	case !ours:
		r.stableContent = "" // a user wrote it and determines its content
	case r.run != nil && isActive(r.status.Phase) && slices.Contains(r.run.targetContents, content):
		r.run.promotedAt, r.stableContent, r.statusUnreliable = c.Now(), content, false
	default:
		r.stableContent = content
	}
}

// recordPods records the current state of a workload.
func (c *recorder) recordPods(r *record, p *workloadState, v *store.Version, content string) {
	if p.version == nil {
		p.created = c.Now()
	}
	if template := nested(v.Content(), "spec")["template"]; !oracle.SameMap(template, p.template) {
		p.template = template
		p.templates.Set(v, c.Now())
		if content == "" && p.content == "" {
			content = c.contentOf(v, p == &r.primary)
		}
		if p == &r.target {
			c.indexObjects()
		}
	}
	if content != "" {
		c.setContent(p, content)
	}
	p.version = v
	p.replicas = desiredPods(v)
	c.updateReadiness(r, p)
}

// updateReadiness records whether a workload is ready by the current thresholds.
func (c *recorder) updateReadiness(r *record, p *workloadState) {
	if p.version == nil {
		return
	}
	v, status := p.version, nested(p.version.Content(), "status")
	total, updated := number(status, "replicas", 0), number(status, "updatedReplicas", 0)
	p.available = number(status, "availableReplicas", 0)
	running := number(status, "readyReplicas", 0)
	if v.Kind() == actors.DaemonSetKind {
		running = number(status, "numberReady", 0)
		total = number(status, "currentNumberScheduled", 0) + number(status, "numberMisscheduled", 0)
		updated, p.available = number(status, "updatedNumberScheduled", 0), number(status, "numberAvailable", 0)
	}
	percent := int64(100)
	if spec, exists := r.Specs.Last(); exists {
		percent = int64(spec.Value.canaryReadyPercent)
		if p == &r.primary {
			percent = int64(spec.Value.primaryReadyPercent)
		}
	}
	ready := number(status, "observedGeneration", 0) >= v.Generation() && updated >= p.replicas && total <= updated &&
		p.available >= max(updated*percent/100, min(updated, 1))
	c.recordProgress(p, [3]int64{updated, running, p.available}, p.ready.True && (!ready || p.replicas <= 0))
	p.recordCount(c.Now())
	if p.exceedsDeadline && !deadlineExceeded(v) {
		p.lastExceededDeadline = c.Now()
	}
	p.exceedsDeadline = deadlineExceeded(v)
	c.setReady(p, ready && p.replicas > 0, p.available > 0)
}

// recordProgress records that a workload lost its readiness, or that more of its pods are updated, ready or available. A state
// that lasted less than the maximum lag need not have been observed by any process.
func (c *recorder) recordProgress(p *workloadState, counts [3]int64, lost bool) {
	observed := c.Now().Sub(p.countedAt) > c.Lag
	rises := observed && (counts[0] > p.counts[0] || counts[1] > p.counts[1] || counts[2] > p.counts[2])
	if rises {
		p.progressTimes = append(p.progressTimes, c.Now())
	}
	if lost && c.Now().Sub(p.ready.Since) > c.Lag {
		p.readinessLost = c.Now()
	}
	if counts != p.counts {
		p.counts, p.countedAt = counts, c.Now()
	}
}

// lastProgress returns when a workload was last ready, or last made progress that every process must know of; zero: never.
func (p *workloadState) lastProgress(then time.Time) time.Time {
	for i, v := range slices.Backward(p.progressTimes) {
		if at := v; !at.After(then) {
			p.progressTimes = p.progressTimes[i:] // no check needs older ones
			return release.LaterOf(at, p.readinessLost)
		}
	}
	return p.readinessLost
}

// deadlineExceeded reports whether Kubernetes reports that a Deployment has exceeded its progress deadline, however many of its
// pods run.
func deadlineExceeded(v *store.Version) bool {
	return slices.ContainsFunc(actors.Items(nested(v.Content(), "status")["conditions"]), func(condition map[string]any) bool {
		return condition["reason"] == "ProgressDeadlineExceeded"
	})
}

func (c *recorder) setContent(p *workloadState, name string) {
	if p.content == name {
		return
	}
	p.content = name
	p.contentHistory.Set(name, c.Now())
}

func (c *recorder) setReady(p *workloadState, ready, serves bool) {
	p.ready.Set(ready, c.Now())
	p.Answering.Set(serves, c.Now())
}

// recordConfig records whether a change of configuration changed the content of a workload.
func (c *recorder) recordConfig(h oracle.Write) {
	if h.Kind != actors.ConfigMapKind && h.Kind != actors.SecretKind {
		return
	}
	at := oracle.KeyOf(h.Kind, h.Key)
	versions := c.configs[at]
	if len(versions) == 0 {
		versions.Set(h.Old, time.Time{})
	}
	current := h.New
	if h.Type == store.Deleted {
		current = nil
	}
	versions.Set(current, c.Now())
	c.configs[at] = versions
	for _, r := range c.releasesOf(h) {
		for _, p := range []*workloadState{&r.target, &r.primary} {
			if p.version == nil {
				continue
			}
			before := p.content
			c.setContent(p, c.contentOf(p.version, p == &r.primary))
			switch {
			case p.content == before:
			case p == &r.primary:
				c.recordStable(r, h.BySerin, p.content)
			default:
				r.configChanged = c.Now()
			}
		}
	}
}

// contentOf returns a hash of what a workload runs: its containers, and the configuration that they reference, by name and
// content. The names in the primary are normalised to those of the target.
func (l *ledger) contentOf(v *store.Version, primary bool) string {
	return contentWith(v, primary, func(at oracle.ObjectKey) *store.Version { return l.World.Server.Peek(at.Kind, at.Key) })
}

// observableContents returns the contents of a target that a process may observe: those since the oldest view, and, if both its template
// and its configuration changed since then, each template with each version of its configuration. The process does not observe both in the
// order in which they changed.
func (l *ledger) observableContents(target *workloadState) []string {
	out := target.contentHistory.Since(l.OldestView())
	if !target.templates.Replaced(l.OldestView()) {
		return out
	}
	for _, v := range target.templates.Since(l.OldestView()) {
		selections := []map[oracle.ObjectKey]*store.Version{{}}
		for _, ref := range configsIn(nested(v.Content(), "spec", "template")) {
			ref.Key.Namespace = v.Key().Namespace
			versions := l.configs[ref].Since(l.OldestView())
			if len(versions) == 0 { // it was never written, or existed before the run
				versions = []*store.Version{l.World.Server.Peek(ref.Kind, ref.Key)}
			}
			var extended []map[oracle.ObjectKey]*store.Version
			for _, selection := range selections {
				for _, version := range versions {
					with := maps.Clone(selection)
					with[ref] = version
					extended = append(extended, with)
				}
			}
			selections = extended
		}
		for _, selection := range selections {
			content := contentWith(v, false, func(at oracle.ObjectKey) *store.Version { return selection[at] })
			if !slices.Contains(out, content) {
				out = append(out, content)
			}
		}
	}
	return out
}

// contentWith is contentOf with the configuration that a function returns.
func contentWith(v *store.Version, primary bool, find func(oracle.ObjectKey) *store.Version) string {
	template := nested(v.Content(), "spec", "template")
	metadata, spec := nested(template, "metadata"), nested(template, "spec")
	parts := map[string]any{}
	for _, field := range []string{"containers", "initContainers", "volumes"} {
		if spec[field] != nil {
			parts[field] = spec[field]
		}
	}
	parts["version"] = nested(metadata, "labels")["version"]
	annotations := map[string]any{}
	for key, value := range nested(metadata, "annotations") {
		if key != "flagger-id" {
			annotations[key] = value
		}
	}
	parts["annotations"] = annotations
	text, err := json.Marshal(parts)
	if err != nil {
		return ""
	}
	sum := sha256.New()
	encoded := string(text)
	for _, ref := range configsIn(template) {
		ref.Key.Namespace = v.Key().Namespace
		name := strings.TrimSuffix(ref.Key.Name, primarySuffix)
		if primary {
			encoded = strings.ReplaceAll(encoded, `"`+ref.Key.Name+`"`, `"`+name+`"`)
		}
		sum.Write([]byte(name))
		if config := find(ref); config != nil {
			data, err := json.Marshal([]any{config.Content()["data"], config.Content()["binaryData"]})
			if err != nil {
				return ""
			}
			sum.Write(data)
		}
	}
	sum.Write([]byte(encoded))
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// lacksConfig reports whether a ConfigMap or a Secret that a workload references does not exist, so that its content is incomplete. A
// blocked release is observed meanwhile.
func (l *ledger) lacksConfig(v *store.Version) bool {
	if v == nil {
		return false
	}
	return slices.ContainsFunc(configsIn(nested(v.Content(), "spec", "template")), func(ref oracle.ObjectKey) bool {
		ref.Key.Namespace = v.Key().Namespace
		return l.World.Server.Peek(ref.Kind, ref.Key) == nil
	})
}

// configsIn returns the keys of the ConfigMaps and Secrets that a pod template references, without a namespace.
func configsIn(template map[string]any) []oracle.ObjectKey {
	var out []oracle.ObjectKey
	add := func(kind schema.GroupKind, source map[string]any, field string) {
		if name, _ := source[field].(string); name != "" {
			at := oracle.KeyOf(kind, types.NamespacedName{Name: name})
			if !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
	}
	spec := nested(template, "spec")
	for _, volume := range actors.Items(spec["volumes"]) {
		add(actors.ConfigMapKind, nested(volume, "configMap"), "name")
		add(actors.SecretKind, nested(volume, "secret"), "secretName")
		for _, source := range actors.Items(nested(volume, "projected")["sources"]) {
			add(actors.ConfigMapKind, nested(source, "configMap"), "name")
			add(actors.SecretKind, nested(source, "secret"), "name")
		}
	}
	for _, field := range []string{"initContainers", "containers"} {
		for _, container := range actors.Items(spec[field]) {
			for _, from := range actors.Items(container["envFrom"]) {
				add(actors.ConfigMapKind, nested(from, "configMapRef"), "name")
				add(actors.SecretKind, nested(from, "secretRef"), "name")
			}
			for _, env := range actors.Items(container["env"]) {
				add(actors.ConfigMapKind, nested(env, "valueFrom", "configMapKeyRef"), "name")
				add(actors.SecretKind, nested(env, "valueFrom", "secretKeyRef"), "name")
			}
		}
	}
	return out
}

// hasNoRouter reports whether the traffic of a release follows its Services.
func (r *record) hasNoRouter() bool { return r.canary.Spec.Provider == canary.ProviderKubernetes }
