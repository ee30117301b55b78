package controller

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/canary"
	"github.com/serin-dev/serin/internal/outbound"
	"github.com/serin-dev/serin/internal/release"
)

// Twelve targets change at once and three releases may be in progress: there are never more, and all end. Watches are delayed and
// workers run concurrently, so counting stored states alone would let too many start.
func TestTheMaximumOfReleasesInProgressIsNeverExceeded(t *testing.T) {
	const count, limit = 12, 3
	var objects []client.Object
	for i := range count {
		c := &flaggerv1.Canary{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("c%02d", i), UID: types.UID(fmt.Sprint(i))}}
		c.Spec.TargetRef = flaggerv1.TargetReference{APIVersion: "apps/v1", Kind: "Deployment", Name: c.Name}
		c.Spec.Analysis = &flaggerv1.CanaryAnalysis{Interval: "5ms", Iterations: 1, Threshold: 1}
		objects = append(objects, c)
	}
	w := newLimitedTestCluster(t, outbound.Policy{}, release.ConcurrencyLimits{Cluster: limit}, objects...)
	for _, object := range objects {
		w.waitForPhase(t, client.ObjectKeyFromObject(object), flaggerv1.CanaryPhaseInitialized)
	}
	changes, err := w.client.Watch(t.Context(), &flaggerv1.CanaryList{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	for _, object := range objects {
		w.workloads.deploy(w.canary(t, client.ObjectKeyFromObject(object)))
	}
	inProgress, waited, ended := map[string]bool{}, 0, 0
	for change := range changes.ResultChan() {
		c, ok := change.Object.(*flaggerv1.Canary)
		if !ok {
			continue
		}
		place := canary.QueueEntryOf(c)
		delete(inProgress, c.Name)
		switch {
		case place.InProgress:
			inProgress[c.Name] = true
		case place.Waiting:
			waited++
		case c.Status.Phase == flaggerv1.CanaryPhaseSucceeded && c.Status.Serin.Intent == "":
			ended++
		}
		if len(inProgress) > limit {
			t.Fatalf("%d releases are in progress: %v", len(inProgress), inProgress)
		}
		if ended == count {
			break
		}
	}
	if waited < count-limit {
		t.Errorf("%d waited, of %d that could not start at once", waited, count-limit)
	}
}
