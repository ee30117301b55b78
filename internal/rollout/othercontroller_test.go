package rollout

import (
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

func TestOnlyAReleaseOfSerinRollsBackWhileAnotherControllerActs(t *testing.T) {
	own := argov1.RolloutStatus{StableRS: "v1", CurrentPodHash: "v2", Serin: &argov1.SerinStatus{Release: "v2"}}
	for _, tt := range []struct {
		name   string
		status func(*argov1.RolloutStatus)
		hash   string
		aborts bool
		want   bool
	}{
		{"goes on", func(*argov1.RolloutStatus) {}, "v2", false, false},
		{"aborted by the user", func(s *argov1.RolloutStatus) { s.Abort = true }, "v2", true, true},
		{"aborted by an analysis", func(*argov1.RolloutStatus) {}, "v2", true, true},
		{"back at the stable revision", func(*argov1.RolloutStatus) {}, "v1", false, true},
		{"another revision", func(*argov1.RolloutStatus) {}, "v3", false, false},
		{"at rest", func(s *argov1.RolloutStatus) { s.StableRS = "v2"; s.Abort = true }, "v2", true, false},
		{"of the other controller", func(s *argov1.RolloutStatus) { s.Serin.Release = "v1"; s.Abort = true }, "v2", true, false},
		{"with definitions that drop what Serin adds", func(s *argov1.RolloutStatus) { s.Serin = nil; s.Abort = true }, "v2", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status := *own.DeepCopy()
			tt.status(&status)
			var d Decision
			d.Status = *status.DeepCopy()
			d.Status.Abort = tt.aborts
			if got := RollsBack(Snapshot{Status: status, Hash: tt.hash}, d); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
