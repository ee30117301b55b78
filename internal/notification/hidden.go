package notification

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/outbound"
)

// hidden are values that nobody may read, in the spellings in which errors quote them; the longest come first, since
// one may be part of another.
type hidden []string

// shortest is how long a value must be to be hidden: shorter ones are no secrets, and would make texts unreadable.
const shortest = 4

func newHidden(values []string) hidden {
	var all hidden
	for _, value := range values {
		lines := append(strings.Split(value, "\n"), value, strings.TrimSpace(value))
		for _, part := range lines {
			part = strings.TrimRight(part, "\r")
			if len(part) < shortest {
				continue
			}
			quoted := strconv.Quote(part)
			spelled, _ := json.Marshal(part) //nolint:errchkjson // a text can always be written
			all = append(all, part, quoted[1:len(quoted)-1], string(spelled[1:len(spelled)-1]), url.QueryEscape(part), url.PathEscape(part))
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(all)
}

// out is the text of an error without them: one line, of which no URL shows its query.
func (h hidden) out(err error) string {
	text := err.Error()
	for _, value := range h {
		text = strings.ReplaceAll(text, value, "[redacted]")
	}
	return outbound.Excerpt([]byte(text))
}
