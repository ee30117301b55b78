package rollout

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	argov1 "github.com/serin-dev/serin/api/argoproj/v1alpha1"
	"github.com/serin-dev/serin/internal/release"
)

// TestScenarios plays the stories of testdata/scenarios; -rewrite writes what happened into them.
//
//	rollout             YAML of a spec: its first revision is deployed without a word (with "told": with all of them;
//	                    with pods=2: of a workload that has so many of its own)
//	edit                YAML laid over the spec
//	problem ...         makes the Rollout impossible to carry out; without more: possible again
//	template x          gives the template another revision, or one that there was; YAML is laid over the spec with it
//	pods ok|bad         all pods become available at once; pods that the newest revision gets do not
//	ready x=2           of the revision x only so many pods are available; x=all: all again
//	ripe x=2            of those, only so many have been ready for long enough; x=all: all again
//	judge phase         is what AnalysisRuns come to from now on
//	experiment phase    is what Experiments come to from now on
//	router serves|lags  says whether it does what it was told; silent: it cannot tell; with "outside": only what is asked for
//	                    is told, by those outside the cluster
//	endpoints late      publishes no change of endpoints any more; published: all at once, as usual; unread: they may not be read;
//	                    canary/x=2: publishes so many of the revision x behind the Service canary
//	turn open|closed    limits how many releases move at once, and says whether this one may start beside the others
//	budget keeps|lets   is what a disruption budget does to pods that are evicted
//	workload pods=3     has that many pods of its own, or another generation=2
//	disable name        is a step plugin that shall not be called
//	status              YAML laid over the status, as people patch it
//	after 10s           lets time pass
//
// After each command passes run until nothing moves. Beside it the same story is played by two processes that die again and
// again between two effects, one of which writes each decision for itself. Both have to come to the same end.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		var w *world
		var killed []*world
		seed := fnv.New64a()
		_, _ = seed.Write([]byte(path))
		chance := rand.New(rand.NewPCG(seed.Sum64(), 0))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "rollout" {
				w, killed = newWorld(argov1.RolloutSpec{}), []*world{newWorld(argov1.RolloutSpec{}), newWorld(argov1.RolloutSpec{})}
				killed[0].hasty = true
			}
			for _, other := range killed {
				other.lives = dying(chance)
				other.do(t, d)
				other.shown = ""
				other.told.Reset()
				other.show()
			}
			w.told.Reset()
			w.do(t, d)
			if d.Cmd == "rollout" && !d.HasArg("told") {
				w.told.Reset()
			}
			before := w.told.String()
			w.told.Reset()
			shown := w.shown
			w.shown = ""
			w.show()
			for _, other := range killed {
				if diff := cmp.Diff(w.told.String(), other.told.String()); diff != "" && !d.HasArg("rerun") {
					t.Fatalf("%s: killed again and again it comes to another end (-living +killed):\n%s", d.Pos, diff)
				}
			}
			w.told.Reset()
			w.told.WriteString(before)
			w.shown = shown
			w.show()
			if w.told.Len() == 0 {
				return "nothing changes\n"
			}
			return w.told.String()
		})
	})
}

// dying kills the process now and then, but not for ever.
func dying(chance *rand.Rand) func(int) (int, bool) {
	deaths := 0
	return func(effects int) (int, bool) {
		if deaths > 30 || chance.IntN(2) == 0 {
			return effects, false
		}
		deaths++
		return chance.IntN(effects + 1), true
	}
}

func (w *world) do(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	overlay := func(into any) {
		if err := yaml.UnmarshalStrict([]byte(d.Input), into); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	word := func() string {
		if len(d.CmdArgs) == 0 {
			return ""
		}
		return d.CmdArgs[0].Key
	}
	w.now = w.now.Truncate(time.Second)
	switch d.Cmd {
	case "rollout":
		overlay(&w.spec)
		if d.HasArg("pods") {
			w.lend(t, d)
		}
	case "edit":
		w.generation++
		overlay(&w.spec)
	case "problem":
		w.problem = strings.TrimSpace(d.Input)
	case "template":
		w.generation++
		w.template = word()
		overlay(&w.spec)
	case "pods":
		if w.bad = word() == "bad"; !w.bad {
			clear(w.ready)
		}
	case "ready":
		for _, arg := range d.CmdArgs {
			limit(t, d, w.ready, arg)
		}
	case "ripe":
		for _, arg := range d.CmdArgs {
			limit(t, d, w.ripe, arg)
		}
	case "judge":
		w.verdict = argov1.AnalysisPhase(word())
	case "experiment":
		w.outcome = argov1.AnalysisPhase(word())
	case "router":
		w.router.Confirmed = map[string]*bool{"serves": new(true), "lags": new(false)}[word()]
		w.router.ExternalLoadBalancer = d.HasArg("outside")
	case "endpoints":
		w.publish(t, d)
	case "turn":
		w.turn = map[string]*release.QueueState{
			"open": {Open: true, InProgress: 1, Limit: 2}, "closed": {Position: 1, Waiting: 1, InProgress: 2, Limit: 2},
		}[word()]
	case "budget":
		w.budget = word() == "keeps"
	case "workload":
		w.lend(t, d)
	case "disable":
		w.disabled = append(w.disabled, word())
	case "status":
		overlay(&w.status)
	case "after":
		by, err := time.ParseDuration(word())
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.until(t, w.now.Add(by))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	w.settle(t)
}

// limit is how many pods of a revision become something, at most.
func limit(t *testing.T, d *datadriven.TestData, limits map[string]int32, arg datadriven.CmdArg) {
	t.Helper()
	hash := "hash-" + arg.Key
	if arg.Vals[0] == "all" {
		delete(limits, hash)
		return
	}
	pods, err := strconv.ParseInt(arg.Vals[0], 10, 32)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	limits[hash] = int32(pods)
}

// publish says what becomes of endpoints.
func (w *world) publish(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "late":
			w.published = w.endpoints()
		case "published":
			w.published, w.unread = nil, false
		case "unread":
			w.unread = true
		default:
			service, revision, _ := strings.Cut(arg.Key, "/")
			n, err := strconv.ParseInt(arg.Vals[0], 10, 32)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.published[service]["hash-"+revision] = int32(n)
		}
	}
}

func (w *world) lend(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	if w.workload == nil {
		w.workload = &WorkloadScale{Generation: "1", Scalable: true}
	}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "generation":
			w.workload.Generation = arg.Vals[0]
		case "pods":
			var pods int32
			if _, err := fmt.Sscan(arg.Vals[0], &pods); err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.workload.Spec = pods
		}
	}
}
