package loadtester

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// splitWords splits a command line into words as a shell would. simple is false if a shell would do more than that (pipes,
// variables, patterns, several commands), so that only a shell can run the line.
func splitWords(line string) (argv []string, simple bool) {
	line = strings.TrimSpace(line)
	if strings.ContainsAny(line, "\r\n") {
		return nil, false
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(line), "")
	if err != nil || len(file.Stmts) != 1 {
		return nil, false
	}
	statement := file.Stmts[0]
	call, ok := statement.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Assigns) > 0 || len(statement.Redirs) > 0 || statement.Negated || statement.Background {
		return nil, false
	}
	if slices.ContainsFunc(call.Args, func(word *syntax.Word) bool { return !isLiteral(word.Parts) }) {
		return nil, false
	}
	argv, err = expand.Fields(nil, call.Args...) // removes the quotes; without a configuration it lists no directory
	return argv, err == nil && !slices.ContainsFunc(argv, isPattern)
}

// isLiteral reports whether a word consists of text alone. Some shells expand $'text' and braces, and all of them expand a
// leading tilde.
func isLiteral(parts []syntax.WordPart) bool {
	for i, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(part.Value, "${}") || i == 0 && strings.HasPrefix(part.Value, "~") {
				return false
			}
		case *syntax.SglQuoted:
		case *syntax.DblQuoted:
			for _, quoted := range part.Parts {
				if _, ok := quoted.(*syntax.Lit); !ok {
					return false
				}
			}
		default: // an expansion
			return false
		}
	}
	return true
}

// isPattern reports whether a shell would replace the word by matching file names. A URL is not a pattern: a shell leaves
// a pattern without a match unchanged, and no file has the name of a URL.
func isPattern(word string) bool {
	return strings.ContainsAny(word, "*?[") && !strings.Contains(word, "://")
}
