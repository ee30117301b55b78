//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/serin-dev/serin/playground/load"
)

// report prints what happened, and returns an error if an invariant was violated.
func (s *stage) report(w io.Writer, took time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nfault\tinjected\tsurvived\t")
	injected, survived := 0, 0
	for _, c := range s.injected {
		fmt.Fprintf(table, "%s\t%d\t%d\t%s\n", c.name, c.injected, c.survived, c.description)
		injected, survived = injected+c.injected, survived+c.survived
	}
	fmt.Fprintf(table, "total\t%d\t%d\t\n", injected, survived)
	if err := table.Flush(); err != nil {
		return err
	}
	var requests load.Counts
	for _, a := range s.apps {
		if a.load != nil {
			counts := a.load.Counts()
			requests.Requests, requests.Lost, requests.Errors = requests.Requests+counts.Requests, requests.Lost+counts.Lost, requests.Errors+counts.Errors
		}
	}
	starts := 0
	for _, r := range s.replicas {
		starts += r.startCount()
	}
	canaries, rollouts := s.released[canaryAPI.name], s.released[rolloutAPI.name]
	fmt.Fprintf(w, "\nreleases: %d of Canaries, %d of Rollouts; %d promoted, %d rolled back\n", canaries, rollouts, s.promoted, canaries+rollouts-s.promoted)
	fmt.Fprintf(w, "requests of clients: %d sent, %d lost, %d failed by bad versions\n", requests.Requests, requests.Lost, requests.Errors)
	fmt.Fprintf(w, "Serin: %d processes, %d handovers, %d writes\n", starts, s.leases.handovers, s.writeCount())
	for _, r := range s.replacements {
		fmt.Fprintf(w, "takeovers by %s: %d, in %d of %d phases of a release\n", r.name, s.leases.takeovers[r.to.name], len(r.met), len(r.phases))
	}
	fmt.Fprintf(w, "faults=%d survived=%d releases=%d violations=%d seconds=%.0f seed=%d\n", injected, survived, canaries+rollouts, len(s.violations), took.Seconds(), s.seed)
	if len(s.violations) > 0 {
		fmt.Fprintln(w)
		for _, v := range s.violations {
			fmt.Fprintln(w, "VIOLATION of "+v)
		}
		return fmt.Errorf("%d invariants were violated", len(s.violations))
	}
	return nil
}
