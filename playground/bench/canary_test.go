package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// asked is what the played releases are to do.
var asked = settings{steps: 2, interval: 10 * time.Second}

var began = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a moment so many milliseconds after the beginning.
func at(milliseconds int) time.Time {
	return began.Add(time.Duration(milliseconds) * time.Millisecond)
}

func observed(version string, replicas, available int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	d.Spec.Replicas = &replicas
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: version}}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: available}
	return d
}

func status(phase string, window, drainUntil int) canaryStatus {
	s := canaryStatus{Phase: phase}
	if window > 0 {
		s.Serin.Window = &struct {
			Start metav1.MicroTime `json:"start"`
		}{metav1.NewMicroTime(at(window))}
	}
	if drainUntil > 0 {
		until := metav1.NewMicroTime(at(drainUntil))
		s.Serin.DrainUntil = &until
	}
	return s
}

// played is a release of two windows of 10 s each with a drain of 5 s.
func played() *canaryTimeline {
	t := &canaryTimeline{}
	t.observeTarget(at(-900), observed(oldVersion, 1, 1))
	t.observePrimary(at(-900), observed(oldVersion, 1, 1))
	t.observeCanary(at(-500), status(initialized, 0, 0))
	t.patched = at(0)
	t.observeTarget(at(5), observed(newVersion, 0, 0))
	t.observeCanary(at(100), status(progressing, 0, 0))
	t.observeTarget(at(120), observed(newVersion, 1, 0))
	t.observeTarget(at(1120), observed(newVersion, 1, 1))
	t.observeTarget(at(1200), observed(newVersion, 1, 1))
	t.observeCanary(at(1153), status(progressing, 1150, 0))
	t.observeCanary(at(5000), status(progressing, 1150, 0)) // gates were written: no new window
	t.observeCanary(at(11180), status(progressing, 11170, 0))
	t.observePrimary(at(21210), observed(newVersion, 1, 0))
	t.observeCanary(at(21215), status("Promoting", 0, 0))
	t.observePrimary(at(22410), observed(newVersion, 1, 1))
	t.observeCanary(at(22450), status(finalising, 0, 27440))
	t.observeTarget(at(27460), observed(newVersion, 0, 0))
	t.observeCanary(at(27500), status(succeeded, 0, 0))
	t.observeCanary(at(29000), status(succeeded, 0, 0))
	return t
}

func TestTimeIsDividedByWhoTookIt(t *testing.T) {
	got, err := played().breakdown(asked)
	if err != nil {
		t.Fatal(err)
	}
	want := timeBreakdown{
		Total: 27500 * time.Millisecond, Windows: 20 * time.Second, Cluster: 2200 * time.Millisecond, Drain: 5 * time.Second, Lateness: 300 * time.Millisecond,
		Noticing: 100 * time.Millisecond, Starting: 50 * time.Millisecond, Stepping: 60 * time.Millisecond, Promoting: 30 * time.Millisecond, Ending: 60 * time.Millisecond,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if sum := got.Noticing + got.Starting + got.Stepping + got.Promoting + got.Ending; sum != got.Lateness {
		t.Errorf("the pieces of the lateness are %s together, it is %s", sum, got.Lateness)
	}
}

func TestAReleaseThatCannotBeMeasuredSaysWhy(t *testing.T) {
	rolledBack := played()
	rolledBack.lastPhase, rolledBack.failedChecks = failed, 5
	unwatched := played()
	unwatched.canaryReady = time.Time{}
	for _, test := range []struct {
		name string
		of   *canaryTimeline
		want string
	}{
		{"rolled back", rolledBack, "phase Failed with 5 failed checks"},
		{"unwatched", unwatched, "a watch missed a part of it"},
	} {
		_, err := test.of.breakdown(asked)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want one that says %q", test.name, err, test.want)
		}
	}
}

// playedByFlagger is a release of two windows of 10 s each, by a controller that acts every ten seconds.
func playedByFlagger() *canaryTimeline {
	t := &canaryTimeline{ofFlagger: true}
	t.observeTarget(at(-900), observed(oldVersion, 1, 1))
	t.observePrimary(at(-900), observed(oldVersion, 1, 1))
	t.observeCanary(at(-500), canaryStatus{Phase: initialized})
	t.patched = at(0)
	t.observeTarget(at(5), observed(newVersion, 0, 0))
	t.observeTarget(at(3980), observed(newVersion, 1, 0))
	t.observeCanary(at(4000), canaryStatus{Phase: progressing})
	t.observeTarget(at(5180), observed(newVersion, 1, 1))
	t.observeCanary(at(10000), canaryStatus{Phase: progressing, CanaryWeight: 10})
	t.observeCanary(at(10500), canaryStatus{Phase: progressing, CanaryWeight: 10}) // a failed check, for example
	t.observeCanary(at(20000), canaryStatus{Phase: progressing, CanaryWeight: 20})
	t.observePrimary(at(30000), observed(newVersion, 1, 0))
	t.observeCanary(at(30010), canaryStatus{Phase: "Promoting", CanaryWeight: 20})
	t.observePrimary(at(31200), observed(newVersion, 1, 1))
	t.observeCanary(at(40000), canaryStatus{Phase: finalising})
	t.observeTarget(at(49990), observed(newVersion, 0, 0))
	t.observeCanary(at(50000), canaryStatus{Phase: succeeded})
	return t
}

func TestTheTimeOfAReleaseByFlaggerIsDivided(t *testing.T) {
	got, err := playedByFlagger().breakdown(asked)
	if err != nil {
		t.Fatal(err)
	}
	want := timeBreakdown{
		Total: 50 * time.Second, Windows: 20 * time.Second, Cluster: 2400 * time.Millisecond, Lateness: 27600 * time.Millisecond,
		Noticing: 4 * time.Second, Starting: 4800 * time.Millisecond, Promoting: 18800 * time.Millisecond,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestADeploymentIsReadyWhenItsNewestPodsAre(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   bool
	}{
		{"all there", func(*appsv1.Deployment) {}, true},
		{"change not seen by its controller", func(d *appsv1.Deployment) { d.Generation = 3 }, false},
		{"pods of the old template", func(d *appsv1.Deployment) { d.Status.Replicas = 2 }, false},
		{"pods not made", func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 0 }, false},
		{"pods not available", func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 0 }, false},
	} {
		d := observed(newVersion, 1, 1)
		test.change(d)
		if got := isDeploymentReady(d); got != test.want {
			t.Errorf("%s: ready is %t, want %t", test.name, got, test.want)
		}
	}
}
