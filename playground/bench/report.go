package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/serin-dev/serin/playground/apiproxy"
)

// report contains all measurements, as written to the file. Times are in seconds, sizes in bytes.
type report struct {
	Date    time.Time  `json:"date"`
	Machine machine    `json:"machine"`
	Plan    plan       `json:"plan"`
	APIs    []apiCosts `json:"apis"`
}

// apiCosts are the costs of the releases of one API, in a process that serves both.
type apiCosts struct {
	API     string       `json:"api"`
	Idle    idleCosts    `json:"idle"`
	Release releaseCosts `json:"release"`
}

// machine describes the machine of the measurement.
type machine struct {
	Processors  int   `json:"processors"`
	MemoryBytes int64 `json:"memoryBytes"`
	// Load is the load average of the minute before the cluster was started.
	Load float64 `json:"load"`
}

// plan is the configuration of each release.
type plan struct {
	Releases      int     `json:"releases"`
	Steps         int     `json:"steps"`
	WindowSeconds float64 `json:"windowSeconds"`
	DrainSeconds  float64 `json:"drainSeconds"`
}

// idleCosts are the costs of idle releases.
type idleCosts struct {
	Seconds                     float64       `json:"seconds"`
	RequestsPerMinutePerRelease float64       `json:"requestsPerMinutePerRelease"`
	Requests                    requestCounts `json:"requests"`
	CPUSecondsPerMinute         float64       `json:"cpuSecondsPerMinute"`
	ResidentBytes               int64         `json:"residentBytes"`
	FileBytes                   int64         `json:"fileBytes"`
}

// releaseCosts are the costs of a new version, with all releases at once.
type releaseCosts struct {
	// Measured is the number of releases that succeeded; NotMeasured contains the reason for each other one.
	Measured    int      `json:"measured"`
	NotMeasured []string `json:"notMeasured"`

	RequestsPerRelease float64       `json:"requestsPerRelease"`
	ReadsPerRelease    float64       `json:"readsPerRelease"`
	Requests           requestCounts `json:"requests"`

	// The time of a release and its four parts.
	TotalSeconds    distribution `json:"totalSeconds"`
	WindowsSeconds  distribution `json:"windowsSeconds"`
	ClusterSeconds  distribution `json:"clusterSeconds"`
	DrainSeconds    distribution `json:"drainSeconds"`
	LatenessSeconds distribution `json:"latenessSeconds"`
	// The parts of the lateness.
	NoticingSeconds  distribution `json:"noticingSeconds"`
	StartingSeconds  distribution `json:"startingSeconds"`
	SteppingSeconds  distribution `json:"steppingSeconds"`
	PromotingSeconds distribution `json:"promotingSeconds"`
	EndingSeconds    distribution `json:"endingSeconds"`

	CPUSecondsPerRelease float64 `json:"cpuSecondsPerRelease"`
	PeakResidentBytes    int64   `json:"peakResidentBytes"`
	AfterResidentBytes   int64   `json:"afterResidentBytes"`
	AfterFileBytes       int64   `json:"afterFileBytes"`
}

// requestCounts are the requests of a period, for all releases together, by kind. Leases and watches are counted separately,
// because they do not depend on the number of releases.
type requestCounts struct {
	Writes  map[string]int `json:"writes"`
	Reads   map[string]int `json:"reads"`
	Leases  int            `json:"leases"`
	Watches int            `json:"watches"`
}

func sortRequests(counts apiproxy.Counts) requestCounts {
	r := requestCounts{Writes: map[string]int{}, Reads: map[string]int{}}
	for kind, n := range counts {
		switch {
		case kind.Resource == "leases":
			r.Leases += n
		case kind.Verb == "watch":
			r.Watches += n
		case kind.Verb == "get" || kind.Verb == "list" || kind.Verb == "head":
			r.Reads[kind.String()] += n
		default:
			r.Writes[kind.String()] += n
		}
	}
	return r
}

func sumCounts(kinds map[string]int) int {
	sum := 0
	for _, n := range kinds {
		sum += n
	}
	return sum
}

