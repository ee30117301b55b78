package hook

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/util/rand"
)

// Payload is the body of a call. Its fields have the order of Flagger's.
type Payload struct {
	// Name and Namespace are those of the Canary.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Phase is the phase of the release.
	Phase string `json:"phase"`
	// Checksum distinguishes revisions; see the function Checksum.
	Checksum string `json:"checksum"`
	// Metadata is the user's metadata of the webhook.
	Metadata map[string]string `json:"metadata,omitempty"`
}

// JSON returns the encoded payload.
func (p Payload) JSON() ([]byte, error) { return json.Marshal(p) }

// EventPayload returns the body for an event: the payload, with message, type (Normal or Warning) and time (milliseconds
// since 1970, in decimal) in its metadata, where they override the user's. p is not modified.
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

// Checksum returns a hash of a revision, of at most ten consonants and digits. It equals the one that Flagger 1.44 sends for
// the same status, so that a receiver recognises a release after a migration from Flagger: 32-bit FNV-1a of Flagger's dump
// of the two fields. A nil map has another checksum than an empty one.
func Checksum(trackedConfigs map[string]string, lastAppliedSpec string) string {
	tracked := "<nil>"
	if trackedConfigs != nil {
		tracked = fmt.Sprint(trackedConfigs) // sorted by name
	}
	sum := fnv.New32a()
	fmt.Fprintf(sum, "(struct { TrackedConfigs *map[string]string; LastAppliedSpec string }){TrackedConfigs:(*map[string]string)%s LastAppliedSpec:(string)%s}",
		tracked, lastAppliedSpec)
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}
