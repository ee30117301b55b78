//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serin-dev/serin/playground/process"
)

// processorTimes is the processor time that was used until a moment.
type processorTimes struct {
	at time.Time
	// controller, apiServer and etcd are those of the processes; bench is that of this process, which contains the node, the proxy and the
	// stub of Prometheus.
	controller, apiServer, etcd process.Usage
	bench                       time.Duration
	// ticks are those of all processors.
	ticks processorTicks
}

// readProcessorTimes reads the times until now.
func (s *stage) readProcessorTimes() (t processorTimes, err error) {
	t.at = s.clock.Now()
	for name, usage := range map[string]*process.Usage{s.controller.name: &t.controller, "apiserver": &t.apiServer, "etcd": &t.etcd} {
		if *usage, err = s.cluster.Usage(name); err != nil {
			return t, err
		}
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return t, fmt.Errorf("read the usage of this process: %w", err)
	}
	t.bench = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, fmt.Errorf("read the usage of the processors: %w", err)
	}
	t.ticks, err = parseProcessorTicks(string(text))
	return t, err
}

// since returns the usage between two moments.
func (t processorTimes) since(before processorTimes) processorUse {
	return processorUse{
		Seconds:              t.at.Sub(before.at).Seconds(),
		BusyShare:            t.ticks.busyShareSince(before.ticks),
		ControllerCPUSeconds: t.controller.CPUSeconds - before.controller.CPUSeconds,
		APIServerCPUSeconds:  t.apiServer.CPUSeconds - before.apiServer.CPUSeconds,
		EtcdCPUSeconds:       t.etcd.CPUSeconds - before.etcd.CPUSeconds,
		BenchCPUSeconds:      (t.bench - before.bench).Seconds(),
	}
}

// processorTicks are the ticks of all processors since the start of the machine.
type processorTicks struct{ all, idle int64 }

// parseProcessorTicks reads the first line of /proc/stat, see proc_stat(5). Time in which a hypervisor runs other machines counts as
// busy: no program here can use it. Time of guests is contained in the time of the user mode.
func parseProcessorTicks(text string) (processorTicks, error) {
	const idle, iowait, guest = 4, 5, 9
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < guest || fields[0] != "cpu" {
		return processorTicks{}, fmt.Errorf("read the usage of the processors: unknown format of /proc/stat: %q", line)
	}
	var t processorTicks
	for i, field := range fields[1:guest] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return t, fmt.Errorf("read the usage of the processors: %w", err)
		}
		t.all += n
		if i+1 == idle || i+1 == iowait {
			t.idle += n
		}
	}
	return t, nil
}

// busyShareSince returns the share of the processors that was used between two moments.
func (t processorTicks) busyShareSince(before processorTicks) float64 {
	if t.all <= before.all {
		return 0
	}
	return 1 - float64(t.idle-before.idle)/float64(t.all-before.all)
}