// distribution describes the values of a time over all releases, in seconds.
type distribution struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
}

// newDistribution computes quantiles by the nearest rank, so each is a measured time.
func newDistribution(times []time.Duration) distribution {
	if len(times) == 0 {
		return distribution{}
	}
	ordered := slices.Sorted(slices.Values(times))
	rank := func(q float64) float64 { return ordered[int(math.Ceil(q*float64(len(ordered))))-1].Seconds() }
	return distribution{Median: rank(0.5), P99: rank(0.99), Max: rank(1)}
}

// setTimes sets the times of the measured releases.
func (r *releaseCosts) setTimes(all []timeBreakdown) {
	of := func(piece func(timeBreakdown) time.Duration) distribution {
		times := make([]time.Duration, 0, len(all))
		for _, p := range all {
			times = append(times, piece(p))
		}
		return newDistribution(times)
	}
	r.Measured = len(all)
	r.TotalSeconds = of(func(p timeBreakdown) time.Duration { return p.Total })
	r.WindowsSeconds = of(func(p timeBreakdown) time.Duration { return p.Windows })
	r.ClusterSeconds = of(func(p timeBreakdown) time.Duration { return p.Cluster })
	r.DrainSeconds = of(func(p timeBreakdown) time.Duration { return p.Drain })
	r.LatenessSeconds = of(func(p timeBreakdown) time.Duration { return p.Lateness })
	r.NoticingSeconds = of(func(p timeBreakdown) time.Duration { return p.Noticing })
	r.StartingSeconds = of(func(p timeBreakdown) time.Duration { return p.Starting })
	r.SteppingSeconds = of(func(p timeBreakdown) time.Duration { return p.Stepping })
	r.PromotingSeconds = of(func(p timeBreakdown) time.Duration { return p.Promoting })
	r.EndingSeconds = of(func(p timeBreakdown) time.Duration { return p.Ending })
}

const (
	megabyte = 1e6
	gibibyte = 1 << 30
)

