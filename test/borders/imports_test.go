package borders

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// decisions are the packages that decide. They link no client, so that they can run in a simulation, and a reader can follow
// them without one.
var decisions = []string{"internal/release", "internal/canary", "internal/rollout", "internal/rollout/pods", "internal/analysis", "internal/experiment"}

// layers lists the packages from the bottom. A package links packages of its own row and of the rows above it in this list,
// never of those below. A folder includes its subfolders, unless they are listed themselves.
var layers = [][]string{
	{"api", "config", "internal/release"},
	{"internal/canary", "internal/rollout", "internal/analysis", "internal/experiment", "internal/budget", "internal/cachetest", "internal/chat", "internal/encodedcache", "internal/endpoints", "internal/expression", "internal/fairshare", "internal/fence", "internal/googlecloud", "internal/jsontree", "internal/leaktest", "internal/outbound", "internal/plugin", "internal/readyourwrites", "internal/othercontroller", "internal/queryrunner", "internal/queue", "internal/sharding", "internal/toolkeys", "internal/waittest", "internal/watching"},
	{"internal/workload", "internal/traffic", "internal/metric", "internal/hook", "internal/alerting", "internal/notification", "internal/telemetry"},
	{"internal/analysis/launch", "internal/analysis/measure", "internal/reconciler"},
	{"internal/canary/controller", "internal/rollout/controller", "internal/analysis/controller", "internal/experiment/controller"},
	{"internal/operator", "internal/cli", "internal/loadtester", "internal/demoapp"},
	{"cmd"},
}

// sharedByMachines are packages that must not know the state machines, although they are above them: they behave the same for
// both.
var sharedByMachines = []string{
	"internal/budget", "internal/cachetest", "internal/chat", "internal/encodedcache", "internal/endpoints", "internal/expression", "internal/fairshare", "internal/fence", "internal/googlecloud", "internal/jsontree", "internal/leaktest", "internal/outbound", "internal/plugin", "internal/readyourwrites", "internal/othercontroller", "internal/queryrunner", "internal/queue", "internal/reconciler", "internal/sharding", "internal/toolkeys", "internal/waittest", "internal/watching", "internal/workload", "internal/traffic", "internal/metric", "internal/hook", "internal/alerting", "internal/notification",
	"internal/telemetry", "internal/loadtester", "internal/demoapp",
}

// layerOf is the index of a package in layers, by the longest folder that contains it.
func layerOf(name string) (layer int, found bool) {
	folder := ""
	for i, folders := range layers {
		for _, candidate := range folders {
			if within(name, candidate) && len(candidate) > len(folder) {
				layer, folder, found = i, candidate, true
			}
		}
	}
	return layer, found
}

func within(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range listPackages(t) {
		name, ok := p.ours()
		if !ok || !within(name, "internal") && !within(name, "api") && !within(name, "cmd") && !within(name, "config") {
			continue
		}
		own, found := layerOf(name)
		if !found {
			t.Errorf("%s is missing in the list of layers: add it, or move it", name)
			continue
		}
		for _, dep := range p.Imports {
			other, ok := strings.CutPrefix(dep, module+"/")
			if !ok {
				continue
			}
			if layer, found := layerOf(other); !found || layer > own {
				t.Errorf("%s imports %s, which is above it", name, other)
			}
		}
	}
}

func TestSharedPackagesDoNotLinkStateMachines(t *testing.T) {
	for _, p := range listPackages(t) {
		name, ok := p.ours()
		if !ok || !slices.ContainsFunc(sharedByMachines, func(folder string) bool { return within(name, folder) }) {
			continue
		}
		for _, dep := range p.Deps {
			other, ok := strings.CutPrefix(dep, module+"/")
			if ok && (within(other, "internal/canary") || within(other, "internal/rollout") || within(other, "internal/analysis")) {
				t.Errorf("%s links %s: it may know package release only", name, other)
			}
		}
	}
}

func TestReleaseImportsNoPackageOfTheModule(t *testing.T) {
	for _, dep := range listPackages(t)[module+"/internal/release"].Deps {
		if strings.HasPrefix(dep, module) {
			t.Errorf("internal/release links %s: all packages use its types, so it must not import any", dep)
		}
	}
}

