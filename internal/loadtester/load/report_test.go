package load

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPercentilesMatchTheSortedLatencies compares the percentiles with the sorted list of all latencies.
func TestPercentilesMatchTheSortedLatencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		latencies := rapid.SliceOfN(rapid.Int64Range(0, int64(10*time.Minute)), 1, 200).Draw(t, "latencies")
		share := rapid.Float64Range(0.01, 1).Draw(t, "share")
		r := newReport()
		for _, l := range latencies {
			r.add(time.Duration(l), "200", nil)
		}
		got := r.percentile(share)
		slices.Sort(latencies)
		covered := 0
		for _, l := range latencies {
			if time.Duration(l) <= got {
				covered++
			}
		}
		if float64(covered) < share*float64(len(latencies)) {
			t.Fatalf("%s covers %d of %d, want a share of %v", got, covered, len(latencies), share)
		}
		rank := int(share * float64(len(latencies)))
		exact := time.Duration(latencies[min(rank, len(latencies)-1)])
		if limit := time.Duration(float64(max(exact, time.Microsecond)) * growth * growth); got > limit {
			t.Fatalf("%s is more than %s, want about %s", got, limit, exact)
		}
	})
}

func TestSizeOfAReportIsBounded(t *testing.T) {
	r := newReport()
	for i := range 10_000 {
		r.add(time.Duration(i)*time.Millisecond, fmt.Sprint(i), nil)
		r.add(0, "", errors.New(fmt.Sprint("dial http://user:hunter2@host/", i)))
	}
	var out bytes.Buffer
	r.write(&out)
	if lines := strings.Count(out.String(), "\n"); lines > 2*maxCategories+30 || strings.Contains(out.String(), "hunter2") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	if len(r.buckets) > 1500 || r.answeredCount() != 10_000 || !strings.Contains(out.String(), "[others]\t9968 responses") {
		t.Errorf("%d buckets, %d answered", len(r.buckets), r.answeredCount())
	}
}
