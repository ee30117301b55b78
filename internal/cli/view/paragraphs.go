package view

import "strings"

// WrapParagraphs wraps paragraphs to a number of columns. Paragraphs that begin with two blanks are not wrapped, so that users can
// copy them.
func WrapParagraphs(paragraphs []string, columns int, p Paint) string {
	var b strings.Builder
	for i, paragraph := range paragraphs {
		text := strings.TrimLeft(paragraph, " ")
		paragraph = paragraph[:len(paragraph)-len(text)] + SingleLine(text)
		if strings.HasPrefix(paragraph, "  ") {
			b.WriteString(p.styled(cyan, paragraph) + "\n")
			continue
		}
		for _, line := range wrap(paragraph, columns, "") {
			if i == 0 {
				line = p.styled(bold, line)
			}
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
