//go:build linux

package fidelity_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/serin-dev/serin/playground/build"
	"github.com/serin-dev/serin/playground/cluster"
	"github.com/serin-dev/serin/test/sim/store"
)

var (
	seed      = flag.Uint64("fidelity.seed", 1, "seed of the first sequence")
	sequences = flag.Int("fidelity.sequences", 12, "number of sequences for each kind")
)

// steps is the number of actions of one sequence.
const steps = 40

var (
	shared      *cluster.Cluster
	scheme      = runtime.NewScheme()
	definitions *store.Definitions
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	options := cluster.Options{APIServerOnly: true}
	var gateway, istio string
	prepare := func(ctx context.Context, b *build.Builder) (err error) {
		if gateway, err = b.GatewayCRDs(ctx); err != nil {
			return err
		}
		istio, err = moduleFolder(ctx, b.Repository(), "istio.io/api")
		return err
	}
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := cluster.Enter(&options, func(text string) { fmt.Fprintln(os.Stderr, text) }, prepare); err != nil {
		return fail(err)
	}
	ctx := context.Background()
	if err := prepare(ctx, options.Builder); err != nil {
		return fail(err)
	}
	options.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if options.Folder, err = os.MkdirTemp("", "fidelity-"); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(options.Folder)
	if shared, err = cluster.Start(ctx, options); err != nil {
		return fail(err)
	}
	defer func() {
		if err := shared.Stop(); err != nil {
			fail(err)
		}
	}()
	if err := installCRDs(ctx, filepath.Join(options.Builder.Repository(), "config", "crd"), gateway, filepath.Join(istio, "kubernetes")); err != nil {
		return fail(err)
	}
	return m.Run()
}

// moduleFolder returns the folder of a module on which Serin depends.
func moduleFolder(ctx context.Context, repository, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", name)
	command.Dir = repository
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("download module %s: %w", name, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(output, &found); err != nil {
		return "", fmt.Errorf("download module %s: %w", name, err)
	}
	return found.Dir, nil
}

// installCRDs installs the same CRDs on both servers.
func installCRDs(ctx context.Context, folders ...string) error {
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	var wanted []schema.GroupKind
	for _, k := range kinds {
		wanted = append(wanted, k.gvk.GroupKind())
	}
	var streams [][]byte
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return err
		}
		for _, file := range files {
			stream, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if bytes.Contains(stream, []byte("kind: CustomResourceDefinition")) {
				streams = append(streams, stream)
			}
		}
		if err := shared.ApplyFolder(ctx, folder); err != nil {
			return err
		}
	}
	var err error
	definitions, err = store.Compile(streams, wanted...)
	return err
}

// sides are the two servers that receive the same actions.
type sides struct {
	t           *testing.T
	real, store *side
	kind        kind
	random      *rand.Rand
	namespace   string
	history     []string
}

func newSides(t *testing.T, k kind, seed uint64) *sides {
	t.Helper()
	real, err := client.New(shared.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	server, err := store.New(store.Options{Definitions: definitions, Scheme: scheme, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprintf("%s-%d", strings.ToLower(k.gvk.Kind), seed)
	err = real.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil {
		t.Fatal(err)
	}
	return &sides{
		t: t, kind: k, namespace: namespace, random: rand.New(rand.NewPCG(seed, 0)),
		real: newSide(real), store: newSide(server.Client("user")),
	}
}

// TestFidelity sends the same random sequences of requests to a real API server and to the simulated one, and compares the
// responses and the stored objects.
func TestFidelity(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.gvk.Kind, func(t *testing.T) {
			for i := range uint64(*sequences) {
				s := newSides(t, k, *seed+i)
				for range steps {
					if !s.step() {
						break
					}
				}
			}
		})
	}
}

// step executes one action on both sides and reports whether their outcomes are equal.
func (s *sides) step() bool {
	s.t.Helper()
	a := s.draw()
	s.history = append(s.history, a.String())
	real, simulated := s.real.do(s.t.Context(), s, a), s.store.do(s.t.Context(), s, a)
	diff := cmp.Diff(real, simulated)
	if diff == "" {
		return true
	}
	s.t.Errorf("sequence %s differs (-real +store):\n%s\nerror of real: %v\nerror of store: %v\nafter:\n  %s",
		s.namespace, diff, s.real.last, s.store.last, strings.Join(s.history, "\n  "))
	return false
}
