package borders

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImageRecipes runs the script with a go command that prints its arguments: the image of the load tester has a base with
// a shell, that of the controller has none.
func TestImageRecipes(t *testing.T) {
	folder := t.TempDir()
	stub := "#!/bin/sh\necho \"base=$KO_DEFAULTBASEIMAGE\" \"$@\"\n"
	if err := os.WriteFile(filepath.Join(folder, "go"), []byte(stub), 0o700); err != nil { // #nosec G306 -- a program
		t.Fatal(err)
	}
	run := func(environment []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "../../hack/image.sh", args...) // #nosec G204 -- a test
		cmd.Env = append([]string{"PATH=" + folder + ":" + os.Getenv("PATH")}, environment...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const repository = "KO_DOCKER_REPO=registry.example.com/serin"
	for _, test := range []struct {
		environment, args []string
		want              []string
	}{
		{[]string{repository}, nil, []string{"base= run github.com/google/ko@", "--image-user=65532", "--tags=0.1.0,latest ./cmd/serin"}},
		{[]string{repository}, []string{"--loadtester"}, []string{"base=docker.io/library/bash:", "--tags=0.1.0,latest ./cmd/serin"}},
		{[]string{repository, "KO_DEFAULTBASEIMAGE=tools:1"}, []string{"--loadtester", "--tags=dev"}, []string{"base=tools:1 ", "--tags=dev ./cmd/serin"}},
	} {
		out, err := run(test.environment, test.args...)
		if err != nil {
			t.Fatalf("%v %v: %v: %s", test.environment, test.args, err, out)
		}
		for _, want := range test.want {
			if !strings.Contains(out, want) || strings.Contains(out, "--loadtester") {
				t.Errorf("%v %v: got %q, want %q in it", test.environment, test.args, out, want)
			}
		}
	}
	if out, err := run(nil, "--loadtester"); err == nil || !strings.Contains(out, "make image-loadtester requires a repository for the image") {
		t.Errorf("without a repository: error %v, output %q", err, out)
	}
}
