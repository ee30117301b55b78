//go:build linux

package e2e_test

import (
	"slices"
	"strings"
	"testing"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
)

// TestCommandsReportAndControlARollout runs two releases: one that waits for user action, is paused, resumed and
// promoted, and one that is aborted, retried and promoted in full.
func TestCommandsReportAndControlARollout(t *testing.T) {
	t.Parallel()
	const namespace = "rollout-commands"
	s := startEnvironment(t, namespace)
	sh := commandRunner{t, shared.Kubeconfig}
	of := func(command string, more ...string) []string {
		return slices.Concat([]string{command, "-n", namespace, "--controller-flags=-namespace=" + namespace}, more)
	}
	s.apply(rolloutManifest(t, "cart", 2, `{canary: {steps: [{setWeight: 50}, {pause: {}}, {setWeight: 100}]}}`))
	s.waitForRolloutPhase("cart", argov1.RolloutPhaseHealthy, "")
	sh.checkOutput(sh.run(codeDone, of("why", "cart")...), "Rollout cart.rollout-commands is idle (Healthy", "The last release was promoted")
	if p := sh.run(codeDone, of("get", "-o", "name")...); p.stdout != "rollout.argoproj.io/cart\n" {
		t.Errorf("want only the name: %s", p)
	}

	// A watch that starts before Serin has observed the new version waits for the release of that version.
	s.releaseVersion("cart", "v2")
	watching := sh.start(of("watch", "rollout/cart", "--plain", "--until", "done")...)
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	table := sh.run(codeDone, of("get", "rollouts")...)
	sh.checkOutput(table, "KIND", "Rollout", "Paused", "50% 2/3", "pause (user)")
	why := sh.run(codeUserAction, of("why", "rollout/cart")...)
	sh.checkOutput(why, "step 2 of 3; the new revision receives 50% of the traffic", "It waits for pause: until the user promotes the rollout", "serin approve rollout/cart pause -n "+namespace, "Then: setWeight: 100.")
	t.Logf("output for the user:\n%s\n%s", table.stdout, why.stdout)
	d := sh.parseDocument(sh.run(codeUserAction, of("why", "cart", "-o", "json")...))
	if d.Release.State != "waits-for-person" || d.Release.Weight != 50 || len(d.Release.Gates) == 0 || d.Release.Gates[0].Opener != "person" {
		t.Errorf("the release is reported as %+v", d.Release)
	}

	sh.run(codeDone, of("pause", "cart")...)
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "manually paused")
	sh.checkOutput(sh.run(codeUserAction, of("why", "cart")...), "It waits for paused: spec.paused is true", "serin resume rollout/cart")
	sh.run(codeUsage, of("pause", "cart")...)
	sh.run(codeDone, of("resume", "cart")...)
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	sh.run(codeDone, of("promote", "cart")...)
	if p := watching.wait(); p.code != codeDone || !strings.Contains(p.stdout, "waits=pause opener=person") || !strings.Contains(p.stdout, namespace+"/rollout/cart Healthy") {
		t.Errorf("the release was promoted: %s", p)
	}
	sh.run(codeUsage, of("promote", "cart")...)

	s.releaseVersion("cart", "v3")
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	sh.run(codeDone, of("deny", "rollout/cart", "pause", "--reason", "not tested")...)
	sh.run(codeFailed, of("watch", "cart", "--plain", "--until", "done")...)
	sh.checkOutput(sh.run(codeFailed, of("why", "cart")...), "The last release was aborted", "serin retry rollout/cart")
	sh.run(codeDone, of("retry", "cart")...)
	s.waitForRolloutPhase("cart", argov1.RolloutPhasePaused, "CanaryPauseStep")
	sh.run(codeUsage, of("approve", "cart", "analysis")...)
	sh.run(codeDone, of("promote", "--full", "cart")...)
	sh.run(codeDone, of("watch", "cart", "--plain", "--until", "promoted")...)
	s.waitForPods("cart", "v3=2")

	// A name that both kinds have requires the kind.
	s.apply(deploymentByHand("cart", 1) + canaryWithSignOff("http://127.0.0.1:1", "http://127.0.0.1:1"))
	if p := sh.run(codeUsage, of("why", "cart")...); !strings.Contains(p.stderr, "cart in namespace "+namespace+" is a Canary and a Rollout: use canary/cart or rollout/cart") {
		t.Errorf("want a message that names both kinds: %s", p)
	}
	sh.run(codeDone, of("why", "rollout/cart")...)
}
