package explain

import (
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/release"
)

// TestMessagesWithoutTheirMiddleAreCompleted: the status limits their length, and a condition or an event has the complete one.
func TestMessagesWithoutTheirMiddleAreCompleted(t *testing.T) {
	message := "canary not ready (pod cart: " + strings.Repeat("back-off ", 40) + "not found)"
	cut := release.TruncateMiddle(message, 200)
	for name, tc := range map[string]struct{ message, condition, event, want string }{
		"in a condition":      {cut, message, "", message},
		"in an event":         {cut, "", "Halt cart: " + message + ". Waiting.", message},
		"in neither":          {cut, "canary not ready", "not found)", cut},
		"of another pod":      {cut, strings.Replace(message, "pod cart", "pod till", 1), "", cut},
		"the message is full": {message, "", message + " again", message},
	} {
		r := Release{Gates: []Gate{{Name: "canary-ready", Message: tc.message}}, Events: []Event{{Message: tc.event}}}
		if r.completeMessages([]string{tc.condition}); r.Gates[0].Message != tc.want {
			t.Errorf("%s: got %q, want %q", name, r.Gates[0].Message, tc.want)
		}
	}
}
