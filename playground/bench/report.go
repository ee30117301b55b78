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
	API string `json:"api"`
	controllerCosts
	// Peer are the costs of Flagger or Argo Rollouts with the same releases; nil: it was not measured.
	Peer *controllerCosts `json:"peer,omitempty"`
}

// controllerCosts are the costs of the releases of one API with one controller.
type controllerCosts struct {
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

	// Processors is the use of the machine from the first change to the last request, ProcessorsDuringStart from the first change until
	// all releases were in progress.
	Processors            processorUse `json:"processors"`
	ProcessorsDuringStart processorUse `json:"processorsDuringStart"`
}

// processorUse is the use of the machine's processors in a period.
type processorUse struct {
	Seconds float64 `json:"seconds"`
	// BusyShare is the share of the time of all processors that any program used: 0 to 1.
	BusyShare float64 `json:"busyShare"`
	// The processor times of the controller and of those that serve it. The benchmark contains the node, the proxy and the stub of
	// Prometheus.
	ControllerCPUSeconds float64 `json:"controllerCpuSeconds"`
	APIServerCPUSeconds  float64 `json:"apiServerCpuSeconds"`
	EtcdCPUSeconds       float64 `json:"etcdCpuSeconds"`
	BenchCPUSeconds      float64 `json:"benchCpuSeconds"`
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

// Rows of the table for which costs of the peers are remembered.
const (
	rowIdleRequests = "API requests a minute while idle, per release"
	rowRequests     = "API requests per release, events included"
	rowLateness     = "lateness: median / p99 / max"
	rowCPU          = "CPU per release"
	rowMemory       = "resident memory: idle / peak / after"
	rowAnonymous    = "of it anonymous: idle / after"
	rowNoticing     = "from a change to Progressing: median / p99 / max"
)

// print prints the report as a table. Costs of a peer that was not measured are the remembered ones.
func (r report) print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %d releases at once, %d windows of %g s, Istio, two Prometheus checks; %d processors, %.0f GiB, load %.2f before\n\n",
		r.Date.Format(time.DateOnly), r.Plan.Releases, r.Plan.Steps, r.Plan.WindowSeconds, r.Machine.Processors, float64(r.Machine.MemoryBytes)/gibibyte, r.Machine.Load)
	if err := r.printCosts(w); err != nil {
		return err
	}
	if err := r.printRatios(w); err != nil {
		return err
	}
	if err := r.printTimes(w); err != nil {
		return err
	}
	for _, m := range r.APIs {
		if err := m.printDetails(w, m.API, r.Plan.Releases); err != nil {
			return err
		}
		if m.Peer == nil {
			continue
		}
		if err := m.Peer.printDetails(w, m.API+", "+peerOf(m.API).name, r.Plan.Releases); err != nil {
			return err
		}
	}
	return nil
}

// peerOf returns the peer of an API.
func peerOf(api string) peer {
	return benchmarkedAPIs[slices.IndexFunc(benchmarkedAPIs, func(a benchmarkedAPI) bool { return a.api == api })].peer
}

// measuredPeer returns the costs of the peer of an API; nil: it was not measured.
func (r report) measuredPeer(api string) *controllerCosts {
	for _, m := range r.APIs {
		if m.API == api {
			return m.Peer
		}
	}
	return nil
}

