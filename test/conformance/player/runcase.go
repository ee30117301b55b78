package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/restmapper"
)

type runner struct {
	*recorder
	mapper      meta.RESTMapper
	base        string // URL of the stub
	waitTimeout int
	waitLimit   int
	out         string
	controller  *controller
}

func newMapper(r *recorder) (meta.RESTMapper, error) {
	groups, err := restmapper.GetAPIGroupResources(r.disco)
	if err != nil {
		return nil, err
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

func (r *runner) begin(c *caseFile) *track {
	name := c.name
	t := &track{
		c: c, changed: make(chan struct{}), started: time.Now(),
		fill: func(s string) string {
			s = strings.ReplaceAll(s, "${METRICS}", r.base+"/t/"+name)
			s = strings.ReplaceAll(s, "${HOOKS}", r.base+"/h/"+name)
			return strings.ReplaceAll(s, "${NAMESPACE}", name)
		},
		rules: append([]rule{}, c.Metrics...), hooks: map[string]answer{},
		statusOf: map[string]string{}, revs: map[string]string{}, sums: map[string]string{}, objects: map[string]*objectTrace{}, counts: map[string]int64{},
	}
	maps.Copy(t.hooks, c.Hooks)
	r.mu.Lock()
	r.tracks[name] = t
	for _, o := range c.ClusterObjects {
		r.owners[o] = name
	}
	r.mu.Unlock()
	return t
}

// run plays one case, from creating its namespace to writing its files.
func (r *runner) run(ctx context.Context, c *caseFile) error {
	t := r.begin(c)
	err := r.play(ctx, t)
	if err != nil {
		t.mu.Lock()
		t.failure = err.Error()
		t.mu.Unlock()
	}
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	if werr := t.write(filepath.Join(r.out, c.name), r.base); werr != nil {
		return werr
	}
	r.stop(ctx, c)
	return err
}

// stop deletes the Canaries, so that a finished case no longer causes load.
func (r *runner) stop(ctx context.Context, c *caseFile) {
	gvr := schema.GroupVersionResource{Group: "flagger.app", Version: "v1beta1", Resource: "canaries"}
	l, err := r.dyn.Resource(gvr).Namespace(c.name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, u := range l.Items {
		_ = r.dyn.Resource(gvr).Namespace(c.name).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		_, _ = r.dyn.Resource(gvr).Namespace(c.name).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
}

func (r *runner) play(ctx context.Context, t *track) error {
	c := t.c
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": c.name}}}
	nsr := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := r.dyn.Resource(nsr).Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "input", "*.yaml"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	if err := r.apply(ctx, t, files); err != nil {
		return fmt.Errorf("input: %w", err)
	}
	for i, s := range c.Steps {
		if err := r.step(ctx, t, s); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, mustJSON(s), err)
		}
	}
	time.Sleep(time.Duration(c.Settle) * time.Second)
	return nil
}

func (r *runner) apply(ctx context.Context, t *track, files []string) error {
	docs, err := manifests(files, t.fill)
	if err != nil {
		return err
	}
	for _, u := range docs {
		if u.GetNamespace() == "" {
			u.SetNamespace(t.c.name)
		}
		m, err := r.mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			return err
		}
		res := r.dyn.Resource(m.Resource)
		b, err := json.Marshal(u.Object)
		if err != nil {
			return err
		}
		force := true
		opt := metav1.PatchOptions{FieldManager: "case", Force: &force}
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			_, err = res.Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.ApplyPatchType, b, opt)
		} else {
			u.SetNamespace("")
			b, _ = json.Marshal(u.Object)
			_, err = res.Patch(ctx, u.GetName(), types.ApplyPatchType, b, opt)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if len(t.c.Simulate) > 0 && u.GetKind() == "Service" {
			time.Sleep(2 * time.Second) // the first revision
		}
	}
	return nil
}

// resource resolves "resource.group/name".
func (r *runner) resource(ref string) (schema.GroupVersionResource, string, bool, error) {
	res, name, ok := strings.Cut(ref, "/")
	if !ok {
		return schema.GroupVersionResource{}, "", false, fmt.Errorf("%q is not resource.group/name", ref)
	}
	plural, group, _ := strings.Cut(res, ".")
	gvr, err := r.mapper.ResourceFor(schema.GroupVersionResource{Group: group, Resource: plural})
	if err != nil {
		return gvr, "", false, err
	}
	gvk, err := r.mapper.KindFor(gvr)
	if err != nil {
		return gvr, "", false, err
	}
	m, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return gvr, "", false, err
	}
	return gvr, name, m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

