package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// watched are the resources whose every change is recorded. If a resource has several versions, any served one may be
// watched: the recorded version is the writer's.
var watched = []schema.GroupVersionResource{
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "events"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"},
	{Group: "networking.istio.io", Version: "v1beta1", Resource: "virtualservices"},
	{Group: "networking.istio.io", Version: "v1beta1", Resource: "destinationrules"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	{Group: "split.smi-spec.io", Version: "v1alpha3", Resource: "trafficsplits"},
	{Group: "projectcontour.io", Version: "v1", Resource: "httpproxies"},
	{Group: "traefik.io", Version: "v1alpha1", Resource: "traefikservices"},
	{Group: "gateway.solo.io", Version: "v1", Resource: "routetables"},
	{Group: "gloo.solo.io", Version: "v1", Resource: "upstreams"},
	{Group: "kuma.io", Version: "v1alpha1", Resource: "trafficroutes"},
	{Group: "apisix.apache.org", Version: "v2", Resource: "apisixroutes"},
	{Group: "appmesh.k8s.aws", Version: "v1beta2", Resource: "virtualnodes"},
	{Group: "appmesh.k8s.aws", Version: "v1beta2", Resource: "virtualservices"},
	{Group: "appmesh.k8s.aws", Version: "v1beta2", Resource: "virtualrouters"},
	{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"},
	{Group: "serving.knative.dev", Version: "v1", Resource: "services"},
}

// otherWriters are field managers other than the controller under test.
var otherWriters = map[string]bool{"case": true, "k8s": true, "kube-controller-manager": true, "kube-apiserver": true, "fakenode": true, "kubectl": true}

type recorder struct {
	dyn    dynamic.Interface
	disco  discovery.DiscoveryInterface
	mu     sync.Mutex
	tracks map[string]*track
	owners map[string]string // cluster-scoped Kind/name -> case
}

// A track is the recording of one case.
type track struct {
	mu      sync.Mutex
	c       *caseFile
	fill    func(string) string
	entries []entry
	changed chan struct{}
	cursor  int
	closed  bool
	started time.Time
	failure string

	rules []rule
	hooks map[string]answer

	statusOf map[string]string // canary -> last line
	revs     map[string]string
	sums     map[string]string // checksums in webhooks
	cookies  []string
	objects  map[string]*objectTrace
	counts   map[string]int64 // event object -> count seen
}

type entry struct {
	kind    string // status, event, object, hook, query, case
	rv      int64
	at      time.Duration
	text    string
	canary  string
	etype   string
	reason  string
	payload any
	status  map[string]any
	deleted bool
}

type objectTrace struct {
	key      string // kind/name
	api      string
	kind     string
	name     string
	versions []objectVersion
	touched  bool
}

type objectVersion struct {
	rv      int64
	body    map[string]any
	deleted bool
}

// add appends an entry. The caller holds t.mu.
func (t *track) add(e entry) {
	if t.closed {
		return
	}
	e.at = time.Since(t.started)
	t.entries = append(t.entries, e)
	close(t.changed)
	t.changed = make(chan struct{})
}

func (r *recorder) track(name string) *track {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tracks[name]
}

func (r *recorder) trackByQuery(q string) *track {
	r.mu.Lock()
	defer r.mu.Unlock()
	var best *track
	for n, t := range r.tracks {
		if containsName(q, n) && (best == nil || len(n) > len(best.c.name)) {
			best = t
		}
	}
	return best
}

// containsName reports whether q contains name, or name with underscores, which some query languages require.
func containsName(q, name string) bool {
	return strings.Contains(q, name) || strings.Contains(q, strings.ReplaceAll(name, "-", "_"))
}

func (r *recorder) watchAll(ctx context.Context) error {
	for _, gvr := range watched {
		l, err := r.dyn.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("%v: %w", gvr, err)
		}
		go r.watchLoop(ctx, gvr, l.GetResourceVersion())
	}
	return nil
}

func (r *recorder) watchLoop(ctx context.Context, gvr schema.GroupVersionResource, rv string) {
	for ctx.Err() == nil {
		w, err := r.dyn.Resource(gvr).Watch(ctx, metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
		if err != nil {
			if ctx.Err() == nil {
				log.Printf("watch %s: %v", gvr.Resource, err)
				time.Sleep(time.Second)
			}
			continue
		}
		for ev := range w.ResultChan() {
			u, ok := ev.Object.(*unstructured.Unstructured)
			if !ok {
				if ctx.Err() == nil {
					log.Printf("watch %s: %v", gvr.Resource, ev.Object)
				}
				break
			}
			rv = u.GetResourceVersion()
			if ev.Type != watch.Bookmark {
				r.seen(gvr, ev.Type, u)
			}
		}
		w.Stop()
	}
}

func (r *recorder) seen(gvr schema.GroupVersionResource, typ watch.EventType, u *unstructured.Unstructured) {
	ns := u.GetNamespace()
	if ns == "" {
		r.mu.Lock()
		ns = r.owners[u.GetKind()+"/"+u.GetName()]
		r.mu.Unlock()
	}
	t := r.track(ns)
	if t == nil {
		return
	}
	rv, _ := strconv.ParseInt(u.GetResourceVersion(), 10, 64)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch gvr.Resource {
	case "events":
		t.seenEvent(rv, typ, u)
	case "canaries":
		t.seenCanary(rv, typ, u)
	default:
		t.seenObject(rv, typ, u)
	}
}

func (t *track) seenEvent(rv int64, typ watch.EventType, u *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(u.Object, "involvedObject", "kind")
	if kind != "Canary" || typ == watch.Deleted {
		return
	}
	name, _, _ := unstructured.NestedString(u.Object, "involvedObject", "name")
	count, ok, _ := unstructured.NestedInt64(u.Object, "count")
	if s, has, _ := unstructured.NestedInt64(u.Object, "series", "count"); has {
		count, ok = s, true
	}
	if !ok || count == 0 {
		count = 1
	}
	before := t.counts[u.GetName()]
	msg, _, _ := unstructured.NestedString(u.Object, "message")
	msg = strings.TrimPrefix(msg, "(combined from similar events): ")
	etype, _, _ := unstructured.NestedString(u.Object, "type")
	reason, _, _ := unstructured.NestedString(u.Object, "reason")
	for ; before < count; before++ {
		t.add(entry{kind: "event", rv: rv, text: msg, canary: name, etype: etype, reason: reason})
	}
	t.counts[u.GetName()] = count
}

func (t *track) rev(hash string) string {
	if hash == "" {
		return "-"
	}
	if _, ok := t.revs[hash]; !ok {
		t.revs[hash] = fmt.Sprintf("rev%d", len(t.revs)+1)
	}
	return t.revs[hash]
}

func (t *track) seenCanary(rv int64, typ watch.EventType, u *unstructured.Unstructured) {
	name := u.GetName()
	if typ == watch.Deleted {
		t.add(entry{kind: "status", rv: rv, canary: name, text: "canary=" + name + " deleted", deleted: true})
		return
	}
	st, _, _ := unstructured.NestedMap(u.Object, "status")
	if st == nil {
		st = map[string]any{}
	}
	num := func(k string) int64 { n, _, _ := unstructured.NestedInt64(st, k); return n }
	str := func(k string) string { s, _, _ := unstructured.NestedString(st, k); return s }
	for _, k := range []string{"sessionAffinityCookie", "primarySessionAffinityCookie", "previousSessionAffinityCookie"} {
		if _, v, ok := strings.Cut(str(k), "="); ok {
			t.cookie(v)
		}
	}
	var line strings.Builder
	fmt.Fprintf(&line, "canary=%s phase=%s weight=%d iterations=%d failedChecks=%d", name, str("phase"), num("canaryWeight"), num("iterations"), num("failedChecks"))
	conds, _, _ := unstructured.NestedSlice(st, "conditions")
	var cs []string
	for _, x := range conds {
		c := x.(map[string]any)
		cs = append(cs, fmt.Sprintf("%v:%v:%v", c["type"], c["status"], c["reason"]))
	}
	if len(cs) > 0 {
		line.WriteString(" condition=" + strings.Join(cs, ","))
	}
	fmt.Fprintf(&line, " applied=%s promoted=%s", t.rev(str("lastAppliedSpec")), t.rev(str("lastPromotedSpec")))
	if m, ok, _ := unstructured.NestedStringMap(st, "trackedConfigs"); ok && len(m) > 0 {
		var ks []string
		for k, v := range m {
			ks = append(ks, k+"="+v)
		}
		sort.Strings(ks)
		line.WriteString(" tracked=" + strings.Join(ks, ","))
	}
	for _, k := range []string{"sessionAffinityCookie", "primarySessionAffinityCookie", "previousSessionAffinityCookie"} {
		if v := str(k); v != "" {
			line.WriteString(" " + k + "=" + v)
		}
	}
	if f := u.GetFinalizers(); len(f) > 0 {
		line.WriteString(" finalizers=" + strings.Join(f, ","))
	}
	if u.GetDeletionTimestamp() != nil {
		line.WriteString(" deleting")
	}
	if t.statusOf[name] == line.String() || str("phase") == "" && len(u.GetFinalizers()) == 0 {
		return
	}
	t.statusOf[name] = line.String()
	t.add(entry{kind: "status", rv: rv, canary: name, text: line.String(), status: st})
}

func (t *track) cookie(v string) {
	if slices.Contains(t.cookies, v) {
		return
	}
	if v != "" {
		t.cookies = append(t.cookies, v)
	}
}

func (t *track) seenObject(rv int64, typ watch.EventType, u *unstructured.Unstructured) {
	if u.GetKind() == "ConfigMap" && u.GetName() == "kube-root-ca.crt" {
		return
	}
	api := ""
	for _, f := range u.GetManagedFields() {
		if f.Subresource != "status" && !otherWriters[f.Manager] {
			api = f.APIVersion
		}
	}
	group := u.GroupVersionKind().Group
	key := u.GetKind() + "/" + u.GetName()
	if group != "" {
		key = u.GetKind() + "." + group + "/" + u.GetName()
	}
	o := t.objects[key]
	if o == nil {
		if typ == watch.Deleted {
			return
		}
		o = &objectTrace{key: key, kind: u.GetKind(), name: u.GetName(), api: u.GetAPIVersion()}
		t.objects[key] = o
	}
	if api != "" {
		o.touched = true
		o.api = api
	}
	if typ == watch.Deleted {
		o.versions = append(o.versions, objectVersion{rv: rv, deleted: true})
		t.add(entry{kind: "object", rv: rv, text: u.GetKind() + "/" + u.GetName(), deleted: true})
		return
	}
	body := normalise(u)
	if n := len(o.versions); n > 0 && !o.versions[n-1].deleted && reflect.DeepEqual(o.versions[n-1].body, body) {
		return
	}
	o.versions = append(o.versions, objectVersion{rv: rv, body: body})
	t.add(entry{kind: "object", rv: rv, text: u.GetKind() + "/" + u.GetName()})
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
