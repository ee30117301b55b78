// Package check judges whether a cluster and a release in it are ready: named checks in sections, each with what was found and how
// to correct it.
//
// It knows findings about clusters and releases, as values. It must not know clients, terminals, or rules of its own about a
// release: those of the controller are in the snapshots. A check is a function of its section, and a row of the table in
// docs/commands.md.
package check

import "fmt"

// Status is the result of a check.
type Status string

// The results.
const (
	Passed  Status = "passed"
	Warning Status = "warning" // releases work, but users should know it
	Failed  Status = "failed"  // a release cannot work, or something must be corrected
	Skipped Status = "skipped" // it could not be evaluated, or does not apply
)

// Result is the result of one check. Fields are added to it, never renamed or removed.
type Result struct {
	// Check is the name of the check. Several results have the same name if the check applies to several objects.
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Message describes what was found, in a sentence without a full stop.
	Message string `json:"message"`
	// Fix describes how to correct it; empty: nothing is to be corrected, or the message contains it.
	Fix string `json:"fix,omitempty"`
	// Query is the text of the query that was sent for the check; empty: none was.
	Query string `json:"query,omitempty"`
}

// Section contains the results about one part of a cluster.
type Section struct {
	Name    string   `json:"name"`
	Results []Result `json:"results"`
}

// Report contains the results of all checks. It is the document of check -o json. Fields are added to it, never renamed or removed.
type Report struct {
	Sections []Section `json:"sections"`
}

// Count returns the number of checks with a status.
func (r Report) Count(status Status) int {
	n := 0
	for _, section := range r.Sections {
		for _, result := range section.Results {
			if result.Status == status {
				n++
			}
		}
	}
	return n
}

func passed(check, message string) Result {
	return Result{Check: check, Status: Passed, Message: message}
}

func warning(check, message, fix string) Result {
	return Result{Check: check, Status: Warning, Message: message, Fix: fix}
}

func failed(check, message, fix string) Result {
	return Result{Check: check, Status: Failed, Message: message, Fix: fix}
}

func skipped(check, message, fix string) Result {
	return Result{Check: check, Status: Skipped, Message: message, Fix: fix}
}

// passedUnlessAny returns a failed result for each problem, or one passed result if there is none.
func passedUnlessAny(check string, problems []string, fix, message string) []Result {
	if len(problems) == 0 {
		return []Result{passed(check, message)}
	}
	results := make([]Result, len(problems))
	for i, problem := range problems {
		results[i] = failed(check, problem, fix)
	}
	return results
}

// passedUnless returns the problem as a failed result, or a passed result if it is empty.
func passedUnless(check, problem, fix, message string) Result {
	if problem == "" {
		return passed(check, message)
	}
	return failed(check, problem, fix)
}

// countOf formats a number with its noun.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
