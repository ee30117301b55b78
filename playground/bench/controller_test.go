package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestProgramsOfPeersAreGivenByAPI(t *testing.T) {
	programs := peerPrograms{}
	for _, text := range []string{"canary=/opt/flagger.sh", "rollout=argo.sh --option=1"} {
		if err := programs.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(peerPrograms{"canary": "/opt/flagger.sh", "rollout": "argo.sh --option=1"}, programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"flagger.sh": "write canary=PROGRAM", "canary=": "write canary=PROGRAM", "flagger=flagger.sh": "write canary=PROGRAM", "": "write canary=PROGRAM",
		"canary=another.sh": "two programs for API canary",
	} {
		if err := programs.Set(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want one that contains %q", text, err, want)
		}
	}
}

func TestAPeerIsMeasuredWithItsAPI(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*settings)
		want   string
	}{
		"its API is measured":     {func(*settings) {}, ""},
		"its API is not measured": {func(s *settings) { s.apis = "rollout" }, "-peer is for API canary"},
		"a growing cluster":       {func(s *settings) { s.scale = "100,1000" }, "-peer is not available"},
		"a soak test":             {func(s *settings) { s.days = 1 }, "-peer is not available"},
	} {
		s := settings{releases: 100, steps: 5, interval: 10 * time.Second, idle: time.Minute, apis: "canary,rollout", peers: peerPrograms{"canary": "flagger.sh"}}
		test.change(&s)
		err := s.validate()
		if got := err == nil; got != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, test.want)
		}
	}
}

func TestReleasesInProgressAreMeasuredWithAScale(t *testing.T) {
	for name, test := range map[string]struct {
		scale string
		busy  int
		want  string
	}{
		"with a scale":     {"100", 50, ""},
		"without a scale":  {"", 50, "together with -scale"},
		"a negative count": {"100", -1, "-busy is -1"},
	} {
		s := settings{releases: 100, steps: 5, interval: 10 * time.Second, idle: time.Minute, apis: "canary", scale: test.scale, busy: test.busy}
		err := s.validate()
		if got := err == nil; got != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, test.want)
		}
	}
}

func TestNamespacesContainAHundredReleases(t *testing.T) {
	for number, want := range map[int]string{0: "bench-00", 99: "bench-00", 100: "bench-01", maxReleases - 1: "bench-99"} {
		if got := releaseNamespace(number); got != want {
			t.Errorf("release %d is in namespace %s, want %s", number, got, want)
		}
	}
}

func TestAPeerIsStartedWithWhatItNeeds(t *testing.T) {
	c := rollouts.peer.controller("/opt/argo.sh")
	argv, env := c.command("/run/kubeconfig", "http://127.0.0.1:9090")
	if diff := cmp.Diff([]string{"/opt/argo.sh"}, argv); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"KUBECONFIG=/run/kubeconfig", "BENCH_METRICS_SERVER=http://127.0.0.1:9090"}, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if c.name != "argo-rollouts" {
		t.Errorf("its process and log are called %q", c.name)
	}
}
