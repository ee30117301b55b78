package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// controller is a program that is measured.
type controller struct {
	// name is the name of its process and log.
	name string
	// isPeer is true for Flagger and Argo Rollouts.
	isPeer bool
	// command returns its arguments, and its environment in addition to the one of the benchmark.
	command func(kubeconfig, prometheus string) (argv, env []string)
}

// serinName is the name of Serin's process and log.
const serinName = "serin"

// serin returns Serin as a controller, with leader election and its default limits.
func serin(s settings) controller {
	return controller{name: serinName, command: func(kubeconfig, prometheus string) (argv, env []string) {
		argv = []string{
			s.serin, "controller", "-kubeconfig", kubeconfig, "-metrics-server", prometheus, "-allow-loopback-hooks", "-mesh-provider", "istio",
			"-enable-leader-election", "-leader-election-namespace", "default", "-drain-delay", drainDelay.String(), "-log-level", "info",
		}
		if s.interval < 10*time.Second {
			argv = append(argv, "-min-analysis-interval", s.interval.String())
		}
		if s.profiles != "" || s.days > 0 {
			argv = append(argv, "-profiling-address", profilingAddress)
		}
		return argv, nil
	}}
}

// peer is the controller from which an API originates: Flagger or Argo Rollouts.
type peer struct {
	// name is the name of the project.
	name string
	// rememberedVersion is the version of the remembered costs.
	rememberedVersion string
	// remembered are costs that were measured earlier on the same kind of machine, by their row in the table.
	remembered map[string]string
}

// metricsServerVariable is the environment variable with the address of the stub of Prometheus, for the program of a peer.
const metricsServerVariable = "BENCH_METRICS_SERVER"

// controller returns the peer as a controller that a program of the user starts. The program is usually a script, and replaces itself
// by the controller, because the usage of its process is measured.
func (p peer) controller(program string) controller {
	return controller{name: strings.ReplaceAll(strings.ToLower(p.name), " ", "-"), isPeer: true, command: func(kubeconfig, prometheus string) (argv, env []string) {
		return []string{program}, []string{"KUBECONFIG=" + kubeconfig, metricsServerVariable + "=" + prometheus}
	}}
}

// peerPrograms are the programs of -peer, by API. It implements flag.Value.
type peerPrograms map[string]string

func (p peerPrograms) String() string { return "" }

func (p peerPrograms) Set(text string) error {
	api, program, _ := strings.Cut(text, "=")
	switch {
	case !slices.ContainsFunc(benchmarkedAPIs, func(a benchmarkedAPI) bool { return a.api == api }) || program == "":
		return fmt.Errorf("it is %q: write canary=PROGRAM or rollout=PROGRAM", text)
	case p[api] != "":
		return fmt.Errorf("there are two programs for API %s: choose one", api)
	}
	p[api] = program
	return nil
}
