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

// TestScenarios runs the scenarios in testdata/scenarios; -rewrite writes the actual output into them.
//
//	rollout             YAML of a spec: its first revision is deployed without output (with the argument verbose: with all
//	                    output; with pods=2: of a workload with that number of pods)
//	edit                YAML merged into the spec
//	problem ...         makes the spec invalid; without a text: valid again
//	templates ...       sets the reason why a template of the analyses may not be read; without a text: all may be read
//	template x          sets another, or an earlier, revision of the template; YAML is merged into the spec
//	pods ok|bad         ok: all pods become available immediately; bad: those of the newest revision do not
//	ready x=2           at most that many pods of the revision x are available; x=all: all
//	ripe x=2            at most that many of them have been ready for long enough; x=all: all
//	judge phase         sets the result of AnalysisRuns from now on
//	experiment phase    sets the result of Experiments from now on
//	router serves|lags  sets whether the router has applied the weights; silent: it cannot report that; with "outside":
//	                    only external load balancers report
//	endpoints late      publishes no further change of endpoints; published: all immediately, the default; unread: no
//	                    permission to read them; canary/x=2: publishes that many of the revision x behind the Service canary
//	turn open|closed    limits the number of concurrent releases, and sets whether this one may start
//	budget keeps|lets   sets whether a disruption budget protects pods from eviction
//	workload pods=3     sets the number of pods of the workload, or with generation=2 its generation
//	plugin name         configures a step plugin; YAML describes its behavior, see pluginBehavior. disabled: its steps are
//	                    skipped; refused: it cannot be called; lost: it is no longer configured
//	router-plugin name  configures a router plugin; YAML describes its behavior, see routerBehavior. refused: it cannot be called
//	status              YAML merged into the status, as users patch it
//	after 10s           advances the time
//
// After each command, the Rollout is reconciled until nothing changes. The same scenario also runs in two processes that
// are repeatedly stopped between two effects, one of which writes each decision separately. All must reach the same state,
// with the same events, except after a command with the argument rerun: its calls of plugins are repeated in the other processes.
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
				other.lives = stopAtRandom(chance)
				other.runCommand(t, d)
				other.shown = ""
				other.events.Reset()
				other.printState()
			}
			w.events.Reset()
			w.runCommand(t, d)
			if d.Cmd == "rollout" && !d.HasArg("verbose") {
				w.events.Reset()
			}
			before := w.events.String()
			w.events.Reset()
			shown := w.shown
			w.shown = ""
			w.printState()
			for _, other := range killed {
				if diff := cmp.Diff(w.events.String(), other.events.String()); diff != "" && !d.HasArg("rerun") {
					t.Fatalf("%s: repeatedly stopped, it reaches another state (-running +stopped):\n%s", d.Pos, diff)
				}
			}
			w.events.Reset()
			w.events.WriteString(before)
			w.shown = shown
			w.printState()
			if w.events.Len() == 0 {
				return "nothing changes\n"
			}
			return w.events.String()
		})
	})
}

// stopAtRandom stops the process at random, at most a limited number of times.
func stopAtRandom(chance *rand.Rand) func(int) (int, bool) {
	deaths := 0
	return func(effects int) (int, bool) {
		if deaths > 30 || chance.IntN(2) == 0 {
			return effects, false
		}
		deaths++
		return chance.IntN(effects + 1), true
	}
}

func (w *world) runCommand(t *testing.T, d *datadriven.TestData) {
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
			w.setWorkload(t, d)
		}
	case "edit":
		w.generation++
		overlay(&w.spec)
	case "problem":
		w.problem = strings.TrimSpace(d.Input)
	case "templates":
		w.unreadableTemplate = strings.TrimSpace(d.Input)
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
			setPodLimit(t, d, w.ready, arg)
		}
	case "ripe":
		for _, arg := range d.CmdArgs {
			setPodLimit(t, d, w.readyLongEnough, arg)
		}
	case "judge":
		w.verdict = argov1.AnalysisPhase(word())
	case "experiment":
		w.outcome = argov1.AnalysisPhase(word())
	case "router":
		w.observedRoute.Confirmed = map[string]*bool{"serves": new(true), "lags": new(false)}[word()]
		w.observedRoute.ExternalLoadBalancer = d.HasArg("outside")
	case "endpoints":
		w.setEndpoints(t, d)
	case "turn":
		w.queueSlot = map[string]*release.QueueState{
			"open": {Open: true, InProgress: 1, Limit: 2}, "closed": {Position: 1, Waiting: 1, InProgress: 2, Limit: 2},
		}[word()]
	case "budget":
		w.budget = word() == "keeps"
	case "workload":
		w.setWorkload(t, d)
	case "plugin":
		w.configurePlugin(t, d)
	case "router-plugin":
		w.configureRouterPlugin(t, d)
	case "status":
		overlay(&w.status)
	case "after":
		by, err := time.ParseDuration(word())
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		w.advanceTo(t, w.now.Add(by))
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	w.settle(t)
}

// setPodLimit sets the maximum number of pods of a revision that reach a state.
func setPodLimit(t *testing.T, d *datadriven.TestData, limits map[string]int32, arg datadriven.CmdArg) {
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

// setEndpoints determines which endpoints are published.
func (w *world) setEndpoints(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "late":
			w.outdatedEndpoints = w.endpoints()
		case "published":
			w.outdatedEndpoints, w.endpointsUnreadable = nil, false
		case "unread":
			w.endpointsUnreadable = true
		default:
			service, revision, _ := strings.Cut(arg.Key, "/")
			n, err := strconv.ParseInt(arg.Vals[0], 10, 32)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			w.outdatedEndpoints[service]["hash-"+revision] = int32(n)
		}
	}
}

func (w *world) setWorkload(t *testing.T, d *datadriven.TestData) {
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
			w.workload.SpecReplicas = pods
		}
	}
}
