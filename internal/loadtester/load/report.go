package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/serin-dev/serin/internal/outbound"
)

const (
	// maxKinds bounds the different statuses and errors that are told apart; further ones are others.
	maxKinds = 32
	// growth is the ratio of one bucket of latencies to the one before, and so the error of a percentile.
	growth = 1.02
)

// report is what came of many requests. However many they are, it takes the same memory.
type report struct {
	took time.Duration

	mu               sync.Mutex
	count            int
	fastest, slowest time.Duration
	sum              time.Duration
	buckets          map[int]int // by the logarithm of the latency
	statuses, errors map[string]int
}

func newReport() *report {
	return &report{buckets: map[int]int{}, statuses: map[string]int{}, errors: map[string]int{}}
}

// add counts one request.
func (r *report) add(latency time.Duration, status string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if err != nil {
		tally(r.errors, outbound.RedactError(err).Error())
		return
	}
	tally(r.statuses, status)
	r.sum += latency
	if len(r.buckets) == 0 || latency < r.fastest {
		r.fastest = latency
	}
	r.slowest = max(r.slowest, latency)
	r.buckets[bucketOf(latency)]++
}

func tally(kinds map[string]int, kind string) {
	if _, known := kinds[kind]; !known && len(kinds) >= maxKinds {
		kind = "others"
	}
	kinds[kind]++
}

func bucketOf(latency time.Duration) int {
	return int(math.Log(float64(max(latency, time.Microsecond))) / math.Log(growth))
}

// answered is the number of requests that had an answer.
func (r *report) answered() int { return total(r.statuses) }

func total(kinds map[string]int) int {
	sum := 0
	for _, n := range kinds {
		sum += n
	}
	return sum
}

// percentile is a latency that this share of the answers did not exceed.
func (r *report) percentile(share float64) time.Duration {
	wanted := int(math.Ceil(share * float64(r.answered())))
	seen := 0
	for _, bucket := range slices.Sorted(maps.Keys(r.buckets)) {
		if seen += r.buckets[bucket]; seen >= wanted {
			upper := time.Duration(math.Pow(growth, float64(bucket+1)))
			return min(max(upper, r.fastest), r.slowest)
		}
	}
	return r.slowest
}

// show writes the report in the form that scripts look for a line in.
func (r *report) show(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("Summary:")
	line("  Count:\t%d", r.count)
	line("  Total:\t%.4f secs", r.took.Seconds())
	answered := r.answered()
	if answered > 0 {
		line("  Slowest:\t%.4f secs", r.slowest.Seconds())
		line("  Fastest:\t%.4f secs", r.fastest.Seconds())
		line("  Average:\t%.4f secs", r.sum.Seconds()/float64(answered))
	}
	if r.took > 0 {
		line("  Requests/sec:\t%.4f", float64(r.count)/r.took.Seconds())
	}
	if answered > 0 {
		line("\nLatency distribution:")
		for _, share := range []int{10, 25, 50, 75, 90, 95, 99} {
			line("  %d%% in %.4f secs", share, r.percentile(float64(share)/100).Seconds())
		}
		line("\nStatus code distribution:")
		for _, status := range byCount(r.statuses) {
			line("  [%s]\t%d responses", status, r.statuses[status])
		}
	}
	if len(r.errors) > 0 {
		line("\nError distribution:")
		for _, text := range byCount(r.errors) {
			line("  [%d]\t%s", r.errors[text], text)
		}
	}
}

// byCount are the kinds, the most frequent first.
func byCount(kinds map[string]int) []string {
	return slices.SortedFunc(maps.Keys(kinds), func(a, b string) int {
		return cmp.Or(cmp.Compare(kinds[b], kinds[a]), cmp.Compare(a, b))
	})
}