// print prints the report as a table. The figures of Flagger and Argo Rollouts were measured earlier, on the same kind of machine.
func (r report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d releases at once, %d windows of %g s, Istio, two Prometheus checks; %d processors, %.0f GiB, load %.2f before\n\n",
		r.Date.Format(time.DateOnly), r.Plan.Releases, r.Plan.Steps, r.Plan.WindowSeconds, r.Machine.Processors, float64(r.Machine.MemoryBytes)/gibibyte, r.Machine.Load)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what string, cell func(apiCosts) string, others ...string) {
		cells := []string{what}
		for _, m := range r.APIs {
			cells = append(cells, cell(m))
		}
		fmt.Fprintln(table, strings.Join(append(cells, others...), "\t"))
	}
	each := func(s distribution) string { return fmt.Sprintf("%.2f / %.2f / %.2f s", s.Median, s.P99, s.Max) }
	row("", func(m apiCosts) string { return "Serin: " + m.API }, "must be", "Flagger 1.44 *", "Argo Rollouts *")
	row("API requests a minute while idle, per release", func(m apiCosts) string { return fmt.Sprintf("%.2f", m.Idle.RequestsPerMinutePerRelease) }, "0", "72", "0")
	row("API requests per release, events included", func(m apiCosts) string { return fmt.Sprintf("%.2f", m.Release.RequestsPerRelease) }, "≤ 30", "179", "97")
	row("  reads among them", func(m apiCosts) string { return fmt.Sprintf("%.2f", m.Release.ReadsPerRelease) }, "0")
	row("lateness: median / p99 / max", func(m apiCosts) string { return each(m.Release.LatenessSeconds) }, "≤ 2 s", "≈ 50 s", "≈ 3 s a step")
	row("CPU per release", func(m apiCosts) string { return fmt.Sprintf("%.1f ms", m.Release.CPUSecondsPerRelease*1000) }, "≤ 20 ms", "68 ms", "236 ms")
	row("resident memory: idle / peak / after", func(m apiCosts) string {
		return fmt.Sprintf("%.1f / %.1f / %.1f MB", float64(m.Idle.ResidentBytes)/megabyte, float64(m.Release.PeakResidentBytes)/megabyte, float64(m.Release.AfterResidentBytes)/megabyte)
	}, "≤ 60 MB", "79 MB", "131 MB")
	row("  of it the program's file: idle / after", func(m apiCosts) string {
		return fmt.Sprintf("%.1f / %.1f MB", float64(m.Idle.FileBytes)/megabyte, float64(m.Release.AfterFileBytes)/megabyte)
	})
	row("from a change to Progressing: median / p99 / max", func(m apiCosts) string { return each(m.Release.NoticingSeconds) }, "p99 < 0.5 s", "≤ an interval", "< 1 s")
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "* measured earlier on the same kind of machine, not in this run")

	fmt.Fprint(w, "\nThe time of a release: median / p99 / max\n")
	row("", func(m apiCosts) string { return m.API })
	for _, part := range []struct {
		name string
		time func(releaseCosts) distribution
	}{
		{"total", func(m releaseCosts) distribution { return m.TotalSeconds }},
		{"- windows that were asked for", func(m releaseCosts) distribution { return m.WindowsSeconds }},
		{"- pods, made by the cluster", func(m releaseCosts) distribution { return m.ClusterSeconds }},
		{"- drain", func(m releaseCosts) distribution { return m.DrainSeconds }},
		{"= lateness", func(m releaseCosts) distribution { return m.LatenessSeconds }},
		{"  noticing the change", func(m releaseCosts) distribution { return m.NoticingSeconds }},
		{"  starting", func(m releaseCosts) distribution { return m.StartingSeconds }},
		{"  stepping", func(m releaseCosts) distribution { return m.SteppingSeconds }},
		{"  promoting", func(m releaseCosts) distribution { return m.PromotingSeconds }},
		{"  ending", func(m releaseCosts) distribution { return m.EndingSeconds }},
	} {
		row("  "+part.name, func(m apiCosts) string { return each(part.time(m.Release)) })
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, m := range r.APIs {
		if err := m.print(w, r.Plan.Releases); err != nil {
			return err
		}
	}
	return nil
}

// print prints the requests, and the releases that were not measured.
func (m apiCosts) print(w io.Writer, releases int) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s: requests per release (besides, for all together: %d for leases, %d watches renewed)\n", m.API, m.Release.Requests.Leases, m.Release.Requests.Watches)
	for _, kinds := range []map[string]int{m.Release.Requests.Writes, m.Release.Requests.Reads} {
		for _, kind := range largestFirst(kinds) {
			fmt.Fprintf(table, "  %.2f\t%s\n", float64(kinds[kind])/float64(releases), kind)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: idle for %.0f s: %d requests (besides, %d for leases, %d watches renewed), %.2f s of CPU a minute\n", m.API, m.Idle.Seconds,
		sumCounts(m.Idle.Requests.Writes)+sumCounts(m.Idle.Requests.Reads), m.Idle.Requests.Leases, m.Idle.Requests.Watches, m.Idle.CPUSecondsPerMinute)
	for _, kinds := range []map[string]int{m.Idle.Requests.Writes, m.Idle.Requests.Reads} {
		for _, kind := range largestFirst(kinds) {
			fmt.Fprintf(table, "  %d\t%s\n", kinds[kind], kind)
		}
	}
	if len(m.Release.NotMeasured) > 0 {
		fmt.Fprintf(table, "\n%d of %d releases were not measured:\n", len(m.Release.NotMeasured), releases)
		for _, why := range m.Release.NotMeasured {
			fmt.Fprintln(table, "  "+why)
		}
	}
	return table.Flush()
}

// largestFirst sorts kinds of requests by their number, then by name.
func largestFirst(kinds map[string]int) []string {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if kinds[a] != kinds[b] {
			return kinds[b] - kinds[a]
		}
		return strings.Compare(a, b)
	})
	return names
}