// printTable prints rows with the same number of cells, without spaces at the ends of lines.
func printTable(w io.Writer, rows [][]string) error {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func formatDistribution(d distribution) string {
	return fmt.Sprintf("%.2f / %.2f / %.2f s", d.Median, d.P99, d.Max)
}

// printCosts prints the costs, and the targets of Serin.
func (r report) printCosts(w io.Writer) error {
	titles := []string{""}
	for _, m := range r.APIs {
		titles = append(titles, "Serin: "+m.API)
	}
	titles = append(titles, "must be")
	anyRemembered := false
	for _, api := range benchmarkedAPIs {
		if r.measuredPeer(api.api) != nil {
			titles = append(titles, api.peer.name)
			continue
		}
		anyRemembered = true
		titles = append(titles, strings.Join(strings.Fields(api.peer.name+" "+api.peer.rememberedVersion+" *"), " "))
	}
	rows := [][]string{titles}
	row := func(what, target string, cell func(controllerCosts) string) {
		cells := []string{what}
		for _, m := range r.APIs {
			cells = append(cells, cell(m.controllerCosts))
		}
		cells = append(cells, target)
		for _, api := range benchmarkedAPIs {
			if costs := r.measuredPeer(api.api); costs != nil {
				cells = append(cells, cell(*costs))
			} else {
				cells = append(cells, api.peer.remembered[what])
			}
		}
		rows = append(rows, cells)
	}
	row(rowIdleRequests, "0", func(m controllerCosts) string { return fmt.Sprintf("%.2f", m.Idle.RequestsPerMinutePerRelease) })
	row(rowRequests, "≤ 30", func(m controllerCosts) string { return fmt.Sprintf("%.2f", m.Release.RequestsPerRelease) })
	row("  reads among them", "0", func(m controllerCosts) string { return fmt.Sprintf("%.2f", m.Release.ReadsPerRelease) })
	row(rowLateness, "≤ 2 s", func(m controllerCosts) string { return formatDistribution(m.Release.LatenessSeconds) })
	row(rowCPU, "≤ 20 ms", func(m controllerCosts) string { return fmt.Sprintf("%.1f ms", m.Release.CPUSecondsPerRelease*1000) })
	row(rowMemory, "≤ 60 MB", func(m controllerCosts) string {
		return fmt.Sprintf("%.1f / %.1f / %.1f MB", float64(m.Idle.ResidentBytes)/megabyte, float64(m.Release.PeakResidentBytes)/megabyte, float64(m.Release.AfterResidentBytes)/megabyte)
	})
	row("  "+rowAnonymous, "", func(m controllerCosts) string {
		return fmt.Sprintf("%.1f / %.1f MB", float64(m.Idle.anonymousBytes())/megabyte, float64(m.Release.afterAnonymousBytes())/megabyte)
	})
	row("  of it the program's file: idle / after", "", func(m controllerCosts) string {
		return fmt.Sprintf("%.1f / %.1f MB", float64(m.Idle.FileBytes)/megabyte, float64(m.Release.AfterFileBytes)/megabyte)
	})
	row(rowNoticing, "p99 < 0.5 s", func(m controllerCosts) string { return formatDistribution(m.Release.NoticingSeconds) })
	row("machine: CPU per release of API server / etcd / benchmark", "", func(m controllerCosts) string {
		perRelease := func(seconds float64) float64 { return seconds * 1000 / float64(r.Plan.Releases) }
		use := m.Release.Processors
		return fmt.Sprintf("%.0f / %.0f / %.0f ms", perRelease(use.APIServerCPUSeconds), perRelease(use.EtcdCPUSeconds), perRelease(use.BenchCPUSeconds))
	})
	row("  until all are in progress: time, processors busy", "", func(m controllerCosts) string {
		use := m.Release.ProcessorsDuringStart
		return fmt.Sprintf("%.1f s, %.0f %%", use.Seconds, use.BusyShare*100)
	})
	row("    CPU of controller / API server / etcd / benchmark", "", func(m controllerCosts) string {
		use := m.Release.ProcessorsDuringStart
		return fmt.Sprintf("%.1f / %.1f / %.1f / %.1f s", use.ControllerCPUSeconds, use.APIServerCPUSeconds, use.EtcdCPUSeconds, use.BenchCPUSeconds)
	})
	if err := printTable(w, rows); err != nil {
		return err
	}
	if anyRemembered {
		fmt.Fprintln(w, "* measured earlier on the same kind of machine, not in this run")
	}
	return nil
}

func (c idleCosts) anonymousBytes() int64          { return c.ResidentBytes - c.FileBytes }
func (c *releaseCosts) afterAnonymousBytes() int64 { return c.AfterResidentBytes - c.AfterFileBytes }

// printRatios prints the costs of Serin as a share of those of the measured peers.
func (r report) printRatios(w io.Writer) error {
	var measured []apiCosts
	titles := []string{"Serin's share of the costs of"}
	for _, m := range r.APIs {
		if m.Peer != nil {
			measured = append(measured, m)
			titles = append(titles, peerOf(m.API).name)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	rows := [][]string{append(titles, "must be")}
	for _, row := range []struct {
		what, target string
		costs        []func(controllerCosts) float64
	}{
		{rowRequests, "", []func(controllerCosts) float64{func(m controllerCosts) float64 { return m.Release.RequestsPerRelease }}},
		{rowCPU, "≤ 0.33", []func(controllerCosts) float64{func(m controllerCosts) float64 { return m.Release.CPUSecondsPerRelease }}},
		{rowMemory, "", []func(controllerCosts) float64{
			func(m controllerCosts) float64 { return float64(m.Idle.ResidentBytes) },
			func(m controllerCosts) float64 { return float64(m.Release.PeakResidentBytes) },
			func(m controllerCosts) float64 { return float64(m.Release.AfterResidentBytes) },
		}},
		{"  " + rowAnonymous, "", []func(controllerCosts) float64{
			func(m controllerCosts) float64 { return float64(m.Idle.anonymousBytes()) },
			func(m controllerCosts) float64 { return float64(m.Release.afterAnonymousBytes()) },
		}},
	} {
		cells := []string{row.what}
		for _, m := range measured {
			var shares []string
			for _, cost := range row.costs {
				shares = append(shares, formatShare(cost(m.controllerCosts), cost(*m.Peer)))
			}
			cells = append(cells, strings.Join(shares, " / "))
		}
		rows = append(rows, append(cells, row.target))
	}
	fmt.Fprintln(w)
	return printTable(w, rows)
}

// formatShare formats a part as a share of a whole, which may be zero.
func formatShare(part, whole float64) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", part/whole)
}

// printTimes prints the parts of the time of a release.
func (r report) printTimes(w io.Writer) error {
	var rows [][]string
	row := func(what string, cell func(name string, m controllerCosts) string) {
		cells := []string{what}
		for _, m := range r.APIs {
			cells = append(cells, cell(m.API, m.controllerCosts))
			if m.Peer != nil {
				cells = append(cells, cell(peerOf(m.API).name, *m.Peer))
			}
		}
		rows = append(rows, cells)
	}
	fmt.Fprint(w, "\nThe time of a release: median / p99 / max\n")
	row("", func(name string, _ controllerCosts) string { return name })
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
		row("  "+part.name, func(_ string, m controllerCosts) string { return formatDistribution(part.time(m.Release)) })
	}
	return printTable(w, rows)
}

// printDetails prints the requests, and the releases that were not measured.
func (m controllerCosts) printDetails(w io.Writer, name string, releases int) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\n%s: requests per release (besides, for all together: %d for leases, %d watches renewed)\n", name, m.Release.Requests.Leases, m.Release.Requests.Watches)
	for _, kinds := range []map[string]int{m.Release.Requests.Writes, m.Release.Requests.Reads} {
		for _, kind := range largestFirst(kinds) {
			fmt.Fprintf(table, "  %.2f\t%s\n", float64(kinds[kind])/float64(releases), kind)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: idle for %.0f s: %d requests (besides, %d for leases, %d watches renewed), %.2f s of CPU a minute\n", name, m.Idle.Seconds,
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
