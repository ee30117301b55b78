package view

import "strings"

// Sentences wraps paragraphs to a number of columns. Paragraphs that begin with two blanks are not wrapped, so that users can copy
// them.
func Sentences(paragraphs []string, columns int, p Paint) string {
	var b strings.Builder
	for i, paragraph := range paragraphs {
		if strings.HasPrefix(paragraph, "  ") {
			b.WriteString(p.in(cyan, paragraph) + "\n")
			continue
		}
		for _, line := range wrap(paragraph, columns, "") {
			if i == 0 {
				line = p.in(bold, line)
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