func (r *runner) step(ctx context.Context, t *track, s step) error {
	mark := func(what string) {
		t.mu.Lock()
		t.add(entry{kind: "case", text: what})
		t.cursor = len(t.entries)
		t.mu.Unlock()
	}
	switch {
	case s.Wait != nil:
		err := r.wait(ctx, t, s.Wait)
		time.Sleep(time.Second) // let the controller complete its reconciliation
		return err
	case s.Sleep > 0:
		time.Sleep(time.Duration(s.Sleep) * time.Second)
		return nil
	case s.Apply != "":
		mark("apply " + s.Apply)
		return r.apply(ctx, t, []string{filepath.Join(t.c.dir, s.Apply)})
	case s.Metrics != nil:
		t.mu.Lock()
		t.rules = append([]rule{}, s.Metrics...)
		t.mu.Unlock()
		mark("metrics " + mustJSON(s.Metrics))
		return nil
	case s.Hook != nil:
		t.mu.Lock()
		t.hooks[s.Hook.Path] = s.Hook.answer
		t.mu.Unlock()
		mark("hook " + mustJSON(s.Hook))
		return nil
	case s.Restart:
		mark("restart the controller")
		r.controller.stop()
		return r.controller.start()
	case s.Delete != "":
		gvr, name, namespaced, err := r.resource(s.Delete)
		if err != nil {
			return err
		}
		mark("delete " + s.Delete)
		if namespaced {
			return r.dyn.Resource(gvr).Namespace(t.c.name).Delete(ctx, name, metav1.DeleteOptions{})
		}
		return r.dyn.Resource(gvr).Delete(ctx, name, metav1.DeleteOptions{})
	case s.Patch != nil:
		gvr, name, _, err := r.resource(s.Patch.Object)
		if err != nil {
			return err
		}
		pt := map[string]types.PatchType{"": types.MergePatchType, "merge": types.MergePatchType, "strategic": types.StrategicMergePatchType, "json": types.JSONPatchType}[s.Patch.Type]
		b := []byte(t.fill(mustJSON(s.Patch.Body)))
		mark("patch " + s.Patch.Object)
		var sub []string
		if s.Patch.Subresource != "" {
			sub = []string{s.Patch.Subresource}
		}
		_, err = r.dyn.Resource(gvr).Namespace(t.c.name).Patch(ctx, name, pt, b, metav1.PatchOptions{FieldManager: "case"}, sub...)
		return err
	}
	return fmt.Errorf("empty step")
}

// wait waits for a matching record after the cursor, and moves the cursor behind it.
func (r *runner) wait(ctx context.Context, t *track, c *condition) error {
	limit := max(c.Timeout, r.waitTimeout)
	if r.waitLimit > 0 && limit > r.waitLimit {
		limit = r.waitLimit
	}
	deadline := time.After(time.Duration(limit) * time.Second)
	times := max(c.Times, 1)
	pos := t.cursor
	for {
		t.mu.Lock()
		ch := t.changed
		for ; pos < len(t.entries); pos++ {
			if c.matches(t.entries[pos]) {
				times--
				if times == 0 {
					t.cursor = pos + 1
					t.mu.Unlock()
					return nil
				}
			}
		}
		t.mu.Unlock()
		select {
		case <-ch:
		case <-deadline:
			return fmt.Errorf("not seen within %d s", limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *condition) matches(e entry) bool {
	if c.Canary != "" && e.canary != c.Canary {
		return false
	}
	num := func(want *int64, key string) bool {
		if want == nil {
			return true
		}
		n, _, _ := unstructured.NestedInt64(e.status, key)
		return n == *want
	}
	switch {
	case c.Event != "":
		return e.kind == "event" && regexp.MustCompile(c.Event).MatchString(e.text)
	case c.Hook != "":
		return e.kind == "hook" && e.text == c.Hook
	case c.Query != "":
		return e.kind == "query" && regexp.MustCompile(c.Query).MatchString(e.text)
	case c.Object != "":
		return e.kind == "object" && e.text == c.Object
	}
	if e.kind != "status" {
		return false
	}
	if c.Deleted || e.deleted {
		return c.Deleted == e.deleted
	}
	phase, _, _ := unstructured.NestedString(e.status, "phase")
	return (c.Phase == "" || c.Phase == phase) && num(c.Weight, "canaryWeight") && num(c.Iterations, "iterations") && num(c.FailedChecks, "failedChecks")
}

func (r *runner) runAll(ctx context.Context, cases []*caseFile, parallel int) int {
	slots := make(chan struct{}, parallel)
	results := make(chan bool)
	for _, c := range cases {
		go func() {
			slots <- struct{}{}
			begin := time.Now()
			err := r.run(ctx, c)
			<-slots
			took := time.Since(begin).Round(time.Second)
			if err != nil {
				fmt.Printf("incomplete %-45s %5v %v\n", c.name, took, err)
			} else {
				fmt.Printf("recorded   %-45s %5v\n", c.name, took)
			}
			results <- err == nil
		}()
		time.Sleep(100 * time.Millisecond)
	}
	bad := 0
	for range cases {
		if !<-results {
			bad++
		}
	}
	return bad
}

func die(err error) {
	log.SetFlags(0)
	log.Println(err)
	os.Exit(2)
}
