package rollout

import (
	"slices"
	"strings"
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// TestUnreadableFieldsAreReported: invalid quantities are removed and reported, other fields are only reported, and an
// error in the spec is reported in addition.
func TestUnreadableFieldsAreReported(t *testing.T) {
	s := Snapshot{Name: "cart", Hash: "a", ValidationError: "", UnreadableFields: []string{
		"/spec/template/spec/containers/0/resources/limits/example.com~1gpu", "/spec/strategy/canary/steps/1/setWeight",
		"/spec/template/spec/volumes/0/emptyDir/sizeLimit", "/status/replicas",
	}}
	s.Spec.Strategy.Canary = &argov1.CanaryStrategy{}
	for _, problem := range []string{"", "something is wrong"} {
		s.ValidationError = problem
		d := Next(s)
		i := slices.IndexFunc(d.Effects, func(e release.Effect) bool { _, is := e.(UnreadableQuantitiesRemoved); return is })
		if i != 0 {
			t.Fatalf("the first effect is not that amounts can be read: %v", d.Effects)
		}
		mended := d.Effects[0].(UnreadableQuantitiesRemoved)
		if want := []string{s.UnreadableFields[0], s.UnreadableFields[2]}; !slices.Equal(mended.Pointers, want) {
			t.Errorf("taken out: %q, want %q", mended.Pointers, want)
		}
		event, news := EffectEvent(mended)
		if want := "spec.template.spec.containers[0].resources.limits.example.com/gpu, spec.template.spec.volumes[0].emptyDir.sizeLimit. Correct them"; !news || !strings.Contains(event.Message, want) {
			t.Errorf("reported: %q", event.Message)
		}
		if len(d.Events) != 1 || d.Events[0].Message != "spec.strategy.canary.steps[1].setWeight cannot be decoded and is ignored: correct it" || !d.Events[0].Persistent {
			t.Errorf("events: %+v", d.Events)
		}
	}
	s.UnreadableFields = nil
	if d := Next(s); slices.ContainsFunc(d.Effects, func(e release.Effect) bool { _, is := e.(UnreadableQuantitiesRemoved); return is }) {
		t.Errorf("amounts were taken out of a Rollout that can be read: %v", d.Effects)
	}
}
