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

// TestSeedDeterminesTheRun verifies that the same seed reproduces the same trace, line for line.
func TestSeedDeterminesTheRun(t *testing.T) {
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
				if first.Reconciliations != second.Reconciliations || !slices.Equal(first.Occurred, second.Occurred) || first.FinalState != second.FinalState {
					t.Errorf("seed %d is not reproducible", seed+1)
				}
			}
		})
	}
}

// BenchmarkRuns executes runs one after another and reports the CPU time, which other load on the machine does not change.
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

// cpu returns the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
