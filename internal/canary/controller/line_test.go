package controller

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Twelve targets change at once and three may move: at no time do more, and all arrive. Watches are late and workers
// look side by side, so that counting stored states alone would let too many start.
func TestNoMoreReleasesMoveThanMay(t *testing.T) {
	const many, most = 12, 3
	var objects []client.Object
	for i := range many {
		c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "town", Name: fmt.Sprintf("c%02d", i), UID: types.UID(fmt.Sprint(i))}}
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: c.Name}
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "5ms", Iterations: 1, Threshold: 1}
		objects = append(objects, c)
	}
	w := newTownWith(t, outbound.Policy{}, release.Limits{Cluster: most}, objects...)
	for _, object := range objects {
		w.untilPhase(t, client.ObjectKeyFromObject(object), flaggerv1.CanaryPhaseInitialized)
	}
	changes, err := w.client.Watch(t.Context(), &flaggerv1.CanaryList{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for _, object := range objects {
		w.kind.deploy(w.canary(t, client.ObjectKeyFromObject(object)))
	}
	moving, waited, ended := map[string]bool{}, 0, 0
	for change := range changes.ResultChan() {
		c, ok := change.Object.(*flaggerv1.Canary)
		if !ok {
			continue
		}
		place := canary.PlaceOf(c)
		delete(moving, c.Name)
		switch {
		case place.Moves:
			moving[c.Name] = true
		case place.Waits:
			waited++
		case c.Status.Phase == flaggerv1.CanaryPhaseSucceeded && c.Status.Serin.Intent == "":
			ended++
		}
		if len(moving) > most {
			t.Fatalf("%d releases move: %v", len(moving), moving)
		}
		if ended == many {
			break
		}
	}
	if waited < many-most {
		t.Errorf("%d waited, of %d that could not start at once", waited, many-most)
	}
}

func standsAt(name, version string, phase flaggerv1.CanaryPhase, queued *flaggerv1.QueuePlace) flaggerv1.Canary {
	c := flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "town", Name: name, ResourceVersion: version}}
	c.Status.Phase = phase
	if queued != nil {
		c.Status.Serin = &flaggerv1.SerinStatus{Queue: queued}
	}
	return c
}

func TestALineKnowsWhatTheCacheDoesNotYet(t *testing.T) {
	limits := release.Limits{Cluster: 1}
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "town", Name: name} }
	rest := flaggerv1.CanaryPhaseSucceeded
	all := []flaggerv1.Canary{standsAt("a", "1", rest, nil), standsAt("b", "2", rest, nil)}
	l := newLine()
	turn := func(name string, pruned bool) bool {
		i := slices.IndexFunc(all, func(c flaggerv1.Canary) bool { return c.Name == name })
		return l.turn(limits, all, key(name), canary.PlaceOf(&all[i]), pruned, noon).Open
	}
	if !turn("a", false) || turn("b", false) {
		t.Fatal("the first who looks takes the place, and the second finds it taken")
	}
	l.settle(key("a"), "", false)
	if !turn("b", false) {
		t.Fatal("a pass that starts nothing gives the place back")
	}
	l.settle(key("b"), "5", false)
	if turn("a", false) {
		t.Fatal("what was written and not seen yet counts")
	}
	all[1] = standsAt("b", "5", flaggerv1.CanaryPhaseProgressing, nil)
	if turn("a", false) {
		t.Fatal("it moves")
	}
	all[1] = standsAt("b", "6", rest, nil)
	if !turn("a", false) {
		t.Fatal("it has ended")
	}
	l.settle(key("a"), "", false)

	// A definition that drops our part of the status: who waits is known to the process alone.
	all = []flaggerv1.Canary{standsAt("a", "7", rest, nil), standsAt("b", "8", flaggerv1.CanaryPhaseProgressing, nil)}
	if turn("a", true) {
		t.Fatal("b moves")
	}
	l.settle(key("a"), "", true)
	all[1] = standsAt("b", "9", rest, nil)
	if next := l.next(limits, all); len(next) != 1 || next[0].Name != "a" {
		t.Fatalf("got %v, want a", next)
	}
	l.settle(key("a"), "", false)
	if next := l.next(limits, all); len(next) != 0 {
		t.Fatalf("nobody waits any more, and got %v", next)
	}
	l.forget(key("b"))
	if len(l.started)+len(l.unwritten) != 0 {
		t.Fatal("something is remembered of releases that nobody waits for")
	}
}

func TestWhoMovesOnLetsOthersStart(t *testing.T) {
	waits, aside := &flaggerv1.QueuePlace{Since: metav1.NewMicroTime(noon)}, &flaggerv1.QueuePlace{Since: metav1.NewMicroTime(noon), Aside: true}
	rest, moves := flaggerv1.CanaryPhaseSucceeded, flaggerv1.CanaryPhaseFinalising
	urgent := standsAt("a", "2", rest, waits)
	urgent.Annotations = map[string]string{canary.PriorityAnnotation: "9"}
	for name, c := range map[string]struct {
		before, after *flaggerv1.Canary
		want          bool
	}{
		"is new":              {nil, new(standsAt("a", "1", moves, nil)), false},
		"starts":              {new(standsAt("a", "1", rest, waits)), new(standsAt("a", "2", moves, nil)), false},
		"ends":                {new(standsAt("a", "1", moves, nil)), new(standsAt("a", "2", rest, nil)), true},
		"goes, moving":        {new(standsAt("a", "1", moves, nil)), nil, true},
		"goes, waiting":       {new(standsAt("a", "1", rest, waits)), nil, true},
		"goes, at rest":       {new(standsAt("a", "1", rest, nil)), nil, false},
		"steps aside":         {new(standsAt("a", "1", rest, waits)), new(standsAt("a", "2", rest, aside)), true},
		"comes back":          {new(standsAt("a", "1", rest, aside)), new(standsAt("a", "2", rest, waits)), false},
		"becomes more urgent": {new(standsAt("a", "1", rest, waits)), &urgent, true},
		"stays":               {new(standsAt("a", "1", moves, nil)), new(standsAt("a", "2", moves, nil)), false},
	} {
		var before, after client.Object
		if c.before != nil {
			before = c.before
		}
		if c.after != nil {
			after = c.after
		}
		if got := movedOn(before, after); got != c.want {
			t.Errorf("one that %s: got %v", name, got)
		}
	}
}
