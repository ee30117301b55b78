//go:build linux

package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux architecture that Go supports.
const ticksPerSecond = 100

// readUsage reads /proc/PID/stat and /proc/PID/statm, see proc(5). In stat, fields 14 and 15 are the ticks in user and kernel
// mode, and field 24 is the number of resident pages. In statm, field 3 is the number of resident pages that are mapped from
// files.
func readUsage(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	// The second field, the name in parentheses, may contain spaces.
	_, rest, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 22 {
		return Usage{}, fmt.Errorf("read the usage of process %d: unknown format of /proc/%d/stat", pid, pid)
	}
	number := func(field int) int64 { // numbered as in proc(5)
		n, parseErr := strconv.ParseInt(fields[field-3], 10, 64)
		if parseErr != nil {
			err = fmt.Errorf("read the usage of process %d: %w", pid, parseErr)
		}
		return n
	}
	pages, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	var size, resident, files int64
	if _, err := fmt.Sscan(string(pages), &size, &resident, &files); err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: /proc/%d/statm: %w", pid, pid, err)
	}
	u := Usage{
		FileBytes:     files * int64(os.Getpagesize()),
		ResidentBytes: number(24) * int64(os.Getpagesize()),
		CPUSeconds:    float64(number(14)+number(15)) / ticksPerSecond,
	}
	return u, err
}
