package canary

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/release"
	"github.com/serin-dev/serin/test/sim/actors"
	"github.com/serin-dev/serin/test/sim/oracle"
	"github.com/serin-dev/serin/test/sim/store"
)

// ending is what the names of the primary's things have more than those of the target's.
const ending = "-primary"

func (r *record) apexName() string {
	if name := r.canary.Spec.Service.Name; name != "" {
		return name
	}
	return r.canary.Spec.TargetRef.Name
}

// routeKind is the kind of the object that has the weights; empty where none has.
func (r *record) routeKind() schema.GroupKind {
	switch provider := r.canary.Spec.Provider; {
	case provider == "istio":
		return actors.VirtualServiceKind
	case strings.HasPrefix(provider, "gatewayapi"):
		return actors.HTTPRouteKind
	default:
		return schema.GroupKind{}
	}
}

// carries is true of the object that has the weights.
func (r *record) carries(at oracle.ObjectKey) bool {
	return at.Kind == r.routeKind() && at.Key.Name == r.apexName() && at.Key.Namespace == r.Key.Namespace
}

// places are the objects of a release, whether they are there or not.
func (r *record) places() []oracle.ObjectKey {
	var out []oracle.ObjectKey
	add := func(kind schema.GroupKind, name string) {
		at := oracle.At(kind, types.NamespacedName{Namespace: r.Key.Namespace, Name: name})
		if name != "" && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	target, apex := r.canary.Spec.TargetRef.Name, r.apexName()
	add(r.kind, target)
	add(r.kind, target+ending)
	for _, name := range []string{apex, apex + ending, apex + "-canary"} {
		add(actors.ServiceKind, name)
	}
	if kind := r.routeKind(); kind.Kind != "" {
		add(kind, apex)
		if kind == actors.VirtualServiceKind {
			add(actors.DestinationRuleKind, apex+ending)
			add(actors.DestinationRuleKind, apex+"-canary")
		}
	}
	if ref := r.canary.Spec.AutoscalerRef; ref != nil {
		add(actors.AutoscalerKind, ref.Name)
		add(actors.AutoscalerKind, ref.Name+ending)
	}
	template, _ := r.target.template.(map[string]any)
	for _, ref := range configsIn(template) {
		add(ref.Kind, ref.Key.Name)
		add(ref.Kind, ref.Key.Name+ending)
	}
	return out
}

// weightsIn are the weights after a write.
func (r *record) weightsIn(e *store.Event) weights {
	if e.Type == store.Deleted {
		return weights{}
	}
	return r.weightsOf(e.New)
}

// weightsOf reads a route: the last rule that names the canary says how traffic is split, since the rules for clients
// with a cookie come first.
func (r *record) weightsOf(v *store.Version) weights {
	spec := within(v.Content(), "spec")
	primary, canary := r.apexName()+ending, r.apexName()+"-canary"
	var out weights
	rules, receivers := actors.Items(spec["http"]), "route"
	if v.Kind() == actors.HTTPRouteKind {
		rules, receivers = actors.Items(spec["rules"]), "backendRefs"
	} else if len(rules) == 0 {
		rules = actors.Items(spec["tcp"])
	}
	for _, rule := range rules {
		var split weights
		sum := 0
		for _, to := range actors.Items(rule[receivers]) {
			name, _ := to["name"].(string)
			if v.Kind() == actors.VirtualServiceKind {
				name, _ = within(to, "destination")["host"].(string)
			}
			weight, whole := wholeNumber(to["weight"])
			if to["weight"] == nil {
				weight, whole = 1, true // the default of the API, alone it is all
			}
			if !whole || weight < 0 || weight > 100 {
				out.problem = "a weight is no whole number from 0 to 100"
			}
			sum += weight
			switch name {
			case primary:
				split.primary = weight
			case canary:
				split.found, split.canary = true, weight
			}
		}
		if split.found {
			out.found, out.canary, out.primary = true, split.canary, split.primary
			if sum != 100 {
				out.problem = "the weights of a rule do not add up to 100"
			}
		}
		out.mirrored = out.mirrored || mirrors(rule, canary)
	}
	return out
}

// mirrors is true of a rule that copies requests to a service.
func mirrors(rule map[string]any, service string) bool {
	if host, _ := within(rule, "mirror")["host"].(string); host == service {
		return true
	}
	for _, mirror := range actors.Items(rule["mirrors"]) {
		if host, _ := within(mirror, "destination")["host"].(string); host == service {
			return true
		}
	}
	for _, filter := range actors.Items(rule["filters"]) {
		if name, _ := within(filter, "requestMirror", "backendRef")["name"].(string); name == service {
			return true
		}
	}
	return false
}

func wholeNumber(value any) (int, bool) {
	switch n := value.(type) {
	case int64:
		return int(n), true
	case float64:
		return int(n), n == float64(int(n))
	default:
		return 0, false
	}
}

// within is the object at a path; nil, which can be read, where there is none.
func within(object map[string]any, path ...string) map[string]any {
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

// asked is how many pods are desired of a workload. A DaemonSet that runs nowhere has a node selector that no node has.
func asked(v *store.Version) int64 {
	if v.Kind() != actors.DaemonSetKind {
		return number(within(v.Content(), "spec"), "replicas", 1)
	}
	if len(within(v.Content(), "spec", "template", "spec", "nodeSelector")) > 0 {
		return 0
	}
	return max(1, number(within(v.Content(), "status"), "desiredNumberScheduled", 0))
}

// readWorkload says what a write of a workload is to a release.
func (l *ledger) readWorkload(e oracle.Write, r *record) workloadWritten {
	h := workloadWritten{Write: e, of: r, copy: &r.target}
	if e.Key.Name == r.canary.Spec.TargetRef.Name+ending {
		h.primary, h.copy = true, &r.primary
	}
	if h.primary && madeFor(e.New) {
		// What a process makes that does not know yet that a Canary of that name was deleted goes with that Canary.
		h.BySerin = e.BySerin && holder(e.New) == flaggerv1.CanaryKind+" "+string(r.UID)
	} else {
		h.BySerin = e.BySerin && l.owns(r)
	}
	if e.Old != nil {
		h.was = asked(e.Old)
	}
	if e.Type == store.Deleted {
		return h
	}
	spec := within(e.New.Content(), "spec")
	h.is = asked(e.New)
	if template := spec["template"]; h.copy.version == nil || !oracle.SameMap(template, h.copy.template) {
		if content := l.contentOf(e.New, h.primary); content != h.copy.content {
			h.content = content
		}
	}
	return h
}

func (l *ledger) recordWorkload(h workloadWritten) {
	p := h.copy
	if h.Type == store.Deleted {
		p.version, p.template, p.content, p.replicas, p.available = nil, nil, "", 0, 0
		p.recordCount(l.Now())
		p.removed = l.Now()
		l.setReady(p, false, false)
		return
	}
	if !h.BySerin && h.Subresource != "status" {
		p.foreign, p.disturbed = l.Now(), l.Now()
	}
	switch {
	case h.is > 0:
		p.emptied = time.Time{}
	case h.BySerin && h.was > 0:
		p.emptied = l.Now()
	}
	l.lookAtPods(h.of, p, h.New, h.content)
	if h.content != "" && h.primary {
		l.recordStable(h.of, h.BySerin, h.content)
	}
}

// recordStable records that the primary runs something else.
func (l *ledger) recordStable(r *record, ours bool, content string) {
	switch {
	case !ours:
		r.stable = "" // a user wrote it, and decides what it runs
	case r.run != nil && moving(r.status.Phase) && slices.Contains(r.run.contents, content):
		r.run.promoted, r.stable, r.misled = l.Now(), content, false
	default:
		r.stable = content
	}
}

// lookAtPods records what a Deployment is now.
func (l *ledger) lookAtPods(r *record, p *workloadState, v *store.Version, content_ string) {
	if p.version == nil {
		p.created = l.Now()
	}
	if template := within(v.Content(), "spec")["template"]; !oracle.SameMap(template, p.template) {
		p.template = template
		if content_ == "" && p.content == "" {
			content_ = l.contentOf(v, p == &r.primary)
		}
		if p == &r.target {
			l.rename()
		}
	}
	if content_ != "" {
		l.setContent(p, content_)
	}
	p.version = v
	p.replicas = asked(v)
	l.reckonReady(r, p)
}

// reckonReady records whether a Deployment is ready by the thresholds that hold.
func (l *ledger) reckonReady(r *record, p *workloadState) {
	if p.version == nil {
		return
	}
	v, status := p.version, within(p.version.Content(), "status")
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
		percent = int64(spec.Value.canaryReady)
		if p == &r.primary {
			percent = int64(spec.Value.primaryReady)
		}
	}
	ready := number(status, "observedGeneration", 0) >= v.Generation() && updated >= p.replicas && total <= updated &&
		p.available >= max(updated*percent/100, min(updated, 1))
	l.recordProgress(p, [3]int64{updated, running, p.available}, p.ready.True && (!ready || p.replicas <= 0))
	p.recordCount(l.Now())
	if p.givesUp && !givenUp(v) {
		p.gaveUp = l.Now()
	}
	p.givesUp = givenUp(v)
	l.setReady(p, ready && p.replicas > 0, p.available > 0)
}

// recordProgress records that a workload lost its readiness, or that more of its pods are updated, ready or available.
// What was so for less than the lags of the run no process need have seen.
func (l *ledger) recordProgress(p *workloadState, counts [3]int64, lost bool) {
	seen := l.Now().Sub(p.countedAt) > l.Lag
	rises := seen && (counts[0] > p.counts[0] || counts[1] > p.counts[1] || counts[2] > p.counts[2])
	if rises {
		p.progressed = append(p.progressed, l.Now())
	}
	if lost && l.Now().Sub(p.ready.Since) > l.Lag {
		p.lost = l.Now()
	}
	if counts != p.counts {
		p.counts, p.countedAt = counts, l.Now()
	}
}

// progress is when a workload that a process takes for unready was last ready, or made progress that every process must
// know of; zero: it never was, and never did.
func (p *workloadState) progress(then time.Time) time.Time {
	for i, v := range slices.Backward(p.progressed) {
		if at := v; !at.After(then) {
			p.progressed = p.progressed[i:] // no check needs older ones
			return release.LaterOf(at, p.lost)
		}
	}
	return p.lost
}

// givenUp is true of a Deployment that Kubernetes takes for one that never comes, however many of its pods run.
func givenUp(v *store.Version) bool {
	return slices.ContainsFunc(actors.Items(within(v.Content(), "status")["conditions"]), func(condition map[string]any) bool {
		return condition["reason"] == "ProgressDeadlineExceeded"
	})
}

func (l *ledger) setContent(p *workloadState, name string) {
	if p.content == name {
		return
	}
	p.content = name
	p.contents.Set(name, l.Now())
}

func (l *ledger) setReady(p *workloadState, ready, serves bool) {
	p.ready.Set(ready, l.Now())
	p.Answering.Set(serves, l.Now())
}

// recordConfig looks whether a change of configuration made something else of a Deployment.
func (l *ledger) recordConfig(h oracle.Write) {
	if h.Kind != actors.ConfigMapKind && h.Kind != actors.SecretKind {
		return
	}
	for _, r := range l.releasesOf(h) {
		for _, p := range []*workloadState{&r.target, &r.primary} {
			if p.version == nil {
				continue
			}
			before := p.content
			l.setContent(p, l.contentOf(p.version, p == &r.primary))
			switch {
			case p.content == before:
			case p == &r.primary:
				l.recordStable(r, h.BySerin, p.content)
			default:
				r.configured = l.Now()
			}
		}
	}
}

// contentOf names what a Deployment runs: its containers, and the configuration that they read, by name and content.
// What the primary has is named as the target would have it.
func (l *ledger) contentOf(v *store.Version, primary bool) string {
	template := within(v.Content(), "spec", "template")
	metadata, spec := within(template, "metadata"), within(template, "spec")
	parts := map[string]any{}
	for _, field := range []string{"containers", "initContainers", "volumes"} {
		if spec[field] != nil {
			parts[field] = spec[field]
		}
	}
	parts["version"] = within(metadata, "labels")["version"]
	annotations := map[string]any{}
	for key, value := range within(metadata, "annotations") {
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
	said := string(text)
	for _, ref := range configsIn(template) {
		ref.Key.Namespace = v.Key().Namespace
		name := strings.TrimSuffix(ref.Key.Name, ending)
		if primary {
			said = strings.ReplaceAll(said, `"`+ref.Key.Name+`"`, `"`+name+`"`)
		}
		sum.Write([]byte(name))
		if config := l.World.Server.Peek(ref.Kind, ref.Key); config != nil {
			data, err := json.Marshal([]any{config.Content()["data"], config.Content()["binaryData"]})
			if err != nil {
				return ""
			}
			sum.Write(data)
		}
	}
	sum.Write([]byte(said))
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// configsIn are the places of the ConfigMaps and Secrets that a pod template reads, without a namespace.
func configsIn(template map[string]any) []oracle.ObjectKey {
	var out []oracle.ObjectKey
	add := func(kind schema.GroupKind, holder map[string]any, field string) {
		if name, _ := holder[field].(string); name != "" {
			at := oracle.At(kind, types.NamespacedName{Name: name})
			if !slices.Contains(out, at) {
				out = append(out, at)
			}
		}
	}
	spec := within(template, "spec")
	for _, volume := range actors.Items(spec["volumes"]) {
		add(actors.ConfigMapKind, within(volume, "configMap"), "name")
		add(actors.SecretKind, within(volume, "secret"), "secretName")
		for _, source := range actors.Items(within(volume, "projected")["sources"]) {
			add(actors.ConfigMapKind, within(source, "configMap"), "name")
			add(actors.SecretKind, within(source, "secret"), "name")
		}
	}
	for _, field := range []string{"initContainers", "containers"} {
		for _, container := range actors.Items(spec[field]) {
			for _, from := range actors.Items(container["envFrom"]) {
				add(actors.ConfigMapKind, within(from, "configMapRef"), "name")
				add(actors.SecretKind, within(from, "secretRef"), "name")
			}
			for _, env := range actors.Items(container["env"]) {
				add(actors.ConfigMapKind, within(env, "valueFrom", "configMapKeyRef"), "name")
				add(actors.SecretKind, within(env, "valueFrom", "secretKeyRef"), "name")
			}
		}
	}
	return out
}

// providerless is true of releases whose traffic follows the Services.
func (r *record) providerless() bool { return r.canary.Spec.Provider == canary.ProviderKubernetes }

// equal compares two values of JSON.
