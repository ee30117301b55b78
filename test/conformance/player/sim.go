package main

import (
	"context"
	"log"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// knative simulates the serving controller for one namespace: each change of an image becomes a ready revision, and the
// status reports spec.traffic.
func (r *runner) knative(ctx context.Context, ns string) {
	svc := schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
	rev := schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}
	created := map[string]string{} // service -> template
	num := map[string]int{}
	r.poll(ctx, svc, ns, func(u *unstructured.Unstructured) {
		name := u.GetName()
		tpl, _, _ := unstructured.NestedMap(u.Object, "spec", "template")
		traffic, _, _ := unstructured.NestedSlice(u.Object, "spec", "traffic")
		if s := images(tpl); created[name] != s {
			created[name] = s
			num[name]++
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "serving.knative.dev/v1", "kind": "Revision",
				"metadata": map[string]any{"name": revName(name, num[name]), "namespace": ns}, "spec": tpl["spec"],
			}}
			if _, err := r.dyn.Resource(rev).Namespace(ns).Create(ctx, o, metav1.CreateOptions{FieldManager: "case"}); err != nil {
				log.Printf("revision: %v", err)
			}
			st := map[string]any{"status": map[string]any{"observedGeneration": 1, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}
			if _, err := r.dyn.Resource(rev).Namespace(ns).Patch(ctx, o.GetName(), types.MergePatchType, []byte(mustJSON(st)), metav1.PatchOptions{FieldManager: "case"}, "status"); err != nil {
				log.Printf("revision: %v", err)
			}
		}
		latest := revName(name, num[name])
		var shown []any
		for _, x := range traffic {
			e := x.(map[string]any)
			s := map[string]any{"percent": e["percent"]}
			if e["latestRevision"] == true {
				s["latestRevision"], s["revisionName"] = true, latest
			} else {
				s["latestRevision"], s["revisionName"] = false, e["revisionName"]
			}
			shown = append(shown, s)
		}
		if shown == nil {
			shown = []any{map[string]any{"latestRevision": true, "percent": 100, "revisionName": latest}}
		}
		st := map[string]any{"status": map[string]any{"latestCreatedRevisionName": latest, "latestReadyRevisionName": latest, "traffic": shown}}
		old, _, _ := unstructured.NestedFieldNoCopy(u.Object, "status")
		if mustJSON(old) == mustJSON(st["status"]) {
			return
		}
		if _, err := r.dyn.Resource(svc).Namespace(ns).Patch(ctx, name, types.MergePatchType, []byte(mustJSON(st)), metav1.PatchOptions{FieldManager: "case"}, "status"); err != nil {
			log.Printf("knative: %v", err)
		}
	})
}

// gateway simulates the controller of Gateways for one namespace: it accepts each HTTPRoute. Flagger does not wait for that, so no case
// has recorded it; Serin does.
func (r *runner) gateway(ctx context.Context, ns string) {
	routes := schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	r.poll(ctx, routes, ns, func(u *unstructured.Unstructured) {
		refs, _, _ := unstructured.NestedSlice(u.Object, "spec", "parentRefs")
		if reports, _, _ := unstructured.NestedSlice(u.Object, "status", "parents"); len(reports) > 0 {
			return
		}
		reports := make([]any, 0, len(refs))
		for _, ref := range refs {
			reports = append(reports, map[string]any{"controllerName": "example.com/gw", "parentRef": ref, "conditions": []any{map[string]any{
				"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
				"observedGeneration": 1 << 20, // this and each later generation
			}}})
		}
		body := mustJSON(map[string]any{"status": map[string]any{"parents": reports}})
		if _, err := r.dyn.Resource(routes).Namespace(ns).Patch(ctx, u.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "case"}, "status"); err != nil && ctx.Err() == nil {
			log.Printf("gateway: %v", err)
		}
	})
}

// poll visits the objects of a resource repeatedly, until the context ends.
func (r *runner) poll(ctx context.Context, resource schema.GroupVersionResource, ns string, visit func(*unstructured.Unstructured)) {
	for ctx.Err() == nil {
		time.Sleep(300 * time.Millisecond)
		list, err := r.dyn.Resource(resource).Namespace(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
	}
}

func revName(service string, n int) string { return service + "-0000" + string(rune('0'+n)) }

func images(tpl map[string]any) string {
	cs, _, _ := unstructured.NestedSlice(tpl, "spec", "containers")
	var s strings.Builder
	for _, c := range cs {
		v, _, _ := unstructured.NestedString(c.(map[string]any), "image")
		s.WriteString(v + "\n")
	}
	return s.String()
}
