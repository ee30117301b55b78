package loadtester

import "strings"

// words splits a command line into the words that a shell would make of it. simple is false where a shell would do more
// than that (pipes, variables, patterns, several commands), so that only a shell can run it.
func words(line string) (argv []string, simple bool) {
	var word strings.Builder
	inWord := false
	end := func() {
		if inWord {
			argv = append(argv, word.String())
			word.Reset()
			inWord = false
		}
	}
	line = strings.TrimSpace(line)
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t':
			end()
		case '\'':
			closing := strings.IndexByte(line[i+1:], '\'')
			if closing < 0 {
				return nil, false
			}
			word.WriteString(line[i+1 : i+1+closing])
			inWord, i = true, i+1+closing
		case '"':
			text, length, ok := quoted(line[i+1:])
			if !ok {
				return nil, false
			}
			word.WriteString(text)
			inWord, i = true, i+1+length
		case '\\':
			if i+1 == len(line) || line[i+1] == '\n' {
				return nil, false
			}
			i++
			word.WriteByte(line[i])
			inWord = true
		default:
			if special(c, !inWord, len(argv) == 0) {
				return nil, false
			}
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	for _, w := range argv {
		// A pattern that fits no file stays as it is, and no file has the name of a URL.
		if strings.ContainsAny(w, "*?[") && !strings.Contains(w, "://") {
			return nil, false
		}
	}
	return argv, len(argv) > 0
}

// quoted reads up to the closing quotation mark, which stands at the length that it returns. Variables and commands in
// it are not ok.
func quoted(rest string) (text string, length int, ok bool) {
	var out strings.Builder
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == '"':
			return out.String(), i, true
		case c == '$' || c == '`':
			return "", 0, false
		case c == '\\' && i+1 < len(rest) && strings.IndexByte("\"\\$`", rest[i+1]) >= 0:
			i++
			out.WriteByte(rest[i])
		default:
			out.WriteByte(c)
		}
	}
	return "", 0, false
}

// special says that a shell gives a character outside of quotation marks a meaning.
func special(c byte, beginsWord, firstWord bool) bool {
	switch c {
	case '|', '&', ';', '<', '>', '(', ')', '$', '`', '\n', '\r', '{', '}':
		return true
	case '#', '~', '!':
		return beginsWord
	case '=':
		return firstWord // NAME=value before the command
	default:
		return false
	}
}
