package notification

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/serin-dev/serin/internal/outbound"
)

// redactor contains the secret values, in the encodings in which errors may quote them. The longest come first, because one
// may be a part of another.
type redactor []string

// minSecretLength is the minimum length of a value to be redacted: redacting shorter ones would make texts unreadable.
const minSecretLength = 4

func newRedactor(values []string) redactor {
	var all redactor
	for _, value := range values {
		lines := append(strings.Split(value, "\n"), value, strings.TrimSpace(value))
		for _, part := range lines {
			part = strings.TrimRight(part, "\r")
			if len(part) < minSecretLength {
				continue
			}
			quoted := strconv.Quote(part)
			spelled, _ := json.Marshal(part) //nolint:errchkjson // a string can always be encoded
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

// redact returns the text of an error on one line, without the secret values and without the queries of URLs.
func (h redactor) redact(err error) string { return outbound.Excerpt([]byte(h.hide(err.Error()))) }

// hide returns a text without the secret values.
func (h redactor) hide(text string) string {
	for _, value := range h {
		text = strings.ReplaceAll(text, value, "[redacted]")
	}
	return text
}
