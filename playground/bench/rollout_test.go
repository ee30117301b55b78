package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func set(version string, replicas, available int32) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{}
	s.Spec.Replicas = &replicas
	s.Spec.Template.Spec.Containers = []corev1.Container{{Image: version}}
	s.Status.AvailableReplicas = available
	return s
}

// rolled is a release of two pauses of 10 s each.
func rolled() *rolloutTimeline {
	t := &rolloutTimeline{}
	t.observeReplicaSet(at(-3000), set(oldVersion, 0, 0))
	t.observeRollout(at(-3000), rolloutStatus{Phase: "Progressing", CurrentPodHash: "old"})
	t.observeReplicaSet(at(-2900), set(oldVersion, 1, 1))
	t.observeRollout(at(-900), rolloutStatus{Phase: healthy, CurrentPodHash: "old", StableRS: "old"})
	t.changeTemplate(at(0))
	t.observeRollout(at(100), rolloutStatus{Phase: "Progressing", CurrentPodHash: "new", StableRS: "old"})
	t.observeReplicaSet(at(150), set(newVersion, 0, 0))
	t.observeReplicaSet(at(200), set(newVersion, 1, 0))
	t.observeReplicaSet(at(1200), set(newVersion, 1, 1))
	t.observeRollout(at(1250), rolloutStatus{Phase: "Paused", CurrentPodHash: "new", StableRS: "old", CurrentStepIndex: 1})
	t.observeRollout(at(11300), rolloutStatus{Phase: "Progressing", CurrentPodHash: "new", StableRS: "old", CurrentStepIndex: 2})
	t.observeRollout(at(11310), rolloutStatus{Phase: "Paused", CurrentPodHash: "new", StableRS: "old", CurrentStepIndex: 3})
	t.observeRollout(at(21350), rolloutStatus{Phase: "Progressing", CurrentPodHash: "new", StableRS: "old", CurrentStepIndex: 4})
	t.observeRollout(at(21400), rolloutStatus{Phase: healthy, CurrentPodHash: "new", StableRS: "new", CurrentStepIndex: 4})
	return t
}

func TestTheTimeOfARolloutIsDividedByWhoTookIt(t *testing.T) {
	of := rolled()
	if of.isFinished() {
		t.Error("it is over while the pods of the old version are there")
	}
	of.observeReplicaSet(at(51400), set(oldVersion, 0, 0))
	if !of.isFinished() {
		t.Error("it is not over, though the pods of the old version are gone")
	}
	got, err := of.breakdown(asked)
	if err != nil {
		t.Fatal(err)
	}
	want := timeBreakdown{
		Total: 21400 * time.Millisecond, Windows: 20 * time.Second, Cluster: time.Second, Lateness: 400 * time.Millisecond,
		Noticing: 100 * time.Millisecond, Starting: 150 * time.Millisecond, Stepping: 150 * time.Millisecond,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestARolloutThatCannotBeMeasuredSaysWhy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rolloutTimeline)
		want   string
	}{
		"aborted":     {func(t *rolloutTimeline) { t.status = rolloutStatus{Phase: degraded, Message: "metric failed"} }, "phase Degraded: metric failed"},
		"unwatched":   {func(t *rolloutTimeline) { t.ready = time.Time{} }, "a watch missed a part of it"},
		"never asked": {func(t *rolloutTimeline) { delete(t.pauses, 3) }, "it paused 1 times, and should have 2 times"},
	} {
		of := rolled()
		test.change(of)
		if _, err := of.breakdown(asked); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want one that says %q", name, err, test.want)
		}
	}
}
