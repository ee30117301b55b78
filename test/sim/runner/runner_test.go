package runner_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/test/sim/runner"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestASeedDeterminesTheRun: the same seed gives the same trace, line for line.
func TestASeedDeterminesTheRun(t *testing.T) {
	t.Parallel()
	for _, api := range runner.APIs {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				selection := runner.Selection{API: api, Seed: seed + 1, FullTrace: true}
				first, second := runner.Run(selection), runner.Run(selection)
				if diff := cmp.Diff(first.Trace, second.Trace); diff != "" {
					t.Fatalf("seed %d twice (-first +second):\n%s", seed+1, diff)
				}
				if first.Reconciliations != second.Reconciliations || !slices.Equal(first.TookPlace, second.TookPlace) || first.Final != second.Final {
					t.Errorf("seed %d is not the same twice", seed+1)
				}
			}
		})
	}
}

// BenchmarkRuns executes runs one after the other. The processor's time is what counts: other work on the machine
// does not change it.
func BenchmarkRuns(b *testing.B) {
	runner.Run(runner.Selection{}) // compiles the definitions
	before := cpu(b)
	var reconciliations, writes, calls int
	var virtual time.Duration
	seed := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		seed++
		result := runner.Run(runner.Selection{Seed: seed})
		reconciliations, writes, calls, virtual = reconciliations+result.Reconciliations, writes+result.Writes, calls+result.Calls, virtual+result.Virtual
	}
	n := float64(b.N)
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/n, "cpu-ms/op")
	b.ReportMetric(float64(reconciliations)/n, "reconciliations/op")
	b.ReportMetric(float64(writes)/n, "writes/op")
	b.ReportMetric(float64(calls)/n, "calls/op")
	b.ReportMetric(virtual.Minutes()/n, "virtual-min/op")
}

// cpu is the processor's time that this process has used.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
