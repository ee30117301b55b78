package hook

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Payload is what a hook is told. The order of its fields is the API's.
type Payload struct {
	// Name and Namespace of the Canary.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Phase of the release.
	Phase string `json:"phase"`
	// Checksum tells one revision from another; see Checksum.
	Checksum string `json:"checksum"`
	// Metadata is what the user wrote beside the hook.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// JSON is the body of the call.
func (p Payload) JSON() ([]byte, error) { return json.Marshal(p) }

// EventPayload is the body for an event: the payload, with message, type (Normal or Warning) and time (milliseconds
// since 1970, in decimal) in its metadata, where they win over the user's. The payload given is not changed.
func EventPayload(p Payload, message, eventType, timestamp string) ([]byte, error) {
	metadata := maps.Clone(p.Metadata)
	if metadata == nil {
		metadata = make(map[string]string, 3)
	}
	metadata["eventMessage"] = message
	metadata["eventType"] = eventType
	metadata["timestamp"] = timestamp
	p.Metadata = metadata
	return p.JSON()
}

// Checksum is a short name, of consonants and digits, for what a status holds about a revision: at most ten characters,
// equal for equal input. It is the one that Flagger 1.44 sends for the same status, so that a receiver that keeps what it saw
// by it knows a release again when the controller is swapped: 32-bit FNV-1a over the text that Flagger's dump of the two
// fields has. No configuration that is tracked is another text than a list of none.
func Checksum(trackedConfigs map[string]string, lastAppliedSpec string) string {
	tracked := "<nil>"
	if trackedConfigs != nil {
		tracked = fmt.Sprint(trackedConfigs) // in the order of the names
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "(struct { TrackedConfigs *map[string]string; LastAppliedSpec string }){TrackedConfigs:(*map[string]string)%s LastAppliedSpec:(string)%s}",
		tracked, lastAppliedSpec)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}
