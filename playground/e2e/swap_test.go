//go:build linux

package e2e_test

import (
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/load"
)

var (
	argoProgram = flag.String("argo", "", "path of an Argo Rollouts controller; enables TestSwaps")
	recordTo    = flag.String("record", "", "folder for recordings of the objects of that controller")
)

// swapController starts and stops one of the controllers of a swap.
type swapController struct{ start, stop func(s *environment) }

func serinController() swapController {
	return swapController{
		start: func(s *environment) { s.startSerin("-allow-loopback-hooks") },
		stop: func(s *environment) {
			if err := shared.Terminate(s.t.Context(), s.processName()); err != nil {
				s.t.Fatal(err)
			}
		},
	}
}

func argoController() swapController {
	return swapController{
		start: func(s *environment) {
			argv := []string{
				*argoProgram, "--kubeconfig", shared.Kubeconfig, "--namespaced", "--namespace", s.namespace,
				"--metricsPort", freePort(s.t), "--healthzPort", freePort(s.t),
			}
			if _, err := shared.StartProcess(s.argoProcessName(), argv, []string{"POD_NAMESPACE=" + s.namespace}); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() {
				if s.t.Failed() {
					s.t.Logf("the end of the log of Argo Rollouts:\n%s", shared.Tail(s.argoProcessName(), 30))
				}
				if err := shared.Kill(s.argoProcessName()); err != nil {
					s.t.Error(err)
				}
			})
		},
		stop: func(s *environment) {
			if err := shared.Terminate(s.t.Context(), s.argoProcessName()); err != nil {
				s.t.Fatal(err)
			}
		},
	}
}

func (s *environment) argoProcessName() string { return "argo-" + s.namespace }

// freePort returns an unused port.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestSwaps replaces Argo Rollouts by Serin in each state, and Serin by Argo Rollouts: the new controller changes nothing and
// continues the release, no pod is restarted and no request is lost.
func TestSwaps(t *testing.T) {
	if *argoProgram == "" {
		t.Skip("set -argo to the path of an Argo Rollouts controller")
	}
	for name, p := range swapStates() {
		t.Run(name+"/there", func(t *testing.T) {
			t.Parallel()
			s := newEnvironment(t, "swap-"+name)
			l := s.bringTo(p, argoController())
			serinController().start(s)
			s.waitForRefusal()
			argoController().stop(s)
			before := s.observedState()
			s.recordState(name)
			s.checkUnchanged(before)
			s.finishRelease(p)
			s.swapControllers(serinController(), argoController())
			s.checkNoRequestLost(l)
		})
		t.Run(name+"/back", func(t *testing.T) {
			t.Parallel()
			s, p := newEnvironment(t, "swap-back-"+name), p.withHost("back-"+p.host)
			l := s.bringTo(p, serinController())
			s.swapControllers(serinController(), argoController())
			s.finishRelease(p)
			s.checkNoRequestLost(l)
		})
	}
}

// bringTo starts a controller and brings a Rollout to a state, under load if it has a route.
func (s *environment) bringTo(p swapState, by swapController) *load.Load {
	s.t.Helper()
	by.start(s)
	s.apply(p.manifests(s.t))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	var l *load.Load
	if p.host != "" {
		l = s.startLoad(p.host, 20)
	}
	p.reach(s)
	p.waitUntilReached(s)
	return l
}

// swapControllers stops one controller and starts the other, and checks that the other one changes nothing.
func (s *environment) swapControllers(from, to swapController) {
	s.t.Helper()
	from.stop(s)
	before := s.observedState()
	to.start(s)
	s.checkUnchanged(before)
}

// waitForRefusal waits for the event that Serin does not act while Argo Rollouts runs.
func (s *environment) waitForRefusal() {
	s.t.Helper()
	s.events.waitForState(s.t, "there is an event that Argo Rollouts acts", 0, func(e state[corev1.Event]) error {
		if e.object.Reason != "LeftToArgoRollouts" {
			return fmt.Errorf("%s: %s", e.object.Reason, e.object.Message)
		}
		return nil
	})
}

func (s *environment) checkNoRequestLost(l *load.Load) {
	s.t.Helper()
	if l == nil {
		return
	}
	lost := slices.DeleteFunc(l.Samples(), func(sample load.Sample) bool { return !sample.IsLost() })
	if len(lost) > 0 {
		const clock = "15:04:05.000"
		s.t.Errorf("requests were lost from %s to %s: %s", lost[0].StartedAt.Format(clock), lost[len(lost)-1].StartedAt.Format(clock), l.Counts())
		for _, object := range s.list(pods) {
			s.t.Log(object.GetName(), toJSON(s.t, object.Object["status"].(map[string]any)["conditions"]))
		}
	}
}

// recordState records the objects of Argo Rollouts, for the tests that run without it.
func (s *environment) recordState(name string) {
	s.t.Helper()
	if *recordTo == "" {
		return
	}
	if err := s.writeRecording(*recordTo, strings.ReplaceAll(name, "/", "-")); err != nil {
		s.t.Fatal(err)
	}
}
