package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/serin-dev/serin/internal/cli"
)

func TestAMisspelledFlagOfTheControllerSuggestsTheFlag(t *testing.T) {
	for flag, want := range map[string]string{
		"-metric-server=http://prometheus": "serin: unknown flag -metric-server: did you mean --metrics-server?\n",
		"--mesh-providr=istio":             "serin: unknown flag --mesh-providr: did you mean --mesh-provider?\n",
	} {
		var out bytes.Buffer
		root := command("serin")
		code := cli.Run(t.Context(), root, arguments(root, []string{"serin", "controller", flag}), &out)
		if code != cli.ExitUsage || out.String() != want {
			t.Errorf("%s: exit code %d, %q, want %q", flag, code, out.String(), want)
		}
	}
}

func TestArgumentsDependOnTheNameOfTheProcess(t *testing.T) {
	for _, c := range []struct{ argv, want []string }{
		{[]string{"/bin/serin", "get", "-A"}, []string{"get", "-A"}},
		{[]string{"/bin/kubectl-serin", "get", "-A"}, []string{"get", "-A"}},
		{[]string{"/bin/kubectl_complete-serin", "get", ""}, []string{"__complete", "get", ""}},
		{[]string{"/bin/hey", "-z", "1s"}, []string{"loadtester", "run", "hey", "-z", "1s"}},
		{[]string{"/bin/serin", "controller", "-namespace", "x"}, []string{"controller", "--namespace", "x"}},
	} {
		if got := arguments(command(c.argv[0]), c.argv); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.argv, got, c.want)
		}
	}
}
