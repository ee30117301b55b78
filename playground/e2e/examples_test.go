//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/playground/tutorial"
)

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

// TestEveryExampleAppliesAsItIsShown follows the README, and applies the manifests of the documentation to a namespace that Serin
// serves. The API server admits each of them with every field, and Serin reports no invalid plan.
func TestEveryExampleAppliesAsItIsShown(t *testing.T) {
	t.Parallel()
	t.Run("README.md", followREADME) // before the examples, of which some have the same hosts in another namespace
	s := startEnvironment(t, "examples")
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

// readmeSection matches the section of the README whose commands are tested.
var readmeSection = regexp.MustCompile(`(?s)^(.*\n)(## A release in one page\n.*?\n)## Install\n`)

// readmeManifests are the files that the section applies, in namespace default.
var readmeManifests = []string{"docs/examples/canary-gatewayapi.yaml", "docs/examples/canary-bluegreen.yaml", "docs/examples/rollout.yaml", "config/loadtester/loadtester.yaml"}

// followREADME runs the commands of the README as a new user does, and checks what it promises. Its manifests contain names in
// namespace default.
func followREADME(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := readmeSection.FindStringSubmatch(string(page))
	if found == nil {
		t.Fatalf("README.md has no section %s", readmeSection)
	}
	blocks, err := tutorial.Parse(strings.Repeat("\n", strings.Count(found[1], "\n")) + found[2]) // with the numbers of its lines
	if err != nil {
		t.Fatal(err)
	}
	load := slices.IndexFunc(blocks, func(block tutorial.Block) bool { return block.Directive == directiveBackground })
	if load < 1 || blocks[0].Directive != directiveCluster {
		t.Fatalf("README.md prepares no cluster, or sends no requests: %v", blocks)
	}
	s := &environment{t: t, namespace: metav1.NamespaceDefault}
	s.canaries, s.events = recordHistory[canary](t, canaries, s.namespace), recordHistory[corev1.Event](t, events, s.namespace)
	s.startSerin()
	t.Cleanup(func() { // while that Serin runs
		for _, file := range readmeManifests {
			if output, err := shared.Kubectl(context.Background(), "", "delete", "--ignore-not-found", "-n", s.namespace, "-f", filepath.Join(repository, file)); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		}
	})

	r := newReader(t, "README.md", linkPrograms(t))
	r.follow(blocks[1:load])
	for _, created := range []string{"deployment/cart-primary", "service/cart", "service/cart-primary", "service/cart-canary", "httproute/cart"} {
		s.kubectl("", "get", created)
	}
	warm := s.startLoad("shop.example.com", 10)
	waitForRequests(t, warm, 1, "v1")
	warm.Stop()
	l := s.startLoad("shop.example.com", 20)
	r.follow(blocks[load:])
	waitForRequests(t, l, 1, "v2")
	l.Stop()
	if counts := l.Counts(); counts.Failed() != 0 {
		t.Errorf("requests failed: %s", counts)
	}
	for _, primary := range []string{"cart-primary", "worker-primary"} {
		if image := convert[appsv1.Deployment](t, s.get(deployments, primary)).Spec.Template.Spec.Containers[0].Image; image != cluster.DemoImage+":v2" {
			t.Errorf("%s runs %s after the release", primary, image)
		}
	}
	weights := map[int]bool{}
	states, _ := s.canaries.statesFrom(0)
	for _, state := range states {
		weights[state.object.Status.CanaryWeight] = true
	}
	if !weights[5] || !weights[20] || !weights[50] {
		t.Errorf("the weights of the releases were %v, want 5, 20 and 50", weights)
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