// isPartOf reports whether a package is a part of a state machine: a pure package in a folder below it.
func isPartOf(other, machine string) bool {
	return slices.Contains(decisions, other) && within(other, machine)
}

func TestDecisionsLinkNoClient(t *testing.T) {
	for _, name := range decisions {
		p, ok := listPackages(t)[module+"/"+name]
		if !ok {
			continue // not built yet
		}
		for _, dep := range p.Deps {
			if within(dep, "k8s.io/client-go") || within(dep, "sigs.k8s.io/controller-runtime") {
				t.Errorf("%s links %s: return an Effect or a Query instead", name, dep)
			}
			if other, ok := strings.CutPrefix(dep, module+"/"); ok && !within(other, "api") && other != "internal/release" && !isPartOf(other, name) {
				t.Errorf("%s links %s: of this module, a state machine may only link package release, the API and its own parts", name, other)
			}
		}
		for _, banned := range []string{"context", "net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog"} {
			if slices.Contains(p.Imports, banned) {
				t.Errorf("%s imports %s: use the snapshot instead", name, banned)
			}
		}
	}
}

// TestDecisionsReachTheNetworkThroughApimachineryOnly: the API types depend on apimachinery, which imports net/http. No other
// dependency may.
func TestDecisionsReachTheNetworkThroughApimachineryOnly(t *testing.T) {
	all := listPackages(t)
	tolerated := map[string]bool{"net/http": true}
	var tolerate func(name string)
	tolerate = func(name string) {
		if tolerated[name] || all[name].Standard {
			return
		}
		tolerated[name] = true
		for _, dep := range all[name].Imports {
			tolerate(dep)
		}
	}
	for name := range all {
		if within(name, "k8s.io/apimachinery") {
			tolerate(name)
		}
	}
	for _, name := range decisions {
		for _, dep := range all[module+"/"+name].Deps {
			if p := all[dep]; !p.Standard && !tolerated[dep] && slices.Contains(p.Imports, "net/http") {
				t.Errorf("%s links %s, which imports net/http", name, dep)
			}
		}
	}
}

func TestNoProviderLinksASibling(t *testing.T) {
	for _, contract := range []string{"internal/traffic", "internal/metric", "internal/alerting", "internal/hook"} {
		for _, p := range listPackages(t) {
			name, ok := p.ours()
			if !ok || path.Dir(name) != contract || strings.HasSuffix(name, "test") {
				continue
			}
			for _, dep := range p.Deps {
				other, ok := strings.CutPrefix(dep, module+"/")
				if ok && strings.HasPrefix(other, contract+"/") && !within(other, name) {
					t.Errorf("%s links %s: a provider knows its contract and none of its siblings", name, other)
				}
			}
		}
	}
}

// TestTheSimulatedServerDoesNotKnowItsClients: a server that knows its clients could not be trusted to respond like a real
// one.
func TestTheSimulatedServerDoesNotKnowItsClients(t *testing.T) {
	p, ok := listPackages(t)[module+"/test/sim/store"]
	if !ok {
		t.Fatal("test/sim/store does not exist")
	}
	for _, dep := range p.Deps {
		if other, ok := strings.CutPrefix(dep, module+"/"); ok && !within(other, "api") && !within(other, "config") {
			t.Errorf("test/sim/store links %s: of this module, it may only link the API and its definitions", other)
		}
	}
	for _, banned := range []string{"math/rand", "math/rand/v2", "crypto/rand", "k8s.io/utils/clock"} {
		if slices.Contains(p.Imports, banned) {
			t.Errorf("test/sim/store imports %s: its behaviour must depend on its calls only", banned)
		}
	}
}

// TestPlaygroundStaysOutside: it needs replace directives, which must not affect users who install Serin.
func TestPlaygroundStaysOutside(t *testing.T) {
	for _, p := range listPackages(t) {
		if within(p.ImportPath, module+"/playground") || within(p.ImportPath, "k8s.io/kubernetes") {
			t.Errorf("the root module links %s", p.ImportPath)
		}
	}
	if strings.Contains(read(t, "go.mod"), "\nreplace ") {
		t.Error("go.mod has replace directives, with which go install fails")
	}
}
