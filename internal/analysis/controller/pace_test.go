package controller

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestStatusWritesOfARunArePaced(t *testing.T) {
	p, now := newWritePacer(), time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	run := types.NamespacedName{Namespace: "shop", Name: "run"}
	writes := 0
	for end := now.Add(time.Minute); now.Before(end); now = now.Add(time.Millisecond) {
		if p.delay(run, now) == 0 {
			writes++
		}
	}
	if most := writeBurst + 60*writesPerSecond; writes > most || writes < most-1 {
		t.Errorf("%d writes in a minute, want %d", writes, most)
	}
	if wait := p.delay(types.NamespacedName{Name: "other"}, now); wait != 0 {
		t.Errorf("another run waits %s", wait)
	}
	p.delay(run, now)
	if wait := p.delay(run, now); wait <= 0 || wait > time.Second {
		t.Errorf("the next write waits %s", wait)
	}
	p.forget(run)
	p.forget(types.NamespacedName{Name: "other"})
	if len(p.keys()) != 0 {
		t.Errorf("%d runs are known", len(p.keys()))
	}
}
