package sim

import (
	"slices"
	"strings"
)

// attempts bounds how often a history is played again to make it smaller.
const attempts = 400

// Shrink leaves out of a history what the violation does not need: whole classes of trouble first, then single troubles
// and actions. play plays the history with nothing but the named ones. The smallest history is the one in which just
// what it names as Happened takes place.
func Shrink(found Result, play func(only []string) Result) Result {
	s := &shrinking{number: found.Violations[0].Number, play: play, smallest: found}
	if !s.try(found.Recorded) {
		return found // it is not the same when it is played again: a defect of the simulator, seen by its own test
	}
	for _, class := range classesOf(found.Recorded) {
		s.try(slices.DeleteFunc(slices.Clone(s.smallest.Recorded), func(name string) bool { return classOf(name) == class }))
	}
	for size := len(s.smallest.Recorded); size >= 1; size /= 2 {
		for at := 0; at < len(s.smallest.Recorded); {
			if all := s.smallest.Recorded; !s.try(slices.Concat(all[:at], all[min(at+size, len(all)):])) {
				at += size
			}
		}
	}
	return s.smallest
}

type shrinking struct {
	number   string
	play     func([]string) Result
	smallest Result
	tried    int
}

// try keeps these only, if the same violation is found with them.
func (s *shrinking) try(only []string) bool {
	if s.tried++; s.tried > attempts {
		return false
	}
	result := s.play(only)
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
