package explain

import (
	"regexp"
	"strings"
)

// plainWord matches words that every POSIX shell takes as they are.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=-]+$`)

// shellWord returns a text as one word of a command that the user copies into a shell. The names of webhooks are free text, and
// a shell would otherwise split them, or run a part of them.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
