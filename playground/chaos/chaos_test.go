//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/cluster"
)

// The cluster and the versions under test, which all tests share.
var (
	shared *cluster.Cluster
	built  versions
)

func TestMain(m *testing.M) {
	becomeProgram()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	options := newClusterOptions()
	err := enter(&options)
	if err == nil {
		flag.Parse()
		options.Folder, err = os.MkdirTemp("", "chaos-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(options.Folder)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if shared, built, err = start(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := shared.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestReleasesSurviveFaults injects each kind of fault, and a handover in each phase of a release. Each version of Serin takes over
// releases of the other one.
func TestReleasesSurviveFaults(t *testing.T) {
	s := newStage(t.Context(), shared, built, "chaos", settings{releases: 4, seed: 1, served: 1, simulated: 1}, func(text string) { t.Log(text) })
	if err := runStage(t.Context(), s, t.Output()); err != nil {
		t.Error(err)
	}
}

// recordingStage is a stage without a cluster that records violations.
func recordingStage() *stage {
	s := &stage{clock: clock.RealClock{}, say: func(string) {}, history: &history{states: map[objectKey][]state{}, news: make(chan struct{})}}
	s.leases = newLeaseLog(s.clock, s.violate)
	return s
}

// observeRoute adds a state of the route of an application. Without a primary weight, the weights add up to 100.
func (s *stage) observeRoute(at time.Time, canary int64, primary ...int64) {
	primary = append(primary, 100-canary)
	references := []any{
		map[string]any{"name": "cart-primary", "weight": primary[0]}, map[string]any{"name": "cart-canary", "weight": canary},
	}
	key := objectKey{"HTTPRoute", "cart"}
	route := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"backendRefs": references}}}}}
	s.history.states[key] = append(s.history.states[key], state{at, route})
}

func TestWeightsAreChecked(t *testing.T) {
	began := time.Now()
	for name, test := range map[string]struct {
		good    bool
		observe func(*stage)
		want    int
	}{
		"promotion": {true, func(s *stage) {
			for _, weight := range []int64{0, 20, 40, 60, 0} {
				s.observeRoute(began, weight)
			}
		}, 0},
		"rollback":                            {false, func(s *stage) { s.observeRoute(began, 20); s.observeRoute(began, 0) }, 0},
		"an unplanned weight":                 {true, func(s *stage) { s.observeRoute(began, 30) }, 1},
		"a falling weight":                    {true, func(s *stage) { s.observeRoute(began, 40); s.observeRoute(began, 20) }, 1},
		"a wrong sum":                         {true, func(s *stage) { s.observeRoute(began, 20, 90) }, 1},
		"a bad version passes its first step": {false, func(s *stage) { s.observeRoute(began, 20); s.observeRoute(began, 40) }, 1},
	} {
		s := recordingStage()
		test.observe(s)
		checkWeights(s, &release{app: &app{releaseAPI: canaryAPI, name: "cart"}, version: "v2", good: test.good, startedAt: began})
		if len(s.violations) != test.want {
			t.Errorf("%s: violations %v, want %d", name, s.violations, test.want)
		}
	}
}

func TestWritersAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		act  func(*leaseLog)
		want int
	}{
		"the leader writes":              {func(l *leaseLog) { l.written("a", "v1", "a1"); l.checkWriter("a", "patch") }, 0},
		"a write before the first Lease": {func(l *leaseLog) { l.checkWriter("a", "patch") }, 1},
		"the former leader writes":       {func(l *leaseLog) { l.written("a", "v1", "a1"); l.written("b", "v1", "b1"); l.checkWriter("a", "patch") }, 1},
		"a write after a release":        {func(l *leaseLog) { l.written("a", "v1", "a1"); l.written("a", "v1", ""); l.checkWriter("a", "patch") }, 1},
		"the successor's Lease released": {func(l *leaseLog) { l.written("a", "v1", "a1"); l.written("b", "v1", "b1"); l.written("a", "v1", "") }, 1},
		"a handover": {func(l *leaseLog) {
			l.written("a", "v1", "a1")
			l.written("a", "v1", "")
			l.written("b", "v1", "b1")
			l.checkWriter("b", "patch")
		}, 0},
	} {
		s := recordingStage()
		test.act(s.leases)
		if len(s.violations) != test.want {
			t.Errorf("%s: violations %v, want %d", name, s.violations, test.want)
		}
	}
}

// TestTakeoversBetweenVersionsAreCounted: a handover between processes of one version is none.
func TestTakeoversBetweenVersionsAreCounted(t *testing.T) {
	l := recordingStage().leases
	for i, version := range []string{"current", "current", "previous", "previous", "current", "previous"} {
		l.written("a", version, "")
		l.written("a", version, strconv.Itoa(i))
		l.written("a", version, strconv.Itoa(i)) // a renewal
		if !l.leads(version) {
			t.Errorf("version %s does not lead", version)
		}
	}
	if want := map[string]int{"current": 1, "previous": 2}; !maps.Equal(l.takeovers, want) {
		t.Errorf("takeovers %v, want %v", l.takeovers, want)
	}
	l.written("a", "previous", "")
	if l.leads("previous") {
		t.Error("a version leads that has released the Lease")
	}
}

// TestReplacementsMeetEachPhase: each phase is next once before the first one is next again.
func TestReplacementsMeetEachPhase(t *testing.T) {
	for _, r := range newReplacements(versions{}, rand.New(rand.NewPCG(1, 0))) {
		want := len(canaryAPI.phases) + len(rolloutAPI.phases) - 2 // without the first deployments
		first := r.phases[0]
		for range want {
			r.meetPhase()
		}
		if len(r.met) != want || len(r.phases) != want || r.phases[0] != first {
			t.Errorf("%s: met %v, next %v, want %d phases", r.name, r.met, r.phases, want)
		}
	}
}

// TestTheReportFailsAfterAViolation: the exit code depends on the error.
func TestTheReportFailsAfterAViolation(t *testing.T) {
	s := recordingStage()
	if err := s.report(io.Discard, time.Second); err != nil {
		t.Error(err)
	}
	s.violate("I2", "weights add up to %d", 90)
	if err := s.report(io.Discard, time.Second); err == nil {
		t.Error("a violation is not reported as an error")
	}
}

func TestAPreconditionIsRecognized(t *testing.T) {
	for body, want := range map[string]bool{
		`{"metadata":{"resourceVersion":"7"},"spec":{}}`:                             true,
		`{"kind":"DeleteOptions","preconditions":{"uid":"u","resourceVersion":"7"}}`: true,
		`{"spec":{"resourceVersion":"7"}}`:                                           false,
		`[{"op":"test"}]`:                                                            false,
	} {
		if got := hasPrecondition([]byte(body)); got != want {
			t.Errorf("hasPrecondition(%s) = %t", body, got)
		}
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, appsv1.SchemeGroupVersion)
	for _, test := range []struct {
		object runtime.Object
		want   bool
	}{
		{&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("7")}}, true},
		{&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("u"))}}, false},
		{&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "cart", ResourceVersion: "7"}}, true},
		{&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "cart"}}, false},
	} {
		body, err := runtime.Encode(encoder, test.object)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasPrecondition(body); got != test.want {
			t.Errorf("hasPrecondition(%v) = %t", test.object, got)
		}
	}
}
