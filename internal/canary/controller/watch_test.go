package controller

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flaggerv1 "github.com/serin-dev/serin/api/flagger/v1beta1"
	"github.com/serin-dev/serin/internal/outbound"
)

// TestSecretsAreWatchedForConfigTrackingOnly: a process that does not track configuration starts without permission to list
// them.
func TestSecretsAreWatchedForConfigTrackingOnly(t *testing.T) {
	r := New(Parts{})
	for _, tracking := range []bool{true, false} {
		watched := r.watchedKinds(tracking)
		for _, kind := range []string{"Secret", "ConfigMap"} {
			if got := slices.ContainsFunc(watched, func(o client.Object) bool { return o.GetObjectKind().GroupVersionKind().Kind == kind }); got != tracking {
				t.Errorf("with config tracking %v, %s is watched: %v", tracking, kind, got)
			}
		}
	}
}

// TestTheCanariesOfATargetAreRequeuedWhenItIsReleased: the younger of two Canaries with one target does nothing until the older one
// is deleted or has another target.
func TestTheCanariesOfATargetAreRequeuedWhenItIsReleased(t *testing.T) {
	older, younger, web := canaryWithQueries("older", "", ""), canaryWithQueries("younger", "", ""), canaryWithQueries("web", "", "")
	older.Spec.TargetRef.Name, younger.Spec.TargetRef.Name = "cart", "cart"
	cluster := newTestCluster(t, outbound.Policy{AllowLoopback: true}, older.DeepCopy(), younger, web)
	older.Status.Phase = flaggerv1.CanaryPhaseSucceeded
	elsewhere, deleting, progressing := older.DeepCopy(), older.DeepCopy(), older.DeepCopy()
	elsewhere.Spec.TargetRef.Name = "web"
	deleting.DeletionTimestamp = &metav1.Time{}
	progressing.Status.Phase = flaggerv1.CanaryPhaseProgressing
	ending := elsewhere.DeepCopy()
	ending.Status.Phase, ending.Status.Serin = flaggerv1.CanaryPhaseProgressing, &flaggerv1.SerinStatus{Shape: "canary/kubernetes/Deployment/cart"}
	ended := ending.DeepCopy()
	ended.Status.Phase = flaggerv1.CanaryPhaseFailed
	for _, tt := range []struct {
		name          string
		before, after client.Object
		want          []string
	}{
		{"created", nil, older, []string{"older", "younger"}},
		{"another phase", older, progressing, []string{"older"}},
		{"another target", older, elsewhere, []string{"older", "younger", "web"}},
		{"the release of its former target ended", ending, ended, []string{"older", "web", "younger"}},
		{"deletion requested", older, deleting, []string{"older", "younger"}},
		{"deleted", older, nil, []string{"older", "younger"}},
	} {
		var got []string
		for _, request := range cluster.reconciler.AffectedReleases(t.Context(), schema.GroupKind{Group: flaggerv1.GroupName, Kind: flaggerv1.CanaryKind}, tt.before, tt.after) {
			got = append(got, request.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s requeues %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestACanaryThatLosesItsTargetHasNoSeriesOfIt: an older Canary gets the same target.
func TestACanaryThatLosesItsTargetHasNoSeriesOfIt(t *testing.T) {
	older, younger := canaryWithQueries("older", "", ""), canaryWithQueries("younger", "", "")
	older.Spec.TargetRef.Name, younger.Spec.TargetRef.Name = "cart", "cart"
	cluster := newTestCluster(t, outbound.Policy{AllowLoopback: true}, younger)
	const series = `serin_canary_phase{name="younger"`
	cluster.waitForPhase(t, client.ObjectKeyFromObject(younger), flaggerv1.CanaryPhaseInitialized)
	cluster.waitFor(t, "the Canary has series", func() (bool, string) {
		output := cluster.allOutput(t)
		return strings.Contains(output, series), output
	})
	if err := cluster.client.Create(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	cluster.waitFor(t, "the Canary waits for the user", func() (bool, string) {
		output := cluster.allOutput(t)
		return strings.Contains(output, `{gate="obstacle",kind="Canary",name="younger"`) && !strings.Contains(output, series), output
	})
}
