package view

import (
	"fmt"
	"strings"

	"github.com/serin-dev/serin/internal/cli/check"
)

// checkMarks are the marks of the results, whose shapes differ without colours too.
var checkMarks = map[check.Status]struct {
	mark  string
	style style
}{
	check.Passed:  {"✓", green},
	check.Warning: {"!", yellow},
	check.Failed:  {"✗", red},
	check.Skipped: {"-", faint},
}

// Check renders the results of checks, with a summary.
func Check(r check.Report, columns int, paint Paint) string {
	r = printable(r)
	var b strings.Builder
	for _, section := range r.Sections {
		b.WriteString(paint.styled(bold, section.Name) + "\n")
		for _, result := range section.Results {
			mark := checkMarks[result.Status]
			lines := wrap(result.Check+": "+result.Message, columns-2, "  ")
			b.WriteString(paint.styled(mark.style, mark.mark) + " " + strings.Join(lines, "\n  ") + "\n")
			if result.Query != "" && result.Status != check.Passed {
				b.WriteString(paint.styled(faint, "    query: "+strings.Join(wrap(result.Query, columns-6, ""), "\n      ")) + "\n")
			}
			if result.Fix != "" {
				b.WriteString(paint.styled(faint, "    → "+strings.Join(wrap(result.Fix, columns-6, ""), "\n      ")) + "\n")
			}
		}
		b.WriteString("\n")
	}
	warnings := r.Count(check.Warning)
	fmt.Fprintf(&b, "%d passed, %d %s, %d failed, %d skipped\n", r.Count(check.Passed), warnings, plural(warnings, "warning"), r.Count(check.Failed), r.Count(check.Skipped))
	return b.String()
}
