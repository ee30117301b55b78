package sim

import (
	"slices"
	"strings"
)

// attempts bounds how often a run is repeated to shrink it.
const attempts = 400

// Shrink leaves out of a run what the violation does not need: whole classes of faults first, then single faults and actions.
// execute repeats the run with the named ones alone. The smallest run is the one in which exactly those take place that it
// names as Happened takes place.
func Shrink(found Result, execute func(only []string) Result) Result {
	s := &shrinking{number: found.Violations[0].Number, execute: execute, smallest: found}
	if !s.try(found.TookPlace) {
		return found // it is not the same when it is repeated: a defect of the simulator, seen by its own test
	}
	for _, class := range classesOf(found.TookPlace) {
		s.try(slices.DeleteFunc(slices.Clone(s.smallest.TookPlace), func(name string) bool { return classOf(name) == class }))
	}
	for size := len(s.smallest.TookPlace); size >= 1; size /= 2 {
		for at := 0; at < len(s.smallest.TookPlace); {
			if all := s.smallest.TookPlace; !s.try(slices.Concat(all[:at], all[min(at+size, len(all)):])) {
				at += size
			}
		}
	}
	return s.smallest
}

type shrinking struct {
	number   string
	execute  func([]string) Result
	smallest Result
	tried    int
}

// try keeps these only, if the same violation is found with them.
func (s *shrinking) try(only []string) bool {
	if s.tried++; s.tried > attempts {
		return false
	}
	result := s.execute(only)
	same := slices.ContainsFunc(result.Violations, func(v Violation) bool { return v.Number == s.number })
	if same {
		s.smallest = result
	}
	return same
}

func classOf(name string) string {
	class, _, _ := strings.Cut(name, "#")
	return class
}

func classesOf(names []string) []string {
	var classes []string
	for _, name := range names {
		if class := classOf(name); !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
	}
	return classes
}
