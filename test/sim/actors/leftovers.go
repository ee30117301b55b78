package actors

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/serin-dev/serin/internal/reconciler"
	"github.com/serin-dev/serin/test/sim"
)

// Leftover reports at the end of a run that a process still has something of an object that is gone.
type Leftover struct {
	Instance string
	What     string
}

// ReportMemory reports of what a process remembers of objects of a kind that are gone.
func ReportMemory(w *sim.World, i *sim.Instance, kind schema.GroupKind, footprint reconciler.Footprint) {
	for _, part := range slices.Sorted(maps.Keys(footprint)) {
		keys := footprint[part]
		slices.SortFunc(keys, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if w.Server.Peek(kind, key) == nil {
				w.Publish(Leftover{i.Name, fmt.Sprintf("%s still remembers %s %s, which is gone", part, kind.Kind, key.Name)})
			}
		}
	}
}

// ReportSeries reports of the series of a process that have a label with the name of an object that is gone. Those that begin with a
// prefix name objects by a label; exists is true of a name that may be there.
func ReportSeries(w *sim.World, i *sim.Instance, series prometheus.Gatherer, prefix, label string, exists func(name string) bool) {
	families, err := series.Gather()
	if err != nil {
		panic(err) // two series of one name: a mistake in the program
	}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				if pair.GetName() == label && !exists(pair.GetValue()) {
					w.Publish(Leftover{i.Name, fmt.Sprintf("%s still has a series of %s, which is gone", family.GetName(), pair.GetValue())})
				}
			}
		}
	}
}
