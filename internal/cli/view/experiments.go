package view

import (
	"cmp"
	"time"

	"github.com/serin-dev/serin/internal/cli/explain"
)

// ExperimentTable renders Experiments as a table with a header and one line for each, with the columns of Argo Rollouts.
func ExperimentTable(all explain.Experiments, now time.Time, withNamespace bool, p Paint) string {
	all = printable(all)
	rows := [][]string{{"NAME", "STATUS", "DURATION", "REMAINING", "AGE"}}
	if withNamespace {
		rows[0] = append([]string{"NAMESPACE"}, rows[0]...)
	}
	for _, e := range all.Experiments {
		remaining := "-"
		if e.IsRunning() && !e.End.IsZero() {
			remaining = explain.FormatDuration(e.End.Sub(now))
		}
		row := []string{
			e.Name, p.styled(analysisStyle(e.Phase), e.Phase), cmp.Or(e.Duration, "-"), remaining, ageText(e.Created, now),
		}
		if withNamespace {
			row = append([]string{e.Namespace}, row...)
		}
		rows = append(rows, row)
	}
	return align(rows)
}
