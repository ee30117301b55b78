package parity

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Page returns the file of the page.
func Page(root string) string { return filepath.Join(root, "docs", "parity.md") }

const introduction = `# What Serin serves of Flagger and Argo Rollouts

This page lists every field, flag, metric, event, annotation, provider and command of %s
and %s, and what Serin does with it. It is generated (` + "`make generate`" + `) from the definitions of the three projects, and a test
compares it with the code: a name is *served* if it exists in Serin's definitions, flags or registries, and for a field also if the code
refers to it. Every other state is a reviewed entry with its reason in ` + "`test/parity/states.yaml`" + `.

| State | Meaning |
|---|---|
| served | Serin does the same |
| differs | Serin serves it in another way, or under another name |
| accepted, without effect | existing manifests and command lines remain valid |
| refused | Serin reports it as an error |
| not served | Serin does not have it: [ADR 0014](adr/0014-what-serin-does-not-serve.md) |

That a name is served does not mean that its behavior is the same in every case. The deliberate differences are listed in
[differences from Flagger](differences-from-flagger.md) and [from Argo Rollouts](differences-from-argo-rollouts.md).
`

// Render returns the page.
func Render(projects []Project, tables []Table) string {
	var b strings.Builder
	var names []string
	for _, p := range projects {
		version := p.Module[strings.LastIndex(p.Module, " v")+2:]
		names = append(names, p.Name+" "+version)
	}
	fmt.Fprintf(&b, introduction, names[0], names[1])
	renderCounts(&b, tables)
	for _, p := range projects {
		fmt.Fprintf(&b, "\n## %s\n", p.Name)
		for i, table := range tables {
			switch {
			case table.Project != p.Name:
			case i > 0 && slices.Equal(table.Rows, tables[i-1].Rows):
				fmt.Fprintf(&b, "\n### %s\n\nThe same as those of %s.\n", table.heading(), tables[i-1].of())
			default:
				renderTable(&b, table)
			}
		}
	}
	return b.String()
}

// title returns what a table lists, such as Fields of `Canary`.
func (t Table) title() string {
	plural := t.Type + "s"
	return strings.ToUpper(plural[:1]) + plural[1:] + " of " + t.of()
}

// heading returns the heading of a table, which is unique on the page.
func (t Table) heading() string { return t.Project + ": " + strings.ReplaceAll(t.title(), "`", "") }

// of returns what the names belong to, as Markdown.
func (t Table) of() string {
	if strings.Contains(t.Of, " ") || t.Of == strings.ToLower(t.Of) {
		return t.Of
	}
	return "`" + t.Of + "`"
}

// renderCounts writes the numbers of names by state.
func renderCounts(b *strings.Builder, tables []Table) {
	b.WriteString("\n| | names")
	for _, s := range states {
		b.WriteString(" | " + string(s))
	}
	b.WriteString(" |\n|---|---" + strings.Repeat("|---", len(states)) + "|\n")
	for _, t := range tables {
		fmt.Fprintf(b, "| %s: %s | %d", t.Project, strings.ToLower(t.title()[:1])+t.title()[1:], len(t.Rows))
		for _, s := range states {
			n := 0
			for _, row := range t.Rows {
				if row.State == s {
					n++
				}
			}
			if n == 0 {
				b.WriteString(" | ")
			} else {
				fmt.Fprintf(b, " | %d", n)
			}
		}
		b.WriteString(" |\n")
	}
}

// renderTable writes one table: a row for each name that is not served as it is, and the others together.
func renderTable(b *strings.Builder, t Table) {
	fmt.Fprintf(b, "\n### %s\n\n", t.heading())
	var served []string
	var others []Row
	for _, row := range t.Rows {
		if row.State == Served {
			served = append(served, row.Name)
		} else {
			others = append(others, row)
		}
	}
	if len(others) > 0 {
		b.WriteString("| Name | State | |\n|---|---|---|\n")
		for _, group := range groupRows(others) {
			fmt.Fprintf(b, "| %s | %s | %s |\n", quote(group.names), group.State, group.Note)
		}
	}
	if len(others) > 0 && len(served) > 0 {
		b.WriteString("\n")
	}
	switch {
	case len(served) == 0:
	case t.Type == "field":
		fmt.Fprintf(b, "<details>\n<summary>%d served fields</summary>\n\n| Below | Fields |\n|---|---|\n", len(served))
		for _, line := range fieldLines(served) {
			b.WriteString(line)
		}
		b.WriteString("\n</details>\n")
	default:
		fmt.Fprintf(b, "Served: %s.\n", quote(served))
	}
}

// rowGroup are rows with the same state and explanation.
type rowGroup struct {
	Row
	names []string
}

func groupRows(rows []Row) []rowGroup {
	var out []rowGroup
	for _, row := range rows {
		i := slices.IndexFunc(out, func(g rowGroup) bool { return g.State == row.State && g.Note == row.Note })
		if i < 0 {
			out, i = append(out, rowGroup{Row: row}), len(out)
		}
		out[i].names = append(out[i].names, row.Name)
	}
	return out
}

func quote(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "`" + name + "`"
	}
	return strings.Join(out, ", ")
}

// maxParent is the number of segments by which fields are grouped: spec.strategy.canary.
const maxParent = 3

// fieldLines groups fields by the object that contains them, up to a depth.
func fieldLines(names []string) []string {
	below := map[string][]string{}
	var parents []string
	for _, name := range names {
		path, embedded, _ := strings.Cut(name, " ")
		segments := strings.Split(path, ".")
		depth := min(len(segments)-1, maxParent)
		parent := strings.Join(segments[:depth], ".")
		if below[parent] == nil {
			parents = append(parents, parent)
		}
		field := "`" + strings.Join(segments[depth:], ".") + "`"
		if embedded != "" {
			field += " (" + embedded + " of Kubernetes)"
		}
		below[parent] = append(below[parent], field)
	}
	slices.Sort(parents)
	var out []string
	for _, parent := range parents {
		out = append(out, fmt.Sprintf("| %s | %s |\n", cmp.Or(quoteOne(parent), "the object"), strings.Join(below[parent], ", ")))
	}
	return out
}

func quoteOne(name string) string {
	if name == "" {
		return ""
	}
	return "`" + name + "`"
}
