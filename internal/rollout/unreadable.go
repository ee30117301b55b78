package rollout

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/serin-dev/serin/internal/release"
)

// amounts are pointers to quantities of a pod: they mean the same to every program that reads Rollouts, and no
// definition checks them. Ephemeral containers, of which no template can have any, are read as a whole or not at all.
var amounts = regexp.MustCompile(`^/spec/template/spec/(.*/)?(resources/(limits|requests)/[^/]+|overhead/[^/]+|sizeLimit|divisor|ephemeralContainers)$`)

// reportUnreadable removes quantities from the stored Rollout that cannot be read: while they exist, a program that
// reads strictly, as the official client does, can list no Rollout of the namespace. Everything else that was left out
// is only reported: what Serin cannot read may belong to a newer version of the API.
func reportUnreadable(f facts) outcome {
	var o outcome
	var remove []string
	for _, pointer := range f.Unreadable {
		switch {
		case amounts.MatchString(pointer):
			remove = append(remove, pointer)
		case strings.HasPrefix(pointer, "/spec/"):
			o.events = append(o.events, release.Event{
				Type: release.Warning, Reason: reasonUnreadable, Standing: true,
				Message: fmt.Sprintf("%s cannot be read, and counts as not given: correct it", fieldOf(pointer)),
			})
		}
	}
	if len(remove) > 0 {
		o.always = append(o.always, AmountsReadable{Left: remove})
	}
	return o
}

// reasonUnreadable is that of events about what cannot be read.
const reasonUnreadable = "UnreadableField"

// mostNamed bounds how many fields a sentence names.
const mostNamed = 3

func (e AmountsReadable) String() string {
	return fmt.Sprintf("the spec is without %d amounts that cannot be read", len(e.Left))
}

// told returns the event about removed quantities.
func (e AmountsReadable) told() release.Event {
	var names []string
	for _, pointer := range e.Left[:min(len(e.Left), mostNamed)] {
		names = append(names, fieldOf(pointer))
	}
	which := strings.Join(names, ", ")
	if more := len(e.Left) - len(names); more > 0 {
		which += fmt.Sprintf(" and %d more", more)
	}
	return release.Event{Type: release.Warning, Reason: reasonUnreadable, Message: which +
		" cannot be read, and was taken out of the Rollout, because programs that read strictly can list none while it is there: correct it in the manifest"}
}

// index is that of a list in a JSON pointer.
var index = regexp.MustCompile(`/(\d+)(/|$)`)

// fieldOf returns a JSON pointer as a field path.
func fieldOf(pointer string) string {
	path := index.ReplaceAllString(strings.TrimPrefix(pointer, "/"), "[$1]$2")
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.ReplaceAll(path, "/", "."))
}
