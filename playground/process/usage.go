//go:build linux

package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, which Linux promises to programs on every architecture that Go runs on.
const ticksPerSecond = 100

// readUsage reads /proc/PID/stat, see proc(5): fields 14 and 15 are the ticks in user and kernel mode, 24 the resident pages;
// and /proc/PID/statm, of which field 3 are those from files.
func readUsage(pid int) (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("read the usage of process %d: %w", pid, err)
	}
	// The second field, the name in brackets, may hold spaces.
	_, rest, found := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 22 {
		return Usage{}, fmt.Errorf("read the usage of process %d: unknown form of /proc/%d/stat", pid, pid)
	}
	number := func(field int) int64 { // numbered as in the manual
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
