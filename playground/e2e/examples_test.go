//go:build linux

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/cluster"
)

// yamlBlock matches a manifest in a page of the documentation.
var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// kubectl runs kubectl with the environment's namespace as the default namespace.
func (s *environment) kubectl(input string, args ...string) string {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(shared.Kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	config.Contexts[config.CurrentContext].Namespace = s.namespace
	kubeconfig := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		s.t.Fatal(err)
	}
	output, err := shared.Kubectl(s.t.Context(), input, slices.Concat([]string{"--kubeconfig", kubeconfig}, args)...)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, input)
	}
	return output
}

// TestEveryExampleAppliesAsItIsShown applies the manifests of the README and of the documentation to a namespace that Serin
// serves. The API server admits each of them with every field, and Serin reports no invalid plan.
func TestEveryExampleAppliesAsItIsShown(t *testing.T) {
	t.Parallel()
	s := startEnvironment(t, "examples")
	page, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := yamlBlock.FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 2 {
		t.Fatalf("the README shows %d manifests, want at least 2", len(blocks))
	}
	first := s.follow("cart")
	for _, block := range blocks {
		s.kubectl(block[1], "apply", "-f", "-")
	}
	t.Run("the first one takes traffic and releases", func(t *testing.T) { followREADME(t, s, first, string(page)) })

	files, err := filepath.Glob(filepath.Join(repository, "docs", "examples", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d examples, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) { applyExample(t, s, string(text)) })
	}
}

// in returns the same environment for a subtest.
func (s *environment) in(t *testing.T) *environment {
	part := *s
	part.t = t
	return &part
}

// followREADME follows the instructions of the README after its first manifest.
func followREADME(t *testing.T, all *environment, first *release, page string) {
	s := all.in(t)
	first = &release{environment: s, name: first.name, next: first.next, first: first.first, firstEvent: first.firstEvent}
	first.waitForPhase("Initialized")
	for _, made := range []string{"deployment/cart-primary", "service/cart", "service/cart-primary", "service/cart-canary", "httproute/cart"} {
		s.kubectl("", "get", made)
	}
	warm := s.startLoad("shop.example.com", 10)
	waitForRequests(t, warm, 1, "v1")
	warm.Stop()
	l := s.startLoad("shop.example.com", 20)
	waitForRequests(t, l, 1, "v1")
	const change = "kubectl set image deployment/cart cart=serin.dev/demo:v2"
	if !strings.Contains(page, change) {
		t.Fatalf("the README does not contain %q", change)
	}
	r := s.follow("cart")
	s.kubectl("", strings.Fields(change)[1:]...)
	r.waitFor("has weight 5", func(c canary) error {
		if c.Status.CanaryWeight != 5 {
			return fmt.Errorf("another weight")
		}
		return nil
	})
	waitForRequests(t, l, 1, "v2")
	l.Stop()
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
}

// applyExample applies a manifest and checks that Serin reports nothing for its Canaries except that their targets do not
// exist, because most examples contain no Deployment, and nothing for its Rollouts except that an object is not found. An
// invalid plan would be reported instead.
func applyExample(t *testing.T, all *environment, manifest string) {
	s := all.in(t)
	s.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	for _, object := range parseObjects(t, manifest) {
		switch object.GetKind() {
		case "Canary":
			s.checkCanary(object.GetName())
		case "Rollout":
			s.checkRollout(object.GetName())
		}
	}
}

func (s *environment) checkCanary(name string) {
	s.t.Helper()
	s.waitForObject("Serin has reconciled Canary "+name, canaries, name, func(live *unstructured.Unstructured) error {
		if live == nil {
			return fmt.Errorf("it is gone")
		}
		c := convert[canary](s.t, live)
		if blocked := c.condition("Blocked"); blocked.Status == "True" && blocked.Reason != "Target" {
			s.t.Errorf("Serin blocks Canary %s: %s", name, blocked.Message)
		} else if c.Status.Phase == "" && blocked.Status != "True" {
			return fmt.Errorf("it was not reconciled: %s", c)
		}
		return nil
	})
}

// checkRollout waits until Serin has reconciled a Rollout, and until it is healthy if its pods can run here.
func (s *environment) checkRollout(name string) {
	s.t.Helper()
	s.waitForObject("Serin has reconciled Rollout "+name, rollouts, name, func(live *unstructured.Unstructured) error {
		if live == nil {
			return fmt.Errorf("it is gone")
		}
		r := convert[argov1.Rollout](s.t, live)
		runs := strings.HasPrefix(r.Spec.Template.Spec.Containers[0].Image, cluster.DemoImage)
		invalid := strings.HasPrefix(r.Status.Message, string(argov1.RolloutInvalidSpec))
		switch {
		case r.Status.ObservedGeneration != fmt.Sprint(r.Generation), runs && r.Status.Phase != argov1.RolloutPhaseHealthy:
			return fmt.Errorf("it was not reconciled: %s %s", r.Status.Phase, r.Status.Message)
		case invalid && !strings.HasSuffix(r.Status.Message, "not found"):
			s.t.Errorf("Serin rejects Rollout %s: %s", name, r.Status.Message)
		}
		return nil
	})
}
