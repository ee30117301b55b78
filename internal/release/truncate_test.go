package release_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/serin-dev/serin/internal/release"
)

func TestTruncateMiddleKeepsTheEndOfASentence(t *testing.T) {
	message := "the provider cannot be reached: " + strings.Repeat("connection refused, ", 20) + "this counts as a failed check from 09:45:00 on"
	got := release.TruncateMiddle(message, 200)
	if !strings.HasPrefix(got, "the provider cannot be reached: ") || !strings.HasSuffix(got, "this counts as a failed check from 09:45:00 on") {
		t.Errorf("got %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(len(release.Ellipsis), 60).Draw(t, "limit")
		got := release.TruncateMiddle(text, limit)
		head, tail, isCut := strings.Cut(got, release.Ellipsis)
		switch {
		case len(text) <= limit && got != text:
			t.Errorf("%q of %d bytes became %q", text, len(text), got)
		case len(text) > limit && (len(got) > limit || utf8.ValidString(text) && !utf8.ValidString(got) || !isCut):
			t.Errorf("got %q of %d bytes, want at most %d", got, len(got), limit)
		case len(text) > limit && !strings.Contains(text, release.Ellipsis) && (!strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail)):
			t.Errorf("%q became %q", text, got)
		}
	})
}
