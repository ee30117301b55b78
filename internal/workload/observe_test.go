package workload

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What is remembered of templates must never be seen: after each change an observation is the one of a process that has
// just begun.
func TestARememberedObservationIsTheOneOfAFreshStart(t *testing.T) {
	w := cart(t)
	remove := func(name string) { must(t, w.client.Delete(t.Context(), w.object(deploymentKind, name))) }
	ensure := func() { must(t, w.d.EnsurePrimary(t.Context(), w.canary("cart"), "", "id-1", false)) }
	seen := map[string]bool{}
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		// The first generation again, of another object.
		{"the target is deleted and made again", func() {
			remove("cart")
			w.applyYAML(strings.Replace(cartTarget, "cart:1", "cart:0", 1))
		}},
		{"the primary is made", ensure},
		{"the image", func() { w.image("cart:2") }},
		{"the image, back", func() { w.image("cart:1") }},
		{"the configuration", func() { w.edit(configMapGVK, "env", `{data: {COLOR: green}}`) }},
		{"the copy of the configuration", func() { w.edit(configMapGVK, "env-primary", `{data: {COLOR: green}}`) }},
		{"optional configuration is deleted", func() { must(t, w.client.Delete(t.Context(), w.object(secretGVK, "creds"))) }},
		{"the template of the primary", func() {
			w.edit(deploymentKind, "cart-primary", `{spec: {template: {metadata: {annotations: {flagger-id: "", by: hand}}}}}`)
		}},
		{"the status", func() { w.edit(deploymentKind, "cart", `{status: {replicas: 2}}`) }},
		{"the scale", func() { w.edit(deploymentKind, "cart", `{spec: {replicas: 5}}`) }},
		{"the primary is deleted", func() { remove("cart-primary") }},
		{"the primary is made again", ensure},
		{"the configuration is gone", func() { must(t, w.client.Delete(t.Context(), w.object(configMapGVK, "env"))) }},
		{"the configuration is there again", func() { w.applyYAML(cartEnv) }},
	} {
		change.do()
		fresh := templateWorkload{&Workloads{Client: w.d.Client, Reader: w.d.Reader, Options: w.d.Options}, w.d.templateKind}
		want, err := fresh.Observe(t.Context(), w.canary("cart"))
		must(t, err)
		for _, look := range []string{"first", "second"} {
			if diff := cmp.Diff(want, w.observe()); diff != "" {
				t.Errorf("%s, %s look (-fresh +remembered):\n%s", change.name, look, diff)
			}
		}
		seen[fmt.Sprint(want.Target.Revision, want.PrimaryUpToDate)] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %d different observations: the changes change nothing", len(seen))
	}
}

// BenchmarkDerive is what follows from templates: remembered, and reckoned.
func BenchmarkDerive(b *testing.B) {
	w := newWorld(b)
	for _, text := range []string{cartTarget, cartEnv, cartCreds, cartCanary} {
		w.applyYAML(text)
	}
	c := w.canary("cart")
	must(b, w.d.EnsurePrimary(b.Context(), c, "", "id-1", false))
	seen, err := w.d.readWorkloads(b.Context(), c)
	must(b, err)
	for _, remembers := range []bool{true, false} {
		b.Run(fmt.Sprint("remembers=", remembers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !remembers {
					w.d.Forget(objectKey(c))
				}
				_, err := w.d.deriveState(c, seen)
				must(b, err)
			}
		})
	}
}
