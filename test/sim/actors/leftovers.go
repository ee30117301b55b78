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

// Leftover reports at the end of a run that a process still has a metric series or state in memory of an object that is gone.
type Leftover struct {
	Instance string
	What     string
}

// ReportMemory reports the objects of a kind that are gone and that a process still has in memory.
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

// ReportSeries reports the metric series of a process that name an object that is gone in a label. Only series whose name
// begins with the prefix are checked; exists reports whether the label may have a value.
func ReportSeries(w *sim.World, i *sim.Instance, series prometheus.Gatherer, prefix, label string, exists func(name string) bool) {
	families, err := series.Gather()
	if err != nil {
		panic(err) // two series with one name: a programming error
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
