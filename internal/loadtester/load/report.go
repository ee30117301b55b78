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
	// maxCategories bounds the statuses and errors that are counted separately; further ones are counted as "others".
	maxCategories = 32
	// growth is the ratio of a latency bucket to the previous one, and so the relative error of a percentile.
	growth = 1.02
)

// report is the result of many requests. Its size does not depend on their number.
type report struct {
	duration time.Duration

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
		countCategory(r.errors, outbound.RedactError(err).Error())
		return
	}
	countCategory(r.statuses, status)
	r.sum += latency
	if len(r.buckets) == 0 || latency < r.fastest {
		r.fastest = latency
	}
	r.slowest = max(r.slowest, latency)
	r.buckets[bucketIndex(latency)]++
}

func countCategory(counts map[string]int, category string) {
	if _, known := counts[category]; !known && len(counts) >= maxCategories {
		category = "others"
	}
	counts[category]++
}

func bucketIndex(latency time.Duration) int {
	return int(math.Log(float64(max(latency, time.Microsecond))) / math.Log(growth))
}

// answeredCount returns the number of requests that were answered.
func (r *report) answeredCount() int { return total(r.statuses) }

func total(counts map[string]int) int {
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum
}

// percentile returns a latency that this share of the answers, from 0 to 1, did not exceed.
func (r *report) percentile(share float64) time.Duration {
	wanted := int(math.Ceil(share * float64(r.answeredCount())))
	seen := 0
	for _, bucket := range slices.Sorted(maps.Keys(r.buckets)) {
		if seen += r.buckets[bucket]; seen >= wanted {
			upper := time.Duration(math.Pow(growth, float64(bucket+1)))
			return min(max(upper, r.fastest), r.slowest)
		}
	}
	return r.slowest
}

// write writes the report in the format of hey, because scripts search its lines.
func (r *report) write(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("Summary:")
	line("  Count:\t%d", r.count)
	line("  Total:\t%.4f secs", r.duration.Seconds())
	answeredCount := r.answeredCount()
	if answeredCount > 0 {
		line("  Slowest:\t%.4f secs", r.slowest.Seconds())
		line("  Fastest:\t%.4f secs", r.fastest.Seconds())
		line("  Average:\t%.4f secs", r.sum.Seconds()/float64(answeredCount))
	}
	if r.duration > 0 {
		line("  Requests/sec:\t%.4f", float64(r.count)/r.duration.Seconds())
	}
	if answeredCount > 0 {
		line("\nLatency distribution:")
		for _, share := range []int{10, 25, 50, 75, 90, 95, 99} {
			line("  %d%% in %.4f secs", share, r.percentile(float64(share)/100).Seconds())
		}
		line("\nStatus code distribution:")
		for _, status := range sortedByCount(r.statuses) {
			line("  [%s]\t%d responses", status, r.statuses[status])
		}
	}
	if len(r.errors) > 0 {
		line("\nError distribution:")
		for _, text := range sortedByCount(r.errors) {
			line("  [%d]\t%s", r.errors[text], text)
		}
	}
}

// sortedByCount returns the keys of counts, the most frequent first.
func sortedByCount(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}
