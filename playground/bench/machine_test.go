//go:build linux

package main

import (
	"os"
	"testing"
)

func TestBusyProcessorsAreThoseThatAreNotIdle(t *testing.T) {
	before, err := parseProcessorTicks("cpu  100 0 50 800 40 1 2 7 90 0\ncpu0 100 0 50 800 40 1 2 7 90 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (processorTicks{all: 1000, idle: 840}); before != want {
		t.Errorf("got %+v, want %+v", before, want)
	}
	after, err := parseProcessorTicks("cpu  200 0 90 830 50 1 2 27 190 0\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := after.busyShareSince(before); got != 0.8 {
		t.Errorf("%g of the processors are busy, want 0.8", got)
	}
	if got := before.busyShareSince(before); got != 0 {
		t.Errorf("%g of the processors are busy in no time, want 0", got)
	}
	for _, text := range []string{"", "cpu  1 2 3\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3 4 x 6 7 8 9\n"} {
		if _, err := parseProcessorTicks(text); err == nil {
			t.Errorf("%q is read as the usage of processors", text)
		}
	}
}

func TestTheUsageOfThisMachineIsRead(t *testing.T) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	if ticks, err := parseProcessorTicks(string(text)); err != nil || ticks.all <= ticks.idle {
		t.Errorf("got %+v, error %v", ticks, err)
	}
}
