package rollout

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/serin-dev/serin/internal/release"
)

// quantityPointers match JSON pointers to quantities of a pod template: they mean the same to every client of Rollouts,
// and no CustomResourceDefinition validates them. Ephemeral containers, which templates cannot have, are decoded as a
// whole or not at all.
var quantityPointers = regexp.MustCompile(`^/spec/template/spec/(.*/)?(resources/(limits|requests)/[^/]+|overhead/[^/]+|sizeLimit|divisor|ephemeralContainers)$`)

// reportUnreadableFields removes quantities that cannot be decoded from the stored Rollout: while they exist, a strict
// client, such as the official one, cannot list any Rollout of the namespace. Other fields are only reported, because
// they may belong to a newer version of the API.
func reportUnreadableFields(f facts) outcome {
	var o outcome
	var remove []string
	for _, pointer := range f.UnreadableFields {
		switch {
		case quantityPointers.MatchString(pointer):
			remove = append(remove, pointer)
		case strings.HasPrefix(pointer, "/spec/"):
			o.events = append(o.events, release.Event{
				Type: release.Warning, Reason: reasonUnreadable, Persistent: true,
				Message: fmt.Sprintf("%s cannot be decoded and is ignored: correct it", fieldPath(pointer)),
			})
		}
	}
	if len(remove) > 0 {
		o.upkeepEffects = append(o.upkeepEffects, UnreadableQuantitiesRemoved{Pointers: remove})
	}
	return o
}

// reasonUnreadable is the reason of events about fields that cannot be decoded.
const reasonUnreadable = "UnreadableField"

// maxNamedFields is the maximum number of fields in a message.
const maxNamedFields = 3

func (e UnreadableQuantitiesRemoved) String() string {
	return fmt.Sprintf("%d undecodable quantities removed", len(e.Pointers))
}

// event returns the event about removed quantities.
func (e UnreadableQuantitiesRemoved) event() release.Event {
	var names []string
	for _, pointer := range e.Pointers[:min(len(e.Pointers), maxNamedFields)] {
		names = append(names, fieldPath(pointer))
	}
	fields := strings.Join(names, ", ")
	if more := len(e.Pointers) - len(names); more > 0 {
		fields += fmt.Sprintf(" and %d more", more)
	}
	return release.Event{Type: release.Warning, Reason: reasonUnreadable, Message: "Removed values that cannot be decoded, " +
		"because they prevent strict clients from listing Rollouts: " + fields + ". Correct them in the manifest"}
}

// pointerIndex matches the index of a list in a JSON pointer.
var pointerIndex = regexp.MustCompile(`/(\d+)(/|$)`)

// fieldPath returns a JSON pointer as a field path.
func fieldPath(pointer string) string {
	path := pointerIndex.ReplaceAllString(strings.TrimPrefix(pointer, "/"), "[$1]$2")
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(strings.ReplaceAll(path, "/", "."))
}
