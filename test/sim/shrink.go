package sim

import (
	"slices"
	"strings"
)

// maxAttempts is the maximum number of runs that are executed to shrink one run.
const maxAttempts = 400

// Shrink removes from a run the faults and actions that the violation does not need: first whole classes, then single faults
// and actions. execute repeats the run with only the named faults and actions. The result is the smallest run found; its
// Occurred names exactly what it needs.
func Shrink(found Result, execute func(only []string) Result) Result {
	s := &shrinker{number: found.Violations[0].Number, execute: execute, smallest: found}
	if !s.try(found.Occurred) {
		return found // the repeated run differs: a defect of the simulator, which its own test detects
	}
	for _, class := range classesOf(found.Occurred) {
		s.try(slices.DeleteFunc(slices.Clone(s.smallest.Occurred), func(name string) bool { return classOf(name) == class }))
	}
	for size := len(s.smallest.Occurred); size >= 1; size /= 2 {
		for at := 0; at < len(s.smallest.Occurred); {
			if all := s.smallest.Occurred; !s.try(slices.Concat(all[:at], all[min(at+size, len(all)):])) {
				at += size
			}
		}
	}
	return s.smallest
}

type shrinker struct {
	number   string
	execute  func([]string) Result
	smallest Result
	attempts int
}

// try executes the run with only these faults and actions, and retains the result if it shows the same violation.
func (s *shrinker) try(only []string) bool {
	if s.attempts++; s.attempts > maxAttempts {
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
