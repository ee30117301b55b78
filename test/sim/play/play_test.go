package play_test

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/serin-dev/serin/test/sim/play"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// TestASeedIsAHistory: the same seed plays the same, line for line.
func TestASeedIsAHistory(t *testing.T) {
	t.Parallel()
	for _, api := range play.APIs {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				draw := play.Draw{API: api, Seed: seed + 1, Tell: true}
				first, second := play.History(draw), play.History(draw)
				if diff := cmp.Diff(first.History, second.History); diff != "" {
					t.Fatalf("seed %d twice (-first +second):\n%s", seed+1, diff)
				}
				if first.Passes != second.Passes || !slices.Equal(first.Happened, second.Happened) || first.Final != second.Final {
					t.Errorf("seed %d is not the same twice", seed+1)
				}
			}
		})
	}
}

// BenchmarkHistories plays histories one after the other. The processor's time is what counts: other work on the machine
// does not change it.
func BenchmarkHistories(b *testing.B) {
	play.History(play.Draw{}) // compiles the definitions
	before := cpu(b)
	var passes, writes, calls int
	var virtual time.Duration
	seed := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		seed++
		result := play.History(play.Draw{Seed: seed})
		passes, writes, calls, virtual = passes+result.Passes, writes+result.Writes, calls+result.Calls, virtual+result.Virtual
	}
	n := float64(b.N)
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/n, "cpu-ms/op")
	b.ReportMetric(float64(passes)/n, "passes/op")
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
