package borders

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// decisions are the packages that decide. They link no client, and so they can run in a simulation, and in the head of
// a reader.
var decisions = []string{"internal/release", "internal/canary", "internal/rollout", "internal/rollout/pods", "internal/analysis", "internal/experiment"}

// layers lists the packages from the bottom. A package links packages of its own row and of the rows above it in this list, never
// of those below. A folder stands for what is below it, unless that is named itself.
var layers = [][]string{
	{"api", "config", "internal/release"},
	{"internal/canary", "internal/rollout", "internal/analysis", "internal/experiment", "internal/budget", "internal/cachetest", "internal/chat", "internal/endpoints", "internal/expression", "internal/fairshare", "internal/fence", "internal/googlecloud", "internal/jsontree", "internal/outbound", "internal/readyourwrites", "internal/othercontroller", "internal/queryrunner", "internal/queue", "internal/toolkeys", "internal/waittest", "internal/watching"},
	{"internal/workload", "internal/traffic", "internal/metric", "internal/hook", "internal/alerting", "internal/notification", "internal/telemetry"},
	{"internal/analysis/launch", "internal/analysis/measure", "internal/reconciler"},
	{"internal/canary/controller", "internal/rollout/controller", "internal/analysis/controller", "internal/experiment/controller"},
	{"internal/operator", "internal/cli", "internal/loadtester"},
	{"cmd"},
}

// apart are rooms that must not know the machines, although they are above them: what they do is the same whoever
// decided it.
var apart = []string{
	"internal/budget", "internal/cachetest", "internal/chat", "internal/endpoints", "internal/expression", "internal/fairshare", "internal/fence", "internal/googlecloud", "internal/jsontree", "internal/outbound", "internal/readyourwrites", "internal/othercontroller", "internal/queryrunner", "internal/queue", "internal/reconciler", "internal/toolkeys", "internal/waittest", "internal/watching", "internal/workload", "internal/traffic", "internal/metric", "internal/hook", "internal/alerting", "internal/notification",
	"internal/telemetry", "internal/loadtester",
}

// layerOf is the line of a package in layers, by the longest folder that holds it.
func layerOf(name string) (layer int, found bool) {
	room := ""
	for i, rooms := range layers {
		for _, candidate := range rooms {
			if within(name, candidate) && len(candidate) > len(room) {
				layer, room, found = i, candidate, true
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
			t.Errorf("%s has no place in the list of layers: give it one, or move it", name)
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

func TestWhatActsDoesNotKnowWhoDecides(t *testing.T) {
	for _, p := range listPackages(t) {
		name, ok := p.ours()
		if !ok || !slices.ContainsFunc(apart, func(room string) bool { return within(name, room) }) {
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

func TestReleaseImportsNothingOfOurs(t *testing.T) {
	for _, dep := range listPackages(t)[module+"/internal/release"].Deps {
		if strings.HasPrefix(dep, module) {
			t.Errorf("internal/release links %s: it is the vocabulary of all and imports none", dep)
		}
	}
}

// isPartOf reports whether a package is a part of a state machine: pure itself, and in a folder of its own below it.
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
				t.Errorf("%s links %s: return an Effect or a Probe instead", name, dep)
			}
			if other, ok := strings.CutPrefix(dep, module+"/"); ok && !within(other, "api") && other != "internal/release" && !isPartOf(other, name) {
				t.Errorf("%s links %s: of this module, a state machine knows package release, the API and its own parts only", name, other)
			}
		}
		for _, banned := range []string{"context", "net", "net/http", "os", "os/exec", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog"} {
			if slices.Contains(p.Imports, banned) {
				t.Errorf("%s imports %s: what it needs to know comes in through the snapshot", name, banned)
			}
		}
	}
}

// TestDecisionsReachTheNetworkThroughApimachineryOnly: the API types bring apimachinery along, which brings net/http.
// Nothing else may.
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

// TestTheSimulatedServerKnowsNobody: a server that knew who asks it could not be trusted to answer as a real one.
func TestTheSimulatedServerKnowsNobody(t *testing.T) {
	p, ok := listPackages(t)[module+"/test/sim/store"]
	if !ok {
		t.Fatal("test/sim/store is not there")
	}
	for _, dep := range p.Deps {
		if other, ok := strings.CutPrefix(dep, module+"/"); ok && !within(other, "api") && !within(other, "config") {
			t.Errorf("test/sim/store links %s: of ours it may know the API and its definitions only", other)
		}
	}
	for _, banned := range []string{"math/rand", "math/rand/v2", "crypto/rand", "k8s.io/utils/clock"} {
		if slices.Contains(p.Imports, banned) {
			t.Errorf("test/sim/store imports %s: what it does must follow from its calls alone", banned)
		}
	}
}

// TestPlaygroundStaysOutside: it needs replace lines that must not reach those who install Serin.
func TestPlaygroundStaysOutside(t *testing.T) {
	for _, p := range listPackages(t) {
		if within(p.ImportPath, module+"/playground") || within(p.ImportPath, "k8s.io/kubernetes") {
			t.Errorf("the root module links %s", p.ImportPath)
		}
	}
	if strings.Contains(read(t, "go.mod"), "\nreplace ") {
		t.Error("go.mod has replace lines, with which nobody can go install Serin")
	}
}
