//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/utils/clock"

	"github.com/serin-dev/serin/playground/cluster"
)

// dailyReleases is the number of releases a day in a soak test.
const dailyReleases = 10

// daysReport contains what a process keeps after each day of releases, as written to the file.
type daysReport struct {
	Date     time.Time  `json:"date"`
	Machine  machine    `json:"machine"`
	Releases int        `json:"releases"`
	Restarts bool       `json:"restarts"`
	APIs     []daysKept `json:"apis"`
}

// daysKept is the report about one API.
type daysKept struct {
	API  string `json:"api"`
	Days []kept `json:"days"`
}

// kept is what a process keeps while all releases are idle. Sizes are in bytes, after a garbage collection.
type kept struct {
	HeapBytes  int `json:"heapBytes"`
	Objects    int `json:"objects"`
	Goroutines int `json:"goroutines"`
	Series     int `json:"series"`
	// Watches is the number of open watches.
	Watches        int   `json:"watches"`
	AnonymousBytes int64 `json:"anonymousBytes"`
}

// measureDays ships ten releases a day for each API, on a separate cluster. A day has no fixed duration: it ends when all releases have
// ended and no requests are sent. Each release is shipped once.
func measureDays(ctx context.Context, s settings, options cluster.Options) (printable, error) {
	r := daysReport{Date: clock.RealClock{}.Now().UTC().Truncate(time.Second), Releases: s.releases, Restarts: s.restarts}
	var err error
	if r.Machine, err = describeMachine(); err != nil {
		return r, err
	}
	apis, err := selectAPIs(s.apis)
	if err != nil {
		return r, err
	}
	for _, api := range apis {
		logProgress("API " + api.api + ":")
		measured := daysKept{API: api.api}
		err := onCluster(ctx, s, api, serin(s), options, func(ctx context.Context, st *stage) error {
			if err := st.createReleases(ctx, s.releases); err != nil {
				return err
			}
			for day := range s.days {
				after, err := st.liveThroughDay(ctx, day)
				if err != nil {
					return fmt.Errorf("day %d: %w", day+1, err)
				}
				measured.Days = append(measured.Days, after)
			}
			return nil
		})
		if err != nil {
			return r, err
		}
		r.APIs = append(r.APIs, measured)
	}
	return r, nil
}

// liveThroughDay ships the releases of a day, and returns what the process keeps afterwards.
func (s *stage) liveThroughDay(ctx context.Context, day int) (k kept, err error) {
	if s.restarts {
		if _, err := s.restartSerin(ctx); err != nil {
			return k, err
		}
	}
	if _, err := s.measureRelease(ctx, day*dailyReleases, dailyReleases, 0); err != nil {
		return k, err
	}
	// The response of this address is written after a garbage collection.
	if _, err := fetch(ctx, profilesURL+"heap?gc=1"); err != nil {
		return k, err
	}
	text, err := fetch(ctx, metricsURL)
	if err != nil {
		return k, err
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, isSample := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") || !isSample {
			continue
		}
		k.Series++
		for metric, into := range map[string]*int{"go_memstats_heap_alloc_bytes": &k.HeapBytes, "go_memstats_heap_objects": &k.Objects, "go_goroutines": &k.Goroutines} {
			if metric != name {
				continue
			}
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return k, fmt.Errorf("read metric %s: %w", name, err)
			}
			*into = int(number)
		}
	}
	usage, err := s.cluster.Usage(serinName)
	if err != nil {
		return k, err
	}
	k.AnonymousBytes, k.Watches = usage.ResidentBytes-usage.FileBytes, s.proxy.OpenWatches()
	return k, lines.Err()
}

// fetch returns the response of one of Serin's endpoints.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", url, err)
	}
	return string(text), nil
}

func (r daysReport) measuredAPIs() int { return len(r.APIs) }

// print prints some of the days, and the growth from the first to the last.
func (r daysReport) print(w io.Writer) error {
	how := "the process runs throughout"
	if r.Restarts {
		how = "the process is restarted each day"
	}
	fmt.Fprintf(w, "%s: %d releases, %d of them shipped a day; %s\n", r.Date.Format(time.DateOnly), r.Releases, dailyReleases, how)
	for _, api := range r.APIs {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(table, "\n%s, after day\theap MB\tobjects\tgoroutines\tseries\twatches\tanonymous MB\t\n", api.API)
		for day, k := range api.Days {
			if day > 1 && (day+1)%5 != 0 && day != len(api.Days)-1 {
				continue
			}
			fmt.Fprintf(table, "%d\t%.1f\t%d\t%d\t%d\t%d\t%.1f\t\n", day+1, float64(k.HeapBytes)/megabyte, k.Objects, k.Goroutines, k.Series, k.Watches, float64(k.AnonymousBytes)/megabyte)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}
