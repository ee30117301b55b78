package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The cache must not change an observation: after each change it equals the observation of a process that has just started.
func TestACachedObservationEqualsAFreshOne(t *testing.T) {
	w := newCartCluster(t)
	remove := func(name string) { must(t, w.client.Delete(t.Context(), w.object(deploymentKind, name))) }
	ensure := func() { must(t, w.workload.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false)) }
	seen := map[string]bool{}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		// The first generation again, of another object.
		{"the target is recreated", func() {
			remove("cart")
			w.applyYAML(strings.Replace(cartTarget, "cart:1", "cart:0", 1))
		}},
		{"the primary is created", ensure},
		{"the image", func() { w.setImage("cart:2") }},
		{"the image, back", func() { w.setImage("cart:1") }},
		{"the configuration", func() { w.patchYAML(configMapGVK, "env", `{data: {COLOR: green}}`) }},
		{"the copy of the configuration", func() { w.patchYAML(configMapGVK, "env-primary", `{data: {COLOR: green}}`) }},
		{"optional configuration is deleted", func() { must(t, w.client.Delete(t.Context(), w.object(secretGVK, "creds"))) }},
		{"the template of the primary", func() {
			w.patchYAML(deploymentKind, "cart-primary", `{spec: {template: {metadata: {annotations: {flagger-id: "", by: hand}}}}}`)
		}},
		{"the status", func() { w.patchYAML(deploymentKind, "cart", `{status: {replicas: 2}}`) }},
		{"the scale", func() { w.patchYAML(deploymentKind, "cart", `{spec: {replicas: 5}}`) }},
		{"the primary is deleted", func() { remove("cart-primary") }},
		{"the primary is recreated", ensure},
		{"the configuration is deleted", func() { must(t, w.client.Delete(t.Context(), w.object(configMapGVK, "env"))) }},
		{"the configuration is recreated", func() { w.applyYAML(cartEnv) }},
	} {
		change.do()
		fresh := newTemplateWorkload(&Workloads{Client: w.workload.Client, APIReader: w.workload.APIReader, Options: w.workload.Options}, w.workload.templateKind)
		want, err := fresh.Observe(t.Context(), w.canary("cart"))
		must(t, err)
		for _, observation := range []string{"first", "second"} {
			if diff := cmp.Diff(want, w.observe()); diff != "" {
				t.Errorf("%s, %s observation (-fresh +cached):\n%s", change.name, observation, diff)
			}
		}
		seen[fmt.Sprint(want.Target.Revision, want.PrimaryUpToDate)] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %d different observations: the changes change nothing", len(seen))
	}
}

// BenchmarkDeriveState compares the cached with the computed state.
func BenchmarkDeriveState(b *testing.B) {
	w := newFakeCluster(b)
	for _, text := range []string{cartTarget, cartEnv, cartCreds, cartCanary} {
		w.applyYAML(text)
	}
	c := w.canary("cart")
	must(b, w.workload.EnsurePrimary(b.Context(), c, "", "id-1", false))
	seen, err := w.workload.readWorkloads(b.Context(), c)
	must(b, err)
	for _, cached := range []bool{true, false} {
		b.Run(fmt.Sprint("cached=", cached), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !cached {
					w.workload.Forget(objectKey(c))
				}
				_, err := w.workload.deriveState(c, seen)
				must(b, err)
			}
		})
	}
}
